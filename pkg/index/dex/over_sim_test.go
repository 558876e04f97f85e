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
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// TestCrashOverEntries kills a client after parts of its requests while it puts values over those
// of the same keys and writes leaves back, so between any two words of an entry. It owns the keys
// on both sides of a range's end, which lie in one leaf. Two others take one side each; the first
// of them may die in that, and writes while the second one takes. They find every acknowledged
// change. See afterEachPart.
func TestCrashOverEntries(t *testing.T) {
	seeds, step := uint64(8), 17
	countMixed(t, seeds, step, func(seed uint64, part int) (bool, *owners, error) {
		return overEntries(t, seed, fmt.Sprint("client-", 1+seed%4/3), sim.Crash, part)
	})
}

// TestRestartOverEntries kills the memory server's process in the place of the first client, whose
// WRITEs are whole otherwise, as over tcp; its memory stays. The client cannot go on then.
func TestRestartOverEntries(t *testing.T) {
	seeds, step := uint64(4), 13
	countMixed(t, seeds, step, func(seed uint64, part int) (bool, *owners, error) {
		return overEntries(t, seed, "client-1", sim.Restart, opened+part)
	})
}

// opened is how many parts a client has at most until it owns both ranges.
const opened = 300

// countMixed does runs, and looks whether they meet mixed slots.
func countMixed(t *testing.T, seeds uint64, step int, run func(seed uint64, part int) (bool, *owners, error)) {
	t.Helper()
	var within, locked int
	all := afterEachPart(t, seeds, step, func(_ *testing.T, seed uint64, part int) (bool, error) {
		ended, o, err := run(seed, part)
		if o != nil {
			w, l := o.unmixed()
			within, locked = within+w, locked+l
		}
		return ended, err
	})
	t.Logf("%d slots were mixed, %d of them in leaves with keys of both ranges", within+locked, locked)
	if all && (within == 0 || locked == 0) {
		t.Error("that is not enough of both: this tests too little")
	}
}

func (o *owners) unmixed() (within, locked int) {
	for _, c := range o.all {
		if c.x != nil {
			w, l := dex.Unmixed(c.x)
			within, locked = within+w, locked+l
		}
	}
	return within, locked
}

// overKeys lie in few leaves, a half of them in each range.
const overKeys = 24

// overEntries is a run with one fault, after a part of a client.
func overEntries(t *testing.T, seed uint64, client string, kind sim.Kind, part int) (ended bool, o *owners, err error) {
	o, err = dying(t, seed, client, part, overKeys, 512, poolsim.Options{Servers: 1}, func(n *sim.Plan) {
		n.Capabilities.WholeWrite, n.Capabilities.WholeAlways, n.Tear = 8, false, 24
		if n.Faults[0].Kind = kind; kind == sim.Restart {
			n.Capabilities.WholeWrite = 4096
		}
	})
	if err != nil {
		return false, nil, err
	}
	if o.opts.CacheBytes = 1 << 20; seed%3 == 2 {
		o.opts.CacheBytes = 3 << 10
	}
	if seed/2%2 == 1 {
		o.opts.Uint64, o.opts.MaxKeyBytes = false, 16
	}
	return ended, o, o.w.Run(func(p *simenv.Process) {
		o.main = p
		if ended, err = o.overAndTake(); err != nil {
			o.w.Fail(err)
		}
	})
}

// overAndTake lets client 1 own both ranges and write, until it ends or dies. Then two others take
// one each.
func (o *owners) overAndTake() (ended bool, err error) {
	low := &owned{low: 0, high: overKeys / 2, end: simKey(overKeys / 2)}
	high := &owned{low: overKeys / 2, high: overKeys, start: simKey(overKeys / 2)}
	o.ranges = []*owned{low, high}
	o.make()
	if len(o.living) == 0 {
		return false, o.last()
	}
	first := o.living[0]
	for _, g := range o.ranges {
		if err := o.moveTo(g, first); err != nil {
			return false, err
		}
	}
	_, err = o.in(first, "write", func() error { return o.putOver(first, 0, overKeys, 90) })
	restarted := o.c.Server(1).Restarts() > 0
	if err != nil && !restarted {
		return false, err
	}
	ended = !first.p.Dead() && !restarted
	first.p.Kill()
	o.died(first)
	for len(o.living) == 0 {
		o.make()
	}
	if err := o.moveTo(high, o.living[0]); err != nil {
		return false, err
	}
	second, over := high.by, o.main.NewEvent()
	var failed error
	o.main.Go("second writes", func() {
		defer over.Set()
		_, failed = o.in(second, "write", func() error { return o.putOver(second, overKeys/2, overKeys/2, 60) })
	})
	if o.make() {
		if err := o.moveTo(low, o.living[len(o.living)-1]); err != nil {
			return false, err
		}
	}
	if over.Wait(env.Forever); failed != nil {
		return false, failed
	}
	if second.p.Dead() {
		o.died(second)
	}
	for _, c := range o.all {
		ended = ended && (c == first || !c.gone)
	}
	return ended, o.last()
}

// putOver makes so many changes of keys from low on, most of which are there and get values as long
// as before, and writes back now and then.
func (o *owners) putOver(c *owner, low, keys uint64, changes int) error {
	s, err := c.x.Session()
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(o.seed, low))
	for n := range uint64(changes) {
		k := low + n
		if n >= keys {
			k = low + r.Uint64N(keys)
		}
		key, m := simKey(k), o.model[string(simKey(k))]
		value := fmt.Sprintf("%02d of key %02d", n, k)
		if r.IntN(8) == 0 {
			value = value[:2+r.IntN(len(value)-2)]
		}
		switch kind := r.IntN(8); {
		case kind == 0 && n >= keys:
			m.begin("")
			if err = s.Delete(key); err == nil || errors.Is(err, index.ErrNotFound) {
				m.ack()
				err = nil
			}
		case kind < 3:
			err = m.try(key, value, true, index.ErrNotFound, func() error { return s.Update(key, []byte(value)) })
		default:
			m.begin(value)
			if err = s.Upsert(key, []byte(value)); err == nil {
				m.ack()
			}
		}
		if err == nil && n%4 == 3 && n > keys {
			err = dex.WriteBack(c.x)
		}
		if err != nil {
			return err
		}
	}
	return s.Close()
}
