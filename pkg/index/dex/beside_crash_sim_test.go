package dex_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// besideWorld is a world whose client-1 has loaded every second key, in more leaves than it has
// frames for, and dies after a part of its requests. All techniques but offloading are on.
func besideWorld(t *testing.T, seed uint64, part int, do func(o *owners, g *owned) error) error {
	o, err := dying(t, 2, "client-1", part, 0, 256, poolsim.Options{Servers: 1 + int(seed%2)})
	if err != nil {
		return err
	}
	if part == 0 {
		o.plan.Faults = nil
	}
	o.seed, o.r = 3*seed, rand.New(rand.NewPCG(seed, 9))
	o.w = simenv.New(simenv.Options{Seed: seed, MaxEvents: 5_000_000, Preempt: 6})
	o.c, err = poolsim.New(o.w, o.c.Options)
	if err != nil {
		return err
	}
	o.opts.Switches = map[string]bool{"offloading": false}
	return o.w.Run(func(p *simenv.Process) {
		o.main = p
		g := &owned{low: 0, high: moreKeys, start: simKey(0)}
		o.ranges = []*owned{g}
		if err := do(o, g); err != nil {
			o.w.Fail(err)
		}
	})
}

// load loads every second key, and reports whether the client lives.
func (o *owners) load(g *owned) (c *owner, alive bool, err error) {
	if !o.make() {
		return nil, false, nil
	}
	c = o.living[0]
	if err := o.moveTo(g, c); err != nil || g.by != c {
		return c, false, err
	}
	alive, err = o.in(c, "load", func() error {
		return c.x.BulkLoad(func(yield func(k, v []byte) bool) error {
			for n := uint64(0); n < g.high && yield(simKey(n), []byte("first")); n += 2 {
			}
			return nil
		}, 1)
	})
	return c, alive, err
}

// TestCrashInRivalry kills a client two sessions of which insert, or put, the same key at the same
// time, again and again, mostly into leaves without a frame. One of the two is told that it has
// inserted it: the next owner finds that one's value. Of two that were put, it finds the one that
// the client's own sessions found.
func TestCrashInRivalry(t *testing.T) {
	seeds, step := uint64(6), 11
	var early earlyCounts
	afterEachPart(t, seeds, step, func(t *testing.T, seed uint64, part int) (ended bool, err error) {
		err = besideWorld(t, seed, part, func(o *owners, g *owned) error {
			defer func() { early.add(o.early()) }()
			ended, err = o.rivalry(g)
			return err
		})
		return ended, err
	})
	t.Logf("records beside READs: %+v", early)
	if early.made == 0 || early.cancelled <= early.refused {
		t.Errorf("records beside READs: %+v: something never happened", early)
	}
}

// rivalry reports whether the client lived to the end.
func (o *owners) rivalry(g *owned) (ended bool, err error) {
	inserted := map[uint64]string{} // by whom
	c, alive, err := o.load(g)
	if err != nil {
		return false, err
	}
	if alive {
		group := env.NewWaitGroup(o.main)
		var turn [2]int
		for id := range turn {
			over := o.main.NewEvent()
			c.p.AtKill(over.Set) // as in owners.in
			c.p.Go("insert", func() {
				defer over.Set()
				if err := o.insertAll(c, id, &turn, inserted); err != nil {
					o.w.Fail(err)
				}
			})
			group.Go("wait", func() { over.Wait(env.Forever) })
		}
		group.Wait(env.Forever)
	}
	if c != nil && c.p.Dead() {
		o.died(c)
	} else if c != nil {
		g.by, ended = nil, true // as if it had died just now
		c.p.Kill()
		g.by = c
		o.died(c)
	}
	for len(o.living) == 0 {
		o.make()
	}
	next := o.living[0]
	if err := o.moveTo(g, next); err != nil {
		return false, err
	}
	_, err = o.in(next, "look", func() error {
		s, err := next.x.Session()
		if err != nil {
			return err
		}
		for n, value := range inserted { //env:real each key alone
			if got, err := s.Lookup(simKey(n), nil); err != nil || string(got) != value {
				return fmt.Errorf("key %d was inserted as %q, and is %q: %v", n, value, got, err)
			}
		}
		return s.Close()
	})
	return ended, err
}

// insertAll inserts keys that are not there, and puts others, in an order that both sessions have.
// Who comes first to a key waits for the other one.
func (o *owners) insertAll(c *owner, id int, turn *[2]int, inserted map[uint64]string) error {
	s, err := c.x.Session()
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(o.seed, 12))
	meet := func() {
		for turn[id]++; turn[1-id] < turn[id]; {
			c.p.Yield()
		}
	}
	for _, k := range r.Perm(moreKeys / 2)[:20] {
		meet()
		n, value := uint64(2*k+1), fmt.Sprint("by ", id)
		if k%2 == 0 {
			if err := s.Upsert(simKey(n-1), []byte(value)); err != nil {
				return err
			}
			meet()
			found, err := s.Lookup(simKey(n-1), nil)
			if err != nil {
				return err
			}
			inserted[n-1] = string(found)
			continue
		}
		switch err := s.Insert(simKey(n), []byte(value)); {
		case err == nil && inserted[n] != "":
			return fmt.Errorf("key %d was inserted twice", n)
		case err == nil:
			inserted[n] = value
		case !errors.Is(err, index.ErrExists):
			return err
		}
	}
	return s.Close()
}

// TestLogKeepsBesideRecords changes a key in a leaf without a frame, and keeps that leaf in use, so
// it is not evicted. Then changes of other keys fill the log several times, and the client dies. So
// the leaf was written back, or the log has its record still.
func TestLogKeepsBesideRecords(t *testing.T) {
	for seed := range uint64(10) {
		if err := besideWorld(t, seed, 0, (*owners).keepInUse); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func (o *owners) keepInUse(g *owned) error {
	c, _, err := o.load(g)
	if err != nil {
		return err
	}
	changed := map[uint64]string{}
	if _, err := o.in(c, "change", func() error {
		s, err := c.x.Session()
		if err != nil {
			return err
		}
		for n := uint64(0); n < moreKeys && len(changed) < 5; n += 14 {
			before, _, _ := dex.Beside(c.x)
			changed[n] = fmt.Sprint("now ", n)
			if err := s.Update(simKey(n), []byte(changed[n])); err != nil {
				return err
			}
			if after, _, _ := dex.Beside(c.x); after == before {
				delete(changed, n)
				continue
			}
			_, all := dex.LogUse(c.x)
			for i := range all / 10 { // records of more than 30 bytes
				for hot := uint64(0); hot <= n; hot += 14 {
					if changed[hot] == "" {
						continue
					}
					if _, err := s.Lookup(simKey(hot), nil); err != nil {
						return err
					}
				}
				if err := s.Upsert(simKey(moreKeys-2), fmt.Append(nil, i)); err != nil {
					return err
				}
			}
		}
		return s.Close()
	}); err != nil {
		return err
	}
	if len(changed) == 0 {
		made, refused, cancelled := dex.Beside(c.x)
		return fmt.Errorf("no record was appended beside a READ: %d, %d refused, %d cancelled; %+v", made, refused, cancelled, c.x.Stats())
	}
	c.p.Kill()
	o.died(c)
	o.make()
	next := o.living[0]
	if err := o.moveTo(g, next); err != nil {
		return err
	}
	_, err = o.in(next, "look", func() error {
		s, err := next.x.Session()
		if err != nil {
			return err
		}
		for n, value := range changed { //env:real each key alone
			if got, err := s.Lookup(simKey(n), nil); err != nil || string(got) != value {
				return fmt.Errorf("key %d was changed to %q, and is %q: %v", n, value, got, err)
			}
		}
		return s.Close()
	})
	return err
}
