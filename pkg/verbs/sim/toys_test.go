package sim_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// These toys prove that the adversary finds what it is for: each has a fault that people made in
// earnest, and is caught within a few hundred seeds; mended, it passes thousands.

const (
	caughtWithin = 400
	mendedPasses = 3000
)

// toy is a small protocol of several clients; right chooses the mended form. It returns what went
// wrong.
type toy struct {
	name  string
	menu  sim.Menu
	run   func(w *toyWorld, right bool) error
	flaws sim.Flaws // of the form that is not mended
}

var clients = []string{"client-0", "client-1", "client-2"}

var toys = append([]toy{
	{"BookendVersions", sim.Menu{}, bookends, sim.Flaws{}},
	{"UnlockBeforeWrite", sim.Menu{}, unlockBeforeWrite, sim.Flaws{}},
	{"ReleaseOfALockNotOwned", sim.Menu{Kinds: []sim.Kind{sim.Drop}, Processes: clients, Parts: 60, Most: 6}, releaseNotOwned, sim.Flaws{}},
	{"ReadsTakenForOrdered", sim.Menu{}, readsTakenForOrdered, sim.Flaws{}},
	{"UpdateInPlaceTornByACrash", sim.Menu{Kinds: []sim.Kind{sim.Crash}, Processes: clients[:1], Parts: 300, Most: 3}, tornByCrash, sim.Flaws{}},
	{"WriteToAWordOfAtomics", sim.Menu{}, writeToAtomics, sim.Flaws{}},
	{"LeaseWithoutCheckAfterwards", sim.Menu{Kinds: []sim.Kind{sim.Freeze}, Processes: clients[:1], Parts: 60, Most: 6}, leaseWithoutCheck, sim.Flaws{}},
}, mirrorToys...)

func TestAdversaryCatchesToys(t *testing.T) {
	for _, y := range toys {
		t.Run(y.name, func(t *testing.T) {
			for seed := range uint64(caughtWithin) {
				if err := y.play(seed, nil, false); err != nil {
					small := sim.Shrink(y.plan(seed), func(p *sim.Plan) bool { return y.play(seed, p, false) != nil })
					t.Logf("caught by seed %d: %v\nand by the plan %v", seed, err, small)
					if y.play(seed, small, false) == nil {
						t.Error("the plan that was shrunk does not fail")
					}
					return
				}
			}
			t.Errorf("not caught by %d seeds", caughtWithin)
		})
	}
}

func TestAdversaryLetsMendedToysPass(t *testing.T) {
	for _, y := range toys {
		n := uint64(mendedPasses)
		if y.flaws != (sim.Flaws{}) {
			n /= 4 // all of them are of one mechanism
		}
		t.Run(y.name, func(t *testing.T) {
			for seed := range n {
				if err := y.play(seed, nil, true); err != nil {
					t.Fatalf("seed %d: %v\nplan %v", seed, err, y.plan(seed))
				}
			}
		})
	}
}

func (y *toy) plan(seed uint64) *sim.Plan {
	return sim.NewPlan(simenv.New(simenv.Options{Seed: seed}).Faults(), y.menu)
}

// play runs the toy under a plan; nil = the seed's.
func (y *toy) play(seed uint64, plan *sim.Plan, right bool) (wrong error) {
	if plan == nil {
		plan = y.plan(seed)
	}
	world := simenv.New(simenv.Options{Seed: seed, MaxEvents: 1_000_000})
	o := sim.Options{Plan: plan}
	if !right {
		o.Flaws = y.flaws
	}
	w := &toyWorld{World: world, plan: plan, f: sim.New(world, o)}
	err := world.Run(func(p *simenv.Process) {
		w.main = p
		s, address, err := w.f.NewServer(verbs.ServerOptions{Admission: w, Memory: []verbs.Memory{
			{ID: verbs.RegionData, Bytes: make([]byte, 8192)}, {ID: verbs.RegionLocks, Bytes: make([]byte, 64)},
		}})
		if err != nil {
			w.Fail(err)
			return
		}
		w.server, w.address = s, address
		if wrong = y.run(w, right); wrong == nil {
			wrong = w.wrong
		}
	})
	return errors.Join(wrong, err)
}

// bookends: a record begins and ends with its version, and who reads the same one at both ends
// believes what is between. Mended: a checksum covers it.
func bookends(w *toyWorld, right bool) error {
	const size = 96
	stop := false
	w.together(func(c *player) {
		for v := uint64(1); v < 20; v++ {
			r := c.fill(0, size, v)
			binary.NativeEndian.PutUint64(r.Local[8:], uint64(crc32.ChecksumIEEE(r.Local[16:])))
			if !c.must(c.post(r)) {
				return
			}
		}
		stop = true
	}, func(c *player) {
		for !stop && c.must(c.post(c.read(0, size))) {
			if c.at(0) != c.at(size-8) {
				continue
			}
			if right && c.at(8) != uint64(crc32.ChecksumIEEE(c.buf[16:size])) {
				continue
			}
			for i := 16; i < size; i += 8 {
				if c.at(i) != c.at(16) {
					w.report("versions %d and %d, and inside %d and %d", c.at(0), c.at(size-8), c.at(16), c.at(i))
				}
			}
		}
	})
	return nil
}

// counter is incremented under a lock by several clients; release posts the new value and the
// release.
func counter(w *toyWorld, release func(c *player, v uint64) []verbs.Request) error {
	const each = 6
	one := func(c *player) {
		for range each {
			for c.must(c.post(c.swap(0, uint64(c.number)))) && c.old() != 0 {
				c.Yield()
			}
			if !c.must(c.post(c.read(0, 8))) || !c.must(c.post(release(c, c.at(0)+1)...)) {
				return
			}
		}
	}
	w.together(one, one, one)
	p := w.player(w.main, 5)
	if p.must(p.post(p.read(0, 8))) && p.at(0) != 3*each {
		return fmt.Errorf("the counter is %d after %d increments", p.at(0), 3*each)
	}
	return nil
}

// unlockBeforeWrite releases first and writes second. Mended: the release rides behind the WRITE.
func unlockBeforeWrite(w *toyWorld, right bool) error {
	return counter(w, func(c *player, v uint64) []verbs.Request {
		list := []verbs.Request{c.swap(uint64(c.number), 0), c.fill(0, 8, v)}
		if right {
			list[0], list[1] = list[1], list[0]
		}
		return list
	})
}

// releaseNotOwned: a client whose connection broke does not know whether it holds the lock, and
// releases it in any case. Mended: it releases only what is its own.
func releaseNotOwned(w *toyWorld, right bool) error {
	inside := 0
	one := func(c *player) {
		for range 8 {
			err := c.post(c.swap(0, uint64(c.number)))
			if err == nil && c.old() == 0 {
				if inside++; inside > 1 {
					w.report("%d clients hold the lock", inside)
				}
				err = c.post(c.read(0, 64))
				inside--
				if err == nil {
					err = c.post(c.fill(0, 64, 1), c.swap(uint64(c.number), 0))
				}
			}
			if err == nil {
				continue
			}
			c.connect()
			if right {
				err = c.post(c.swap(uint64(c.number), 0))
			} else if err = c.post(c.swap(0, 0)); err == nil && c.old() != 0 {
				err = c.post(c.swap(c.old(), 0))
			}
			if err != nil {
				c.connect() // broken again: somebody may wait for ever, which is no fault here
			}
		}
	}
	w.together(one, one, one)
	return nil
}

// readsTakenForOrdered reads flag and data in one list. Mended: one after the other, unless the
// provider orders them.
func readsTakenForOrdered(w *toyWorld, right bool) error {
	const flag, data = 0, 1024
	stop := false
	w.together(func(c *player) {
		for v := uint64(1); v < 20; v++ {
			d := c.fill(data, 8, v)
			f := verbs.Request{Op: verbs.Write, Remote: flag, Local: d.Local}
			if !c.must(c.post(d, f)) {
				return
			}
		}
		stop = true
	}, func(c *player) {
		for !stop {
			f := c.read(flag, 8)
			d := verbs.Request{Op: verbs.Read, Remote: data, Local: c.buf[8:16]}
			lists := [][]verbs.Request{{f, d}}
			if right && !c.conn.Capabilities().OrderedReads {
				lists = [][]verbs.Request{{f}, {d}}
			}
			for _, l := range lists {
				if !c.must(c.post(l...)) {
					return
				}
			}
			if c.at(8) < c.at(0) {
				w.report("the flag says %d, the data %d", c.at(0), c.at(8))
			}
		}
	})
	return nil
}

// tornByCrash updates a record in place. Mended: it writes the other of two places, then the word
// that says which.
func tornByCrash(w *toyWorld, right bool) error {
	const size = 64
	acked := uint64(0)
	w.together(func(c *player) {
		for v := uint64(1); v < 30; v++ {
			place := uint64(0)
			if right {
				place = v % 2 * size
			}
			list := []verbs.Request{c.fill(1024+place, size, v)}
			if right {
				binary.NativeEndian.PutUint64(c.word, place)
				list = append(list, verbs.Request{Op: verbs.Write, Remote: 0, Local: c.word})
			}
			if c.post(list...) != nil {
				return
			}
			acked = v
		}
	})
	w.server.Disconnect(func(p verbs.Peer) bool { return p.Client == 1 })
	p := w.player(w.main, 5)
	if !p.must(p.post(p.read(0, 8))) || !p.must(p.post(p.read(1024+p.at(0), size))) {
		return nil
	}
	first := p.at(0)
	for i := 8; i < size; i += 8 {
		if p.at(i) != first {
			return fmt.Errorf("the record is half of %d and half of %d", first, p.at(i))
		}
	}
	if first != acked && first != acked+1 {
		return fmt.Errorf("%d was acknowledged, the record is of %d", acked, first)
	}
	return nil
}

// writeToAtomics changes half of a word by WRITE while others add to the other half. Mended: it
// adds too.
func writeToAtomics(w *toyWorld, right bool) error {
	adder := func(c *player) {
		for range 20 {
			if !c.must(c.post(verbs.Request{Op: verbs.FetchAdd, Region: verbs.RegionLocks, Local: c.word, Add: 1})) {
				return
			}
		}
	}
	const upper = 4 // its bytes, on a little-endian machine
	w.together(adder, adder, func(c *player) {
		for v := uint64(1); v < 20; v++ {
			change := c.fill(upper, 8, v)
			change.Region, change.Local = verbs.RegionLocks, change.Local[:4]
			if right {
				change = verbs.Request{Op: verbs.FetchAdd, Region: verbs.RegionLocks, Local: c.word, Add: 1 << 32}
			}
			look := c.read(0, 8)
			look.Region = verbs.RegionLocks
			if !c.must(c.post(change)) || !c.must(c.post(look)) {
				return
			}
			if c.at(0)>>32 != v {
				w.report("the upper half is %d after it was made %d", c.at(0)>>32, v)
			}
		}
	})
	return nil
}

// leaseWithoutCheck: who holds a lease looks at the clock, reads, and answers what it read. The
// next owner changes the value once the lease is over. Mended: the clock is looked at again before
// the answer.
func leaseWithoutCheck(w *toyWorld, right bool) error {
	const end = 300 * time.Microsecond // of the lease
	acked := uint64(0)
	w.together(func(c *player) {
		for c.Now() < end {
			if !c.must(c.post(c.read(0, 8))) {
				return
			}
			if right && c.Now() >= end {
				return
			}
			if v := c.at(0); v < acked {
				w.report("the old owner answers %d after %d was acknowledged", v, acked)
			}
		}
	}, func(c *player) {
		c.Sleep(max(0, end-c.Now()))
		for v := uint64(1); v < 5 && c.must(c.post(c.fill(0, 8, v))); v++ {
			acked = v
		}
	})
	return nil
}
