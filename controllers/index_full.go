package controllers

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// A range of keys changes its owner by steps that may need memory: the replay of a dead owner's log makes leaves, and a boundary divides one. In a full pool such a step fails, and is tried
// again, until there is memory. Its keys are served by nobody meanwhile, while all others are.

// fullPool says which keys wait for memory, and what to do; empty if none do.
func (s *indexScope) fullPool() string {
	var waiting []string
	why := ""
	for i := range s.compute {
		c := &s.compute[i]
		for _, r := range c.described.GetRanges() {
			if r.PoolFull {
				waiting = append(waiting, short(r.Start, r.End))
				why = orElse(why, fmt.Sprintf("%s, %s: %s", c.pod.Name, r.State, r.Reason))
			}
		}
	}
	if why == "" {
		return ""
	}
	return fmt.Sprintf("keys %s are not served, since the index has no memory left: raise quota in spec.memoryPools, or delete other keys (%s)", some(waiting), cut(why, mostInNote))
}

// tellFullPool makes an event of ranges that begin to wait for memory: one for each server and look at it, and none of those that were told of.
func (r *indexes) tellFullPool(s *indexScope) {
	reported := make([][]*rpcv1.OwnedRange, len(s.compute))
	for i := range s.compute {
		reported[i] = s.compute[i].described.GetRanges()
	}
	was := find(s.index.Status.Conditions, dmv1.ConditionDegraded)
	isShown := was != nil && was.Reason == dmv1.ReasonPoolFull
	key := types.NamespacedName{Namespace: s.index.Namespace, Name: s.index.Name}
	for i, news := range r.told.waiting(key, identityOf(s.index), reported, isShown) {
		var all []string
		for _, o := range news {
			all = append(all, short(o.Start, o.End))
		}
		if len(all) > 0 {
			r.events.Eventf(s.index, s.compute[i].pod, corev1.EventTypeWarning, dmv1.ReasonPoolFull, action("WaitAtEpoch", news[0].Epoch),
				"%s finds no memory to take over, or to give back, keys %s: raise quota in spec.memoryPools, or delete other keys", s.compute[i].pod.Name, some(all))
		}
	}
}

// waiting are the ranges of an index that wait for memory and were not told of, by their servers' position. isShown says that somebody told of such before: an operator that starts anew does
// not tell it again. What a server does not report any more is forgotten; one that does not answer says nothing.
func (t *told) waiting(index types.NamespacedName, identity string, reported [][]*rpcv1.OwnedRange, isShown bool) (news [][]*rpcv1.OwnedRange) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before, again := t.full[index]
	now := map[string]bool{}
	news = make([][]*rpcv1.OwnedRange, len(reported))
	for i, of := range reported {
		for _, o := range of {
			if !o.PoolFull {
				continue
			}
			id := fmt.Sprintf("%s %d %x", identity, o.Epoch, o.Start)
			now[id] = true
			if !before[id] && (again || !isShown) {
				news[i] = append(news[i], o)
			}
		}
	}
	if t.full == nil {
		t.full = map[types.NamespacedName]map[string]bool{}
	}
	t.full[index] = now
	return news
}
