package dex_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex"
)

// TestLogKeepsEntryRecords changes entries now and then while other changes fill the log again and
// again, and kills the client after a part of its requests, or at the end. The next owner finds
// every acknowledged value: also of an entry that was changed long ago, whose leaf never had a
// frame since, and of one that is changed all the time.
func TestLogKeepsEntryRecords(t *testing.T) {
	seeds, step := uint64(4), 97
	if testing.Short() {
		seeds, step = 2, 997
	}
	var entries entryCounts
	afterEachPart(t, seeds, step, func(t *testing.T, seed uint64, part int) (ended bool, err error) {
		defer dex.MostlyEntries()()
		return ended, besideWorld(t, seed, part, func(o *owners, g *owned) (err error) {
			defer func() { entries.add(o.entries()) }()
			ended, err = o.wearLog(g)
			return err
		})
	})
	t.Logf("changes of entries: %+v", entries)
	entries.check(t)
}

// wearLog reports whether the client lived to the end.
func (o *owners) wearLog(g *owned) (ended bool, err error) {
	for n := range g.high {
		o.model[string(simKey(n))] = &known{}
	}
	c, alive, err := o.load(g)
	if err != nil {
		return false, err
	}
	if alive {
		for n := uint64(0); n < g.high; n += 2 {
			m := o.model[string(simKey(n))]
			m.begin("first")
			m.ack()
		}
		ended, err = o.in(c, "change", func() error { return o.fillLog(c, g) })
		if err != nil {
			return false, err
		}
	}
	if c != nil && (ended || c.p.Dead()) {
		c.p.Kill()
		o.died(c)
	}
	return ended, o.last()
}

func (o *owners) fillLog(c *owner, g *owned) error {
	s, err := c.x.Session()
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(o.seed, 11))
	even := func() uint64 { return r.Uint64N(g.high/2) * 2 }
	_, all := dex.LogUse(c.x)
	for i := range 4 * all / 40 {
		key := simKey(g.high - 2) // in a frame
		switch {
		case i%8 == 0:
			key = simKey(even())
		case i%8 == 1:
			key = simKey(0)
		}
		if r.IntN(4) == 0 {
			peeked := simKey(even())
			if err := o.peek(s, peeked); err != nil {
				return err
			}
		}
		if err := o.model[string(key)].try(key, fmt.Sprintf("%05d", i), true, index.ErrNotFound, func() error {
			return s.Update(key, fmt.Appendf(nil, "%05d", i))
		}); err != nil {
			return err
		}
	}
	return s.Close()
}
