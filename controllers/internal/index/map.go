package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/report"
	"github.com/dmindex/dmindex/controllers/internal/serverpod"
	"github.com/dmindex/dmindex/controllers/internal/servers"
	"github.com/dmindex/dmindex/pkg/partition"
)

// ownersWatched is how often an index is looked at whose ranges have owners: nobody tells the
// operator that one is without a lease.
const ownersWatched = 10 * time.Second

// divideKeys reads the partition map at the home server and does what partition.Step says. If keys
// are handed over after that, the index is followed (handovers.go): the next stage is made by what
// was gathered now, as soon as the home says that it can be. What the pods and the compute servers
// said is up to followed old then, and could be as old without that: whatever Step decides is safe
// with old observations.
func (r *Reconciler) divideKeys(ctx context.Context, s *scope) error {
	p, pod, described := s.memoryPod(s.verdict.servers[0])
	if described == nil {
		return outcome.WaitFor(dmv1.ReasonMemoryUnreachable, "the home of the partition map does not answer: "+names(s.verdict.servers[:1]), outcome.RequeueSoon)
	}
	return serverpod.WithMemory(&r.Base, pod, p.authority, func(home servers.Memory) error {
		s.observe(r.Now())
		r.tellTakeOvers(ctx, s)
		r.tellFullPool(s)
		s.earlier, s.following = s.waiting, false
		actions, version, err := r.divide(ctx, s, home)
		if err != nil || !s.view.Owned || len(actions.Drain)+len(actions.Delete) > 0 || actions.Swap == nil && actions.Waiting == "" {
			r.handovers.end(s.index.UID)
			return err
		}
		if actions.Swap != nil {
			s.moved = true
			next, err := partition.Step(s.view)
			// nothing was to be handed over
			if err == nil && next.Swap == nil && next.Waiting == "" {
				r.handovers.end(s.index.UID)
				return nil
			}
			s.waiting = cmp.Or(s.waiting, next.Waiting)
		}
		s.following = version != 0 && r.handovers.follow(s, servers.TargetOf(pod, config.PortControl, p.authority), version, func() time.Duration { return r.remembered.at(r.Now()) })
		return nil
	})
}

// divide does what partition.Step says of the map and the holdings as they are now, and returns the
// version of these; 0 if the home has none.
func (r *Reconciler) divide(ctx context.Context, s *scope, home servers.Memory) (actions partition.Actions, version uint64, err error) {
	reply, err := home.GetMap(ctx, decision.Identity(s.index))
	if err != nil {
		return actions, 0, err
	}
	if reply.Generation > 0 {
		if s.view.Map, err = partition.Unmarshal(reply.Map); err != nil {
			return actions, 0, fmt.Errorf("read the partition map: %w", err)
		}
	}
	if version, err = s.observeHoldings(ctx, home); err != nil {
		return actions, 0, err
	}
	remembered := r.remembered.get(s.index.UID)
	s.view.Now, s.view.Memory, s.view.Settle = r.remembered.at(r.Now()), remembered.maps, r.settle
	if actions, err = partition.Step(s.view); err != nil {
		return actions, 0, err
	}
	remembered.maps = actions.Memory
	r.remembered.put(s.index.UID, remembered)
	s.watch, s.mapAge, s.view.Memory = actions.Watch, actions.Memory.MapAge(s.view.Now), actions.Memory
	return actions, version, r.move(ctx, s, home, actions)
}

// observe makes the view of what was gathered.
func (s *scope) observe(now time.Time) {
	s.view.Index, s.view.Keys, s.view.Servers = decision.Identity(s.index), keyType(s.index), nil
	if s.view.Rebalance = rebalanceOf(s.index.Spec.Partitioning.Rebalance); s.index.Spec.Paused {
		s.view.Rebalance = partition.Rebalance{} // ranges move only where a server is gone
	}
	if longest := s.index.Spec.Key.MaxLength; longest != nil {
		s.view.KeyBytes = int(*longest)
	}
	s.view.AtomicPrefix = s.index.Spec.Partitioning.AtomicPrefix
	for i := range s.compute {
		c := &s.compute[i]
		is, since := podstate.Ready(c.pod)
		server := partition.Observed{
			ID: c.id(), Pod: c.pod.Name,
			RPC:   build.RPC(c.pod.Name, c.pool, s.index.Namespace),
			RESP:  build.RESP(c.pod.Name, c.pool, s.index.Namespace),
			Ready: is, ReadyFor: now.Sub(kube.Stamp(c.pod, "", since, now)),
			Gone:    podstate.Going(c.pod) || podstate.Ended(c.pod),
			Leaving: podstate.Leaving(c.pod),
		}
		if at, err := time.Parse(time.RFC3339, c.pod.Annotations[dmv1.AnnotationLeaving]); err == nil {
			server.LeftFor = now.Sub(kube.Stamp(c.pod, kube.Owner, at, now))
		}
		if d := c.described; d != nil {
			server.Answered = true
			server.Identity, server.Generation, server.Draining = d.Index, d.MapGeneration, d.Draining
			server.DataLost = d.DataLost != ""
			if d.Index == s.view.Index {
				server.Load = loadOf(d)
			}
		}
		s.view.Servers = append(s.view.Servers, server)
	}
	slices.SortFunc(s.view.Servers, func(a, b partition.Observed) int { return int(int64(a.ID) - int64(b.ID)) })
}

// observeHoldings adds who holds what, with designs whose ranges have owners: those whose servers
// say so, or of which anybody holds anything.
func (s *scope) observeHoldings(ctx context.Context, home servers.Memory) (version uint64, err error) {
	list, err := home.ListHoldings(ctx, s.view.Index)
	if err != nil && !errors.Is(err, servers.ErrNotOffered) {
		return 0, err
	}
	s.view.Holdings, s.fencePending, s.poolFull = holdingsOf(list.GetHoldings()), "", s.fullPool()
	s.view.Owned = len(s.view.Holdings) > 0
	for i := range s.compute {
		c := &s.compute[i]
		s.view.Owned = s.view.Owned || c.described.GetOwned()
		if s.fencePending == "" {
			s.fencePending = s.pendingFence(c)
		}
	}
	return list.GetVersion(), nil
}

// pendingFence says for which memory server a range waits that a compute server is to take over;
// empty if for none.
func (s *scope) pendingFence(c *computeServer) string {
	for _, r := range c.described.GetRanges() {
		for _, m := range s.verdict.servers {
			if r.Unfenced != 0 && uint32(m.id) == r.Unfenced {
				return fmt.Sprintf("keys %s wait for %s: %s", s.keys().span(r.Start, r.End), names([]memoryServer{m}), r.Reason)
			}
		}
	}
	return ""
}

// move does what was decided about the partition map and the servers that leave.
func (r *Reconciler) move(ctx context.Context, s *scope, home servers.Memory, actions partition.Actions) error {
	if s.waiting == "" {
		s.waiting = actions.Waiting
	}
	if actions.Swap != nil {
		if err := r.swap(ctx, s, home, actions); err != nil {
			return err
		}
	}
	reasons := map[string]string{}
	drained := make([]bool, len(actions.Drain))
	servers.Each(len(drained), func(i int) {
		server := actions.Drain[i]
		if s.logsDrain(r.Logged, server.Pod) {
			logf.FromContext(ctx).Info("drain compute server", "pod", server.Pod, "reason", "it leaves, and owns no keys any more")
		}
		done, err := r.drain(ctx, s, server)
		drained[i] = done && err == nil
	})
	for i, server := range actions.Drain {
		reasons[server.Pod] = "it leaves, and has finished what it had"
		if !drained[i] {
			s.waiting = "compute server " + server.Pod + " finishes what it has"
			continue // the others need not wait for it
		}
		actions.Delete = append(actions.Delete, server)
	}
	for _, server := range actions.Delete {
		for _, c := range s.compute {
			if c.pod.Name == server.Pod {
				if err := serverpod.Delete(ctx, &r.Base, c.pod, cmp.Or(reasons[server.Pod], withoutDrain(s.view, server))); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (r *Reconciler) swap(ctx context.Context, s *scope, home servers.Memory, actions partition.Actions) error {
	encoded, err := actions.Swap.Marshal(nil)
	if err != nil {
		return err
	}
	expected := uint64(0)
	if s.view.Map != nil {
		expected = s.view.Map.Generation
	}
	err = home.SwapMap(ctx, s.view.Index, expected, actions.Swap.Generation, encoded)
	if errors.Is(err, servers.ErrOtherMap) {
		return outcome.WaitFor(dmv1.ReasonMoving, "the partition map was changed by another operator", outcome.RequeueSoon)
	}
	if err != nil {
		return err
	}
	r.tellMap(s, expected, actions)
	logf.FromContext(ctx).Info("change partition map", "generation", actions.Swap.Generation, "from", expected, "servers", len(actions.Swap.Servers),
		"ranges", len(actions.Swap.Ranges), "moves", len(actions.Moves), "planned", len(actions.Swap.Planned), "reason", cmp.Or(actions.Reason, anotherPlan))
	s.view.Map = actions.Swap
	return nil
}

// drain has a leaving server finish what it has.
func (r *Reconciler) drain(ctx context.Context, s *scope, server partition.Observed) (done bool, err error) {
	for _, c := range s.compute {
		if c.pod.Name != server.Pod {
			continue
		}
		client, err := r.Dialer.Compute(servers.TargetOf(c.pod, config.PortRPC, s.authority))
		if err != nil {
			return false, err
		}
		defer client.Close()
		unfinished, err := client.Drain(ctx)
		return unfinished == 0, err
	}
	return true, nil
}

// logsDrain reports whether it was not logged yet that a server is drained.
func (s *scope) logsDrain(l *report.Logged, pod string) bool {
	for _, c := range s.compute {
		if c.pod.Name == pod {
			return l.Once(c.pod.UID, "drain")
		}
	}
	return false
}

// withoutDrain says why a server is deleted that was not drained.
func withoutDrain(v partition.View, server partition.Observed) string {
	switch {
	case server.Answered && server.Identity != v.Index:
		return "it serves what the index was before data was lost"
	case server.LeftFor > partition.FarewellLimit:
		return "it leaves, and took too long"
	}
	return "it leaves, and has nothing to finish"
}
