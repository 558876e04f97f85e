package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/dmindex/dmindex/memserver/memservertest"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/partition"
)

// operator is one of two that overlap. It observes, asks partition.Step, and acts; it may die
// between any two actions.
func (w *ownWorld) operator(n int) {
	p := w.NewDrifting(fmt.Sprint("operator-", n))
	p.AtKill(func() {
		if !w.over {
			w.After(w.UpTo(2*time.Second), nil, func() { w.operator(n) })
		}
	})
	k := &path{w: w, p: p, name: p.Name()}
	memory := &operatorMemory{}
	p.Go("main", func() {
		for !w.over {
			p.Sleep(w.UpTo(500 * time.Millisecond))
			w.fenceGone(p, k)
			w.joinAll(p, k)
			v, ok := w.observe(p, k)
			begun := p.Now()
			for moved := false; ok; {
				v.Now, v.Memory, v.Rebalance = ownHaste*p.Now(), memory.maps, ownRebalance
				a, acted := w.act(p, k, v, memory)
				moved = moved || a.Swap != nil
				ok = acted && moved && (a.Swap != nil || a.Waiting != "") && len(a.Drain)+len(a.Delete) == 0 && w.follow(p, k, &v, begun)
			}
		}
	})
}

// mayDie ends an operator at times.
func (w *ownWorld) mayDie(p *simenv.Process) {
	if !w.quiet && !w.calm && w.OneIn(20) {
		p.Kill()
	}
}

// follow looks again at the map and at what is held, after a change, but not at the servers: that
// is how the stages of a change follow each other. false: that was enough.
func (w *ownWorld) follow(p *simenv.Process, k *path, v *partition.View, begun time.Duration) bool {
	p.Sleep(w.UpTo(ownFollowed / 4))
	return !w.over && p.Now()-begun < ownFollowed && w.observeHome(k, v)
}

// ownFollowed is how long an operator follows a change, at most: 2 s of its hasty time.
const ownFollowed = 2 * time.Second / ownHaste

// observe is what the operator sees.
func (w *ownWorld) observe(p *simenv.Process, k *path) (v partition.View, ok bool) {
	v = partition.View{Index: ownIndex, Keys: partition.Bytes, Desired: w.desired, Owned: true, Separate: w.separate()}
	if !w.observeHome(k, &v) {
		return v, false
	}
	for _, d := range w.pods {
		if d.gone && w.OneIn(2) {
			continue
		}
		s := partition.Observed{
			ID: d.id, Pod: d.name, RPC: d.name, RESP: d.name, Ready: d.ready, ReadyFor: ownHaste * (w.Now() - d.since), Gone: d.gone,
			Leaving: d.leaving, LeftFor: w.Now() - d.leftAt,
		}
		p.Sleep(w.UpTo(2 * time.Millisecond))
		if c := d.core; c != nil && !d.process.Frozen() {
			s.Answered, s.Identity, s.Generation, s.Draining = true, ownIndex, c.View.Generation(), c.ends.Load()
			s.Load = d.load
		}
		v.Servers = append(v.Servers, s)
	}
	return v, true
}

// observeHome is what the home server says: the map, and who holds what.
func (w *ownWorld) observeHome(k *path, v *partition.View) bool {
	encoded, err := k.Map(0, 0)
	if err != nil {
		return false
	}
	if len(encoded) > 0 {
		if v.Map, err = partition.Unmarshal(encoded); err != nil {
			w.Report("the map cannot be read: %v", err)
		}
	}
	held, err := k.Holdings(ownLimit)
	if err != nil {
		return false
	}
	v.Holdings = nil
	for _, h := range held {
		v.Holdings = append(v.Holdings, partition.Holding{Start: h.Start, End: h.End, Pod: h.Name, Orphan: h.Fenced, Settled: len(h.Inherits) == 0})
	}
	return true
}

// act does what the step says. false: the map was another one meanwhile, or could not be changed.
func (w *ownWorld) act(p *simenv.Process, k *path, v partition.View, memory *operatorMemory) (a partition.Actions, acted bool) {
	a, err := partition.Step(v)
	memory.maps = a.Memory
	if err != nil {
		w.Report("the operator's step: %v", err)
		return a, false
	}
	w.mayDie(p)
	if a.Swap != nil {
		encoded, err := a.Swap.Marshal(nil)
		if err != nil {
			w.Report("the operator's map: %v", err)
			return a, false
		}
		expected := uint64(0)
		if v.Map != nil {
			expected = v.Map.Generation
		}
		if k.call(1, ownLimit, func(b *memservertest.Bare) error { return b.SwapMap(ownIndex, expected, a.Swap.Generation, encoded) }) != nil {
			return a, false
		}
		w.counts.swaps++
		w.counts.lapses += lapses(v, a.Swap)
		w.swappedTo(v, a)
	}
	w.autoscale(p, v, a, memory)
	for _, s := range append(slices.Clone(a.Drain), a.Delete...) {
		w.mayDie(p)
		w.endPod(w.podOf(s.ID), w.calm || w.OneIn(2))
	}
	return a, true
}

// lapses is how many servers a map has lost since they had no lease, although their pods were
// there, and had not been called unready for long.
func lapses(v partition.View, next *partition.Map) (n int) {
	for _, s := range v.Servers {
		if v.Map == nil || s.Gone || s.Leaving || s.Answered || !s.Ready && s.ReadyFor >= partition.Grace {
			continue
		}
		_, was := v.Map.Server(s.ID)
		if _, is := next.Server(s.ID); was && !is {
			n++
		}
	}
	return n
}

// fenceGone fences the clients of pods that are gone, at the home last of those that the operators
// know, and then at those that joined meanwhile.
func (w *ownWorld) fenceGone(p *simenv.Process, k *path) {
	var ids []uint32
	if k.call(1, ownLimit, func(b *memservertest.Bare) error {
		ids = nil
		all, err := b.Clients(ownIndex, "")
		for _, c := range all {
			for _, d := range w.pods {
				if d.name == c.Name && d.gone && !c.Fenced {
					ids = append(ids, c.Number)
				}
			}
		}
		return err
	}) != nil || len(ids) == 0 {
		return
	}
	for i := len(w.memory) - 1; i >= 0; i-- {
		if w.memory[i].step == comes {
			continue
		}
		w.mayDie(p)
		if k.Fence(w.memory[i].id, ids, ownLimit) != nil {
			return
		}
	}
	w.fenceJoined(p, k, ids)
}
