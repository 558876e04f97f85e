package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/memserver/memservertest"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/keyrange"
	"github.com/dmindex/dmindex/pkg/partition"
	"github.com/dmindex/dmindex/pkg/pool"
)

// pod is a compute server over the lives of its process.
type pod struct {
	id      uint32
	name    string
	process *simenv.Process
	core    *Engine // nil while it does not run
	leaving bool
	leftAt  time.Duration
	gone    bool            // it is deleted
	guarded bool            // its processes lock its guard before they do anything, most of them
	holds   bool            // this one did
	noted   map[uint32]bool // clients that stand in the guard
	twin    bool            // it is an earlier process of one that goes on
	stood   bool            // since then it stood still once, in the middle of a write
	ready   bool
	since   time.Duration // of ready, as the world's time
	load    *partition.Load
}

// newPod starts one more.
func (w *ownWorld) newPod() {
	w.lastPod++
	d := &pod{id: w.lastPod, name: fmt.Sprint("pod-", w.lastPod), since: w.Now(), guarded: !w.OneIn(4), noted: map[uint32]bool{}}
	d.holds = d.guarded
	w.pods = append(w.pods, d)
	w.runPod(d)
}

// runPod starts a process of a pod.
func (w *ownWorld) runPod(d *pod) {
	p := w.NewDrifting(d.name)
	d.process = p
	p.AtKill(func() {
		if w.isTwin(p) {
			return
		}
		d.core, d.load = nil, nil
		w.setReady(d, false)
		if !d.gone {
			w.counts.deaths++
			w.After(w.UpTo(2*time.Second), nil, func() { w.runNext(d) })
		}
	})
	p.Go("main", func() {
		k := &path{w: w, p: p, name: d.name, pod: d.id}
		if d.holds {
			k.guard = &simGuard{w, d}
		}
		var c *Engine
		c = New(w.withSets(Options{
			Env: p, Index: &config.Index{Identity: ownIndex, KeyType: config.KeyBytes, MaxKeyBytes: 8, MaxValueBytes: ownMaxValue}, Self: d.id,
			Open:  func() (ownership.Opened, error) { return w.openIndex(p, k, c.Sessions) },
			Limit: ownLimit, MaxSessions: 3, MaxWaiting: 64, HeldMost: w.load.held, Log: slog.New(joins{slog.DiscardHandler, &w.load.joined}),
		}))
		c.Peers = &simPeers{w, p}
		c.SetCommands(simCommands{})
		d.core = c
		p.Go("engine", c.Sessions.Run)
		p.Go("follow", func() { c.Follow(k) })
		w.collectAt(p, c)
		for !w.over && !w.isTwin(p) {
			w.setReady(d, c.Ready() == nil)
			d.measure()
			p.Sleep(200 * time.Millisecond)
		}
	})
}

// setReady notes whether a pod is ready. Requests to one that is not do not count as failed, so one
// that was ready stays so while there is no trouble.
func (w *ownWorld) setReady(d *pod, ready bool) {
	if d.ready != ready {
		if !ready && w.begun && w.calm && !w.doom.only && !w.quiet && !d.gone {
			w.Report("%s is not ready any more, though there was no trouble", d.name)
		}
		d.ready, d.since = ready, w.Now()
	}
}

// endPod deletes a pod; gently it is told, and waited for.
func (w *ownWorld) endPod(d *pod, gently bool) {
	if d.gone {
		return
	}
	d.gone = true
	p, c := d.process, d.core
	if c == nil || !gently || p.Dead() {
		p.Kill()
		return
	}
	p.Go("terminate", func() {
		c.Drain()
		c.End()
		c.Sessions.Halt(20 * time.Second)
		for n := 0; n < 5000 && w.serving[p] > 0; n++ { // answers are on their way
			p.Sleep(time.Millisecond)
		}
		p.Kill()
	})
}

func (w *ownWorld) podOf(id uint32) *pod {
	for _, d := range w.pods {
		if d.id == id {
			return d
		}
	}
	return nil
}

// lose lets the node of a pod be lost: it is deleted, but its process may go on for a while, and
// may not reach some memory servers.
func (w *ownWorld) lose(d *pod) {
	if w.OneIn(3) {
		w.endPod(d, false)
		return
	}
	few := []int{1, 1, 1, 2, 3}[w.Random.IntN(5)]
	for _, m := range w.memory {
		if w.OneIn(few) {
			w.cuts = append(w.cuts, cut2{d.name, m.id})
		}
		if m.id > 1 && w.OneIn(w.kinds) {
			m.mute = w.Now() + 2*ownLease + w.UpTo(4*ownLease)
		}
	}
	if w.kinds > 1 && w.OneIn(2) {
		w.After(w.UpTo(ownLease), nil, func() { w.freeze(d.process, w.UpTo(4*ownLease)) })
	}
	d.gone = true
	w.After(w.UpTo(5*ownLease), nil, d.process.Kill)
}

// twin lets the process of a pod be lost from sight: it goes on for a while, and the next one
// begins; at once, or if the pod has a guard, when that is free.
func (w *ownWorld) twin(d *pod) {
	if d.core == nil || d.process.Dead() {
		return
	}
	old := *d
	old.gone, old.twin = true, true
	w.twins = append(w.twins, &old)
	w.After(w.UpTo(3*ownLease), nil, old.process.Kill)
	if w.OneIn(2) {
		w.After(w.UpTo(ownLease), nil, func() { w.freeze(old.process, w.UpTo(2*ownLease)) })
	}
	d.core, d.load = nil, nil
	w.setReady(d, false)
	w.runNext(d)
}

// runNext starts the next process of a pod, which waits for its guard as long as an earlier process
// has it. One of six finds that its guard is of no use, and goes on without.
func (w *ownWorld) runNext(d *pod) {
	d.holds = d.guarded && !w.OneIn(6)
	var next func()
	next = func() {
		switch {
		case d.gone || w.over:
		case d.holds && w.wrong != takenForDead && w.hasTwin(d):
			w.After(w.UpTo(100*time.Millisecond), nil, next)
		default:
			w.runPod(d)
		}
	}
	next()
}

// hasTwin reports whether an earlier process of a pod goes on that has its guard, isTwin whether a
// process is one.
func (w *ownWorld) hasTwin(d *pod) bool {
	return slices.ContainsFunc(w.twins, func(t *pod) bool { return t.id == d.id && t.holds && !t.process.Dead() })
}

// simGuard is the guard of a pod, held by the process that has it.
type simGuard struct {
	w *ownWorld
	d *pod
}

// Note implements pool.Guard.
func (g *simGuard) Note(_ string, client uint32) error {
	if g.w.OneIn(20) {
		return errors.New("no space left on the simulated device")
	}
	g.d.noted[client] = true
	return nil
}

// Confirms implements pool.Guard.
func (g *simGuard) Confirms(_ string, client uint32) bool {
	return g.d.noted[client] || g.w.wrong == takenForDead
}

func (w *ownWorld) isTwin(p *simenv.Process) bool {
	return slices.ContainsFunc(w.twins, func(t *pod) bool { return t.process == p })
}

// running are the pods that have a process: at times only those that should not.
func (w *ownWorld) running() (all []*pod) {
	lost := w.OneIn(2)
	for _, d := range slices.Concat(w.pods, w.twins) {
		if d.twin && d.process.Dead() {
			continue
		}
		if d.core != nil && (!lost || d.gone) && (w.kinds > 1 || !d.process.Frozen()) {
			all = append(all, d)
		}
	}
	if lost && len(all) == 0 {
		return w.living()
	}
	return all
}

func (w *ownWorld) podNamed(name string) *pod {
	for _, d := range w.pods {
		if d.name == name {
			return d
		}
	}
	return nil
}

// living are the pods that are not deleted.
func (w *ownWorld) living() (all []*pod) {
	for _, d := range w.pods {
		if !d.gone {
			all = append(all, d)
		}
	}
	return all
}

// ask runs operations at a compute server on behalf of process p. nil: no answer came.
func (w *ownWorld) ask(p *simenv.Process, d *pod, ops []*rpcv1.Operation, forwarded bool, limit time.Duration) (out []*rpcv1.Outcome) {
	p.Sleep(w.UpTo(time.Millisecond))
	c, there := d.core, d.process
	if c == nil || there.Dead() {
		o := &rpcv1.Outcome{Code: rpcv1.Outcome_UNAVAILABLE, Message: d.name + " is not there"}
		return fill(make([]*rpcv1.Outcome, len(ops)), o)
	}
	done := p.NewEvent()
	w.asked++
	w.serving[there]++
	there.Go("request", func() {
		answer := w.run(there, c, ops, forwarded, min(limit, ownLimit))
		there.Sleep(w.UpTo(time.Millisecond))
		out = answer
		done.Set()
		w.serving[there]--
	})
	if !done.Wait(limit + 100*time.Millisecond) {
		return nil
	}
	return out
}

// simPeers is the way to other compute servers.
type simPeers struct {
	w *ownWorld
	p *simenv.Process
}

func (s *simPeers) Keep([]partition.Server) {}

func (s *simPeers) Do(_ context.Context, to partition.Server, ops []*rpcv1.Operation, limit time.Duration, early func(some []*rpcv1.Outcome)) ([]*rpcv1.Outcome, error) {
	out := s.w.ask(s.p, s.w.podOf(to.ID), ops, true, limit)
	if out == nil {
		return nil, &Failure{Code: rpcv1.Outcome_UNKNOWN, Message: "it did not answer"}
	}
	if early != nil && s.w.OneIn(2) {
		some := slices.Clone(out)
		for n := range some {
			if s.w.OneIn(2) {
				some[n] = &rpcv1.Outcome{Code: rpcv1.Outcome_LATER}
			}
		}
		early(some)
	}
	return out, nil
}

func (s *simPeers) Start(to partition.Server, ops []*rpcv1.Operation, limit time.Duration, ended Waker) Started {
	return startBy(s.p, s, to, ops, limit, ended)
}

// program asks for keys all the time: with DEX often for several at once, whose answers wait for
// the log together.
func (w *ownWorld) program(n int) {
	p := w.NewProcess(fmt.Sprint("program-", n))
	p.Go("main", func() {
		for value := uint32(n + 1); !w.quiet; {
			p.Sleep(w.pause())
			all := w.running()
			if len(all) == 0 {
				continue
			}
			d := all[w.Random.IntN(len(all))]
			if last := w.log.lastPod; slices.Contains(all, last) && w.OneIn(3) {
				d = last
			}
			var batch []asked
			for more := true; more; more = w.dex != nil && len(batch) < 8 && w.OneIn(2) {
				batch = append(batch, w.someOperation(d, value))
				value += 16
			}
			_ = w.requests(p, n, d, batch, 2*ownLimit)
		}
	})
}

// someOperation is what a program asks for; value is written by nothing else.
func (w *ownWorld) someOperation(d *pod, value uint32) asked {
	write := w.writes()
	if d.gone && w.kinds > 1 {
		write = w.OneIn(12) // its cache may do for lookups
	}
	in := asked{key: w.someKey(), kind: rpcv1.Operation_LOOKUP}
	if !write {
		if w.dex != nil && w.OneIn(2) { // perhaps it is not durable yet
			in.key = w.log.lastKey
		}
		return in
	}
	in.kind, in.value = rpcv1.Operation_UPSERT, value
	if w.dex == nil {
		return in
	}
	w.log.lastKey, w.log.lastPod = in.key, d
	switch w.Random.IntN(8) {
	case 0:
		in.kind, in.value = rpcv1.Operation_DELETE, 0
	case 1:
		in.kind, in.value = rpcv1.Operation_REMOVE, 0
	case 4:
		in.kind = rpcv1.Operation_EXCHANGE
	case 2:
		in.kind = rpcv1.Operation_INSERT
	case 3:
		in.kind = rpcv1.Operation_UPDATE
	}
	return in
}

// isGranted is told of every answer to a claim by a map's generation: only who owns keys by the map
// is granted them, and no epoch is granted twice. before is the map that was there before the
// claim: there may have been newer ones until it was answered.
func (w *ownWorld) isGranted(b *memservertest.Bare, to uint32, generation uint64, before []byte, got pool.Acquired) {
	m, err := partition.Unmarshal(before)
	if err == nil && m.Generation < generation {
		_, after, _ := b.Map(ownIndex)
		if m, err = partition.Unmarshal(after); err == nil && m.Generation > generation {
			return // it was there in between
		}
	}
	if err != nil {
		return
	}
	for _, h := range got.Own {
		if w.granted[h.Epoch] {
			continue
		}
		w.memory[0].record(func() { delete(w.granted, h.Epoch) })
		w.granted[h.Epoch] = true
		w.counts.grants++
		w.counts.orphans += len(h.Inherits)
		w.doom.most = max(w.doom.most, len(h.Inherits))
		for i := range m.Ranges {
			s := m.Span(i)
			if _, _, ok := keyrange.Intersect(s.Start, s.End, h.Start, h.End); ok && s.Owner != to {
				w.Report("keys %s are granted to server %d; by the map of generation %d they are server %d's", partition.Interval(h.Start, h.End), to, m.Generation, s.Owner)
			}
		}
	}
}

var _ env.Env = (*simenv.Process)(nil)
