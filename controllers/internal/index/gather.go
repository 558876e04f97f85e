package index

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/authority"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/servers"
	"github.com/dmindex/dmindex/controllers/internal/volume"
)

// gatherMemory looks at the memory pools and their servers, and judges.
func (r *Reconciler) gatherMemory(ctx context.Context, s *scope) error {
	recorded, err := decision.Memory(s.index)
	if err != nil {
		return err
	}
	joined, err := decision.JoinedTo(s.index)
	if err != nil {
		return err
	}
	var wanted []int
	for _, spec := range s.index.Spec.MemoryPools {
		p := memoryPool{spec: spec}
		name := build.MemoryPoolOf(s.index, spec)
		pool := &dmv1.DMMemoryPool{}
		switch err := r.Get(ctx, types.NamespacedName{Namespace: s.index.Namespace, Name: name}, pool); {
		case apierrors.IsNotFound(err) && recorded == nil && spec.Template != nil:
			return outcome.WaitFor(dmv1.ReasonWaitingForMemory, "memory pool "+name+" is being made", outcome.RequeueSoon)
		case apierrors.IsNotFound(err) && recorded == nil:
			return outcome.WaitFor(dmv1.ReasonPoolMissing, "there is no DMMemoryPool "+name+": make it, or correct spec.memoryPools of a new index", 0)
		case apierrors.IsNotFound(err):
			s.memoryPools = append(s.memoryPools, p) // all of its servers are gone
			wanted = append(wanted, 0)
			continue
		case err != nil:
			return err
		case !pool.DeletionTimestamp.IsZero() && recorded == nil:
			// Its other users may be gone, and its pods going, before anybody sees this one.
			return outcome.WaitFor(dmv1.ReasonPoolMissing, "DMMemoryPool "+name+" is being deleted, and no index is made in it any more: make it again once it is gone, or name another one in spec.memoryPools", outcome.RequeueSoon)
		}
		p.pool = pool
		p.authority, err = authority.Read(ctx, &r.Base, pool)
		s.problems.Add(err) // its servers cannot be asked; those of other pools can
		if err := p.gatherServers(ctx, r); err != nil {
			return err
		}
		s.memoryPools = append(s.memoryPools, p)
		wanted = append(wanted, int(pool.Spec.Servers))
	}
	describePools(ctx, &r.Base, s.pools()...)
	var observed []memoryObserved
	for ordinal, p := range s.memoryPools {
		observed = append(observed, p.observe(ordinal)...)
	}
	if err := s.compareHeld(recorded != nil); err != nil {
		return err
	}
	ordinal := func(id uint16) int { n, _ := build.MemoryServerVolume(id); return n }
	podName := func(id uint16) string {
		n, volume := build.MemoryServerVolume(id)
		if n >= len(s.index.Spec.MemoryPools) {
			return "?"
		}
		return s.memoryPools[n].record.PodOf(build.MemoryPoolOf(s.index, s.index.Spec.MemoryPools[n]), volume)
	}
	s.verdict = judgeMemory(recorded, wanted, observed, ordinal, podName)
	s.judgeJoined(joined, observed, podName)
	r.confirmLoss(ctx, s, s.verdict.servers)
	r.confirmLoss(ctx, s, s.joining)
	r.doubtLoss(s)
	return nil
}

// confirmLoss asks the API server whether pods that the cache does not have are really gone: nobody
// shall be told of lost data, or lose an index to Recreate, because a cache is behind.
func (r *Reconciler) confirmLoss(ctx context.Context, s *scope, servers []memoryServer) {
	for i := range servers {
		m := &servers[i]
		if !s.verdict.recorded || m.state != dmv1.ServerLost {
			continue
		}
		if known, err := r.isKnownLost(ctx, s, m); err != nil || !known {
			s.problems.Add(err)
			m.state, m.why = dmv1.ServerUnreachable, ""
			continue
		}
		pod := &corev1.Pod{}
		err := r.Live.Get(ctx, types.NamespacedName{Namespace: s.index.Namespace, Name: m.pod}, pod)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			s.problems.Add(err)
			m.state, m.why = dmv1.ServerUnreachable, ""
		case !podstate.Going(pod) && !podstate.Ended(pod) && m.why == podGone:
			m.state, m.why = dmv1.ServerUnreachable, ""
		}
	}
}

// isKnownLost asks the API server whether the record still says of a server that is taken for lost
// what was judged by, and whether the other pods that it names are gone. A cache that is behind may
// name a pod whose volume went on elsewhere, and of a pool in StateConflict it is not known who has
// the volume.
func (r *Reconciler) isKnownLost(ctx context.Context, s *scope, m *memoryServer) (known bool, err error) {
	ordinal, number := build.MemoryServerVolume(m.id)
	if ordinal >= len(s.memoryPools) || s.memoryPools[ordinal].pool == nil {
		return true, nil
	}
	p := &s.memoryPools[ordinal]
	pool := &dmv1.DMMemoryPool{}
	switch err := decision.ReadKnown(ctx, r.Live, client.ObjectKeyFromObject(p.pool), pool); {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, err
	}
	now, err := volume.RecordOf(pool)
	if err != nil || !reflect.DeepEqual(now.Views[number], p.record.Views[number]) {
		return false, err
	}
	view, recorded := now.Views[number]
	if volume.IsPersistent(pool) && m.why == podGone {
		named := view.Named()
		if !recorded {
			named = []volume.Proc{{Pod: build.PodName(pool.Name, number)}}
		}
		for _, p := range named {
			if there, err := volume.IsThere(ctx, r.Live, pool, p); err != nil || there {
				return false, err
			}
		}
		return true, nil
	}
	if !recorded {
		return true, nil
	}
	for _, named := range view.Named()[1:] {
		pod := &corev1.Pod{}
		err := r.Live.Get(ctx, types.NamespacedName{Namespace: pool.Namespace, Name: named.Pod}, pod)
		if client.IgnoreNotFound(err) != nil || err == nil && string(pod.UID) == named.UID && !podstate.Ended(pod) {
			return false, client.IgnoreNotFound(err)
		}
	}
	return true, nil
}

// missingMemory says which memory servers an index that is to be made waits for; empty if for none.
func (s *scope) missingMemory() string {
	var missing []string
	for ordinal, p := range s.memoryPools {
		answering := 0
		for _, m := range s.verdict.servers {
			if n, _ := build.MemoryServerVolume(m.id); n == ordinal && m.state == dmv1.ServerReady {
				answering++
			}
		}
		if answering < int(p.pool.Spec.Servers) {
			missing = append(missing, fmt.Sprintf("%d of %d memory servers of pool %s answer", answering, p.pool.Spec.Servers, p.pool.Name)+podstate.UnfitPods(p.pods, p.problems)+startless(p.pods))
		}
	}
	return strings.Join(missing, ", ")
}

// startless says which pods do not start with their image, behind a sentence.
func startless(pods []*corev1.Pod) string {
	if why := podstate.ImageProblem(pods...); why != "" {
		return "; " + why
	}
	return ""
}

// unfitCompute says which compute servers cannot start on their nodes, and why.
func (s *scope) unfitCompute() string {
	var list []string
	for i := range s.compute {
		if c := &s.compute[i]; c.problem != "" && !podstate.Going(c.pod) {
			list = append(list, fmt.Sprintf("compute pod %s on node %s: %s", c.pod.Name, c.pod.Spec.NodeName, c.problem))
		}
	}
	return strings.Join(list, "; ")
}

// replacing says which pools are not through with the newest template or image; empty if all are.
func (s *scope) replacing() string {
	var list []string
	for _, p := range s.memoryPools {
		if p.pool == nil {
			continue
		}
		if c := apimeta.FindStatusCondition(p.pool.Status.Conditions, dmv1.ConditionPoolReady); c != nil && c.Reason == dmv1.ReasonReplacing {
			list = append(list, "memory pool "+p.pool.Name+": "+c.Message)
		}
	}
	for _, pool := range s.computePools {
		if slices.Contains(s.rewritten, pool.Name) || pool.Status.ObservedGeneration < pool.Generation {
			list = append(list, "compute pool "+pool.Name+" has not acted on its new specification yet")
		} else if c := apimeta.FindStatusCondition(pool.Status.Conditions, dmv1.ConditionPoolReady); c != nil && c.Reason == dmv1.ReasonReplacing {
			list = append(list, "compute pool "+pool.Name+": "+c.Message)
		}
	}
	return strings.Join(list, "; ")
}

// gatherCompute looks at the compute pods and asks their servers. A pool that is not there has
// none.
func (r *Reconciler) gatherCompute(ctx context.Context, s *scope) error {
	s.view.Desired, s.gathered = 0, r.Now()
	for ordinal, spec := range s.index.Spec.ComputePools {
		name := build.ComputePoolOf(s.index, spec)
		pool := &dmv1.DMComputePool{}
		switch err := r.Get(ctx, types.NamespacedName{Namespace: s.index.Namespace, Name: name}, pool); {
		case apierrors.IsNotFound(err) && spec.Template != nil:
			s.problems.Add(outcome.WaitFor(dmv1.ReasonWaitingForCompute, "compute pool "+name+" is being made", outcome.RequeueSoon))
			continue
		case apierrors.IsNotFound(err):
			s.problems.Add(outcome.WaitFor(dmv1.ReasonPoolMissing, "there is no DMComputePool "+name+": make it, with indexName: "+s.index.Name, outcome.RequeueSoon))
			continue
		case err != nil:
			return err
		case pool.Spec.IndexName != s.index.Name:
			s.problems.Add(outcome.WaitFor(dmv1.ReasonPoolMissing, fmt.Sprintf("DMComputePool %s is of index %s: make one with indexName: %s", name, pool.Spec.IndexName, s.index.Name), 0))
			continue
		}
		s.computePools = append(s.computePools, pool)
		s.view.Desired += int(pool.Spec.Replicas)
		pods, err := podstate.List(ctx, r, pool, dmv1.ComponentCompute)
		if err != nil {
			return err
		}
		for _, p := range pods {
			s.compute = append(s.compute, computeServer{pod: p, pool: name, ordinal: ordinal})
		}
	}
	s.computeSeen = true
	servers.Each(len(s.compute), func(i int) {
		c := &s.compute[i]
		if c.pod.Status.PodIP == "" || c.pod.Status.Phase != corev1.PodRunning || s.authority == nil {
			return
		}
		client, err := r.Dialer.Compute(servers.TargetOf(c.pod, config.PortRPC, s.authority))
		if err != nil {
			return
		}
		defer client.Close()
		c.described, err = client.Describe(ctx)
		if unfit := (*servers.Unfit)(nil); errors.As(err, &unfit) {
			c.problem = unfit.Why
		}
	})
	r.tellSettings(s)
	return nil
}
