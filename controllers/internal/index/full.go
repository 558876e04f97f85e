package index

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/report"
)

// A range of keys changes its owner by steps that may need memory: the replay of a dead owner's log
// makes leaves, and a boundary divides one. In a full pool such a step fails, and is tried again,
// until there is memory. A server that cannot give keys serves them on. Keys that a server cannot
// take over from a dead one are served by nobody meanwhile, while all others are.

// stays reports whether a range that waits for memory is served by the server that is to give it.
func stays(r *rpcv1.OwnedRange) bool {
	return r.State != "Acquiring" && r.State != "Taking" && r.State != "Settling"
}

// fullPool says which keys wait for memory, and what to do; empty if none do.
func (s *scope) fullPool() string {
	var waiting, staying []string
	why := ""
	for i := range s.compute {
		c := &s.compute[i]
		for _, r := range c.described.GetRanges() {
			if r.PoolFull {
				if stays(r) {
					staying = append(staying, s.keys().span(r.Start, r.End))
				} else {
					waiting = append(waiting, s.keys().span(r.Start, r.End))
				}
				why = cmp.Or(why, fmt.Sprintf("%s, %s: %s", c.pod.Name, r.State, r.Reason))
			}
		}
	}
	var what string
	switch {
	case why == "":
		return ""
	case len(waiting) == 0:
		what = fmt.Sprintf("keys %s stay on their present server and cannot move", report.Listed(staying))
	case len(staying) == 0:
		what = fmt.Sprintf("keys %s are not served", report.Listed(waiting))
	default:
		what = fmt.Sprintf("keys %s are not served, and %s cannot move", report.Listed(waiting), report.Listed(staying))
	}
	return fmt.Sprintf("%s, since the index has no memory left: %s (%s)", what, s.moreMemory(), report.Cut(why, report.MostInNote))
}

// moreMemory says how a full index gets memory.
func (s *scope) moreMemory() string {
	if s.joins != "" {
		return "memory servers that join bring more (" + s.joins + ")"
	}
	var exhausted []string
	for i := range s.memoryPools {
		p := &s.memoryPools[i]
		if s.growsByQuota(p) {
			return "raise quota in spec.memoryPools, or delete other keys"
		}
		switch {
		case p.pool == nil:
		case p.spec.Template != nil:
			exhausted = append(exhausted, fmt.Sprintf("servers of memory pool %s in spec.memoryPools", p.spec.Name))
		default:
			exhausted = append(exhausted, fmt.Sprintf("spec.servers of DMMemoryPool %s", p.pool.Name))
		}
	}
	if len(exhausted) == 0 {
		return "raise quota in spec.memoryPools, or delete other keys"
	}
	return fmt.Sprintf("raise %s, or delete other keys (a higher quota does not help: the servers have no more)", strings.Join(exhausted, " or "))
}

// growsByQuota reports whether a server of the pool has memory that nobody was granted.
func (s *scope) growsByQuota(p *memoryPool) bool {
	for _, m := range s.verdict.servers {
		if at, _, d := s.memoryPod(m); at == p && d != nil && d.ChunksGranted < d.ChunksTotal {
			return true
		}
	}
	return false
}

// tellFullPool makes an event of ranges that begin to wait for memory: one for each server and look
// at it, and none of those that were told of.
func (r *Reconciler) tellFullPool(s *scope) {
	waiting := make([][]*rpcv1.OwnedRange, len(s.compute))
	for i := range s.compute {
		for _, o := range s.compute[i].described.GetRanges() {
			if o.PoolFull {
				waiting[i] = append(waiting[i], o)
			}
		}
	}
	was := apimeta.FindStatusCondition(s.index.Status.Conditions, dmv1.ConditionDegraded)
	// by an operator before: one that starts anew does not tell it again
	isShown := was != nil && was.Reason == dmv1.ReasonPoolFull
	for i, news := range news(&r.told.full, s.index, waiting, func(*rpcv1.OwnedRange) bool { return !isShown }) {
		var all []string
		for _, o := range news {
			all = append(all, s.keys().span(o.Start, o.End))
		}
		if len(all) > 0 {
			r.Events.Eventf(s.index, s.compute[i].pod, corev1.EventTypeWarning, dmv1.ReasonPoolFull, report.Numbered("WaitAtEpoch", news[0].Epoch),
				"%s finds no memory to take over, or to give back, keys %s: %s", s.compute[i].pod.Name, report.Listed(all), s.moreMemory())
		}
	}
}
