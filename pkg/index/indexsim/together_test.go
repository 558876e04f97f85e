package indexsim_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// popular is a key that all sessions of some clients change and look up. The value is the number of
// the write.
type popular struct {
	design       index.Design
	clock        int64
	called, done []int64 // of each write; done is when it was answered, or first read; 0 = neither
	newest       int64   // the last of those that are answered was called then
	combined     uint64
	delegated    uint64
}

func (p *popular) tick() int64 { p.clock++; return p.clock }

func (p *popular) write(change func(value []byte) error) error {
	n := len(p.called)
	p.called, p.done = append(p.called, p.tick()), append(p.done, 0)
	if err := change(binary.BigEndian.AppendUint64(nil, uint64(n))); err != nil {
		return err
	}
	if p.tick(); p.done[n] == 0 {
		p.done[n] = p.clock
	}
	p.newest = max(p.newest, p.called[n])
	return nil
}

// read fails if the value is of a write that took effect before another one began which is
// answered.
func (p *popular) read(lookup func() ([]byte, error)) error {
	newest := p.newest
	v, err := lookup()
	if err != nil {
		return err
	}
	n := binary.BigEndian.Uint64(v)
	at := p.done[n]
	if at != 0 && at < newest {
		return fmt.Errorf("a lookup finds write %d, which took effect before %d: a write that began at %d was answered before the lookup", n, at, newest)
	}
	if p.tick(); at == 0 {
		p.done[n] = p.clock
	}
	return nil
}

// TestCombinedWritesAndReads: sessions of two clients change one key and look it up. A write that
// is answered was written, also if another session of its client was to write it, and no read
// returns what was there before a write that was answered before the read began, also if it is
// another session's READ.
func TestCombinedWritesAndReads(t *testing.T) {
	eachDesign(t, func(t *testing.T, d index.Design, _ bool) { combinedWritesAndReads(t, d) })
}

func combinedWritesAndReads(t *testing.T, d index.Design) {
	var combined, delegated uint64
	for seed := range uint64(12) {
		x := &popular{design: d}
		if err := x.run(seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		combined += x.combined
		delegated += x.delegated
	}
	t.Logf("%d changes and %d READs made for others", combined, delegated)
	if combined == 0 && slices.Contains(d.Switches, "writeCombining") {
		t.Error("no session made the change of another one")
	}
	if delegated == 0 && invariants.Enabled { // else only where READs stand in line
		t.Error("no session made the READ of another one")
	}
}

func (x *popular) run(seed uint64) error {
	const clients, sessions, each = 2, 5, 12
	w := simenv.New(simenv.Options{Seed: seed, Preempt: 6, MaxEvents: 5_000_000})
	whole := []int{8, 1024}[seed/2%2] // some designs then give values others in place
	plan := &sim.Plan{
		Capabilities: verbs.Capabilities{MaskedAtomics: seed%2 == 0, WholeWrite: whole, WholeAlways: whole > 8},
		Tear:         1 + int(seed)%4, Reorder: true, Delay: 300, Gap: 300,
	}
	c, err := poolsim.New(w, poolsim.Options{Servers: 1 + int(seed)%2, Locks: 64, Fabric: sim.Options{Plan: plan}})
	if err != nil {
		return err
	}
	key := []byte("popular")
	open := func(p *simenv.Process) (index.Index, error) {
		pl, err := c.Open(p)
		if err != nil {
			return nil, err
		}
		return x.design.Open(pl, index.Options{MaxKeyBytes: 16, MaxValueBytes: 16, CacheBytes: crashCache})
	}
	return w.Run(func(p *simenv.Process) {
		fail := func(err error) {
			if err != nil {
				w.Fail(err)
			}
		}
		first, err := open(p)
		if err != nil {
			fail(err)
			return
		}
		s, err := first.Session()
		if err != nil {
			fail(err)
			return
		}
		fail(x.write(func(v []byte) error { return s.Insert(key, v) }))
		g := env.NewWaitGroup(p)
		for i := range clients {
			proc, done := w.NewProcess(fmt.Sprint("client-", i)), p.NewEvent()
			proc.Go("main", func() {
				defer done.Set()
				ix, err := open(proc)
				if err != nil {
					fail(err)
					return
				}
				all := env.NewWaitGroup(proc)
				for range sessions {
					all.Go("session", func() { fail(x.session(ix, key, each)) })
				}
				all.Wait(env.Forever)
				x.combined += ix.Stats().Combined
				x.delegated += ix.Stats().Delegated
			})
			g.Go("wait for a client", func() { done.Wait(env.Forever) })
		}
		g.Wait(env.Forever)
		fail(x.read(func() ([]byte, error) { return s.Lookup(key, nil) }))
	})
}

func (x *popular) session(ix index.Index, key []byte, each int) error {
	s, err := ix.Session()
	if err != nil {
		return err
	}
	s.SetLimit(time.Minute)
	for i := range each {
		switch i % 4 {
		case 0:
			err = x.write(func(v []byte) error { return s.Update(key, v) })
		case 2:
			err = x.write(func(v []byte) error {
				return s.Modify(key, func([]byte, bool) ([]byte, index.Action) { return v, index.Put })
			})
		}
		if err == nil {
			err = x.read(func() ([]byte, error) { return s.Lookup(key, nil) })
		}
		if err != nil {
			return err
		}
	}
	return s.Close()
}
