package engine

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/pkg/autoscale"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/partition"
)

// Load in the world of ownersim_world_test.go: what programs ask for is skewed in more than a third
// of the runs, and in a quarter of them the operator chooses how many compute servers there are.
// What decides is real: the sample of each server, partition.Step and autoscale.Decide. The
// operators' clocks run ten times as fast as the world, as do the times for which pods are ready.

const (
	ownHaste = 10
	hotKeys  = 3
)

// Under this load ranges move, and pods come and go.
var (
	ownRebalance = partition.Rebalance{MaxShare: 150, MinInterval: 20 * time.Second}
	ownScaling   = autoscale.Spec{Min: 1, Max: 4, OperationsPerSecond: 30, Down: 30 * time.Second}
)

// operatorMemory is lost when an operator dies.
type operatorMemory struct {
	maps partition.Memory
	auto autoscale.Memory
}

// loadWorld is how programs ask.
type loadWorld struct {
	hot    int  // from this key on hotKeys are asked for most of the time; negative: all alike
	auto   bool // operators choose how many pods there are
	held   int  // holdings that a server has before it joins some
	slowly bool // programs take their time

	swapped                 time.Duration // when the map changed last
	leveled, scaled, joined int
}

func (w *ownWorld) newLoadWorld() {
	w.load.hot = -1
	if w.calm || w.OneIn(3) {
		w.load.hot = w.Random.IntN(toyKeys - hotKeys + 1)
	}
	w.load.auto = w.OneIn(4)
	w.load.held = 1 + w.Random.IntN(3)
}

// joins is a handler that counts how often compute servers join ranges.
type joins struct {
	slog.Handler
	n *int
}

// Enabled implements slog.Handler.
func (j joins) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (j joins) Handle(_ context.Context, r slog.Record) error {
	if r.Message == ownership.JoinsRanges {
		*j.n++
	}
	return nil
}

// rare makes trouble rarer in runs in which something follows from load, which takes a while.
func (w *ownWorld) rare(d time.Duration) time.Duration {
	if w.load.hot >= 0 || w.load.auto {
		return 4 * d
	}
	return d
}

// someKey is a key that a program asks for.
func (w *ownWorld) someKey() int {
	each := w.keys() / toyKeys // key of the toy
	if w.load.hot >= 0 && !w.OneIn(5) {
		return w.load.hot*each + w.Random.IntN(hotKeys*each)
	}
	return w.Random.IntN(w.keys())
}

// pause is how long a program waits before it asks.
func (w *ownWorld) pause() time.Duration {
	if w.load.slowly {
		return w.UpTo(800 * time.Millisecond)
	}
	if w.load.hot >= 0 || w.load.auto {
		return w.UpTo(40 * time.Millisecond)
	}
	return w.UpTo(100 * time.Millisecond)
}

// writes reports whether a program writes. Logs are never emptied, so where much is asked for,
// little is written.
func (w *ownWorld) writes() bool {
	if w.load.hot >= 0 || w.load.auto {
		return w.OneIn(6)
	}
	return w.OneIn(2)
}

// measure makes a pod say its load. The pod's process runs it.
func (d *pod) measure() {
	r := d.core.Sessions.load.report(d.core.Sessions.Stats())
	d.load = &partition.Load{Rate: r.Rate}
	for _, k := range r.Keys {
		d.load.Keys = append(d.load.Keys, partition.KeyLoad{Key: k.Key, Rate: k.Rate})
	}
}

// swappedTo judges a change of the map that was made because of load: nobody moves ranges for that
// soon after another change, unless the map was made for no load.
func (w *ownWorld) swappedTo(v partition.View, a partition.Actions) {
	since := (w.Now() - w.load.swapped) * ownHaste
	w.load.swapped = w.Now()
	if !strings.Contains(a.Reason, "mean load") {
		return
	}
	w.load.leveled++
	if v.Map.ByWidth(partition.Options{Keys: v.Keys}) {
		return
	}
	if since < ownRebalance.MinInterval*9/10 { // clocks drift
		w.Report("ranges move since %s, %v after the map changed last", a.Reason, since)
	}
}

// autoscale chooses how many pods there shall be.
func (w *ownWorld) autoscale(p *simenv.Process, v partition.View, a partition.Actions, m *operatorMemory) {
	if !w.load.auto || w.quiet || !w.begun { // before, nobody would make the pods
		return
	}
	o := autoscale.Observed{Now: ownHaste * p.Now(), Replicas: w.desired}
	staying, settled := 0, a.Waiting == "" && v.Map != nil && len(v.Map.Planned) == 0 && a.Swap == nil
	for _, s := range v.Servers {
		if s.Gone {
			continue
		}
		if s.Leaving {
			settled = false
		} else {
			staying++
			settled = settled && s.Ready
		}
		if s.Load != nil {
			o.Rate += s.Load.Rate
			if !s.Leaving {
				o.Said++
			}
		}
	}
	o.Settled = settled && staying == o.Replicas
	n, reason, next := autoscale.Decide(ownScaling, o, m.auto)
	m.auto = next
	if n == o.Replicas {
		return
	}
	if n < o.Replicas && o.Said < o.Replicas {
		w.Report("from %d to %d pods (%s), when %d said nothing", o.Replicas, n, reason, o.Replicas-o.Said)
	}
	w.mayDie(p)
	w.desired = n
	w.load.scaled++
}
