package dex_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// TestCrashInReplayOfConditions is TestCrashInReplay for a log that ends with records whose
// condition the dead client did not get to evaluate. What each of them does depends on an earlier
// record of the key, or on the leaf. There are so many insertions that leaves are divided for them.
// A client that replays may die, and the next one finds some of the leaves changed: it ends with
// the same.
func TestCrashInReplayOfConditions(t *testing.T) {
	seeds, step := uint64(6), 7
	if testing.Short() {
		seeds, step = 2, 101
	}
	afterEachPart(t, seeds, step, func(t *testing.T, seed uint64, part int) (ended bool, err error) {
		o, err := dying(t, seed, "client-2", part, replayedKeys, 256, poolsim.Options{Servers: 1 + int(seed%2)})
		if err != nil {
			return false, err
		}
		o.opts.InlineBytes = 0
		return ended, o.w.Run(func(p *simenv.Process) {
			o.main = p
			if err := o.leaveConditions(&ended); err != nil {
				o.w.Fail(err)
			}
		})
	})
}

func (o *owners) leaveConditions(ended *bool) error {
	g := &owned{low: 0, high: replayedKeys, start: simKey(0)}
	o.ranges = []*owned{g}
	o.make()
	first := o.living[0]
	if err := o.moveTo(g, first); err != nil {
		return err
	}
	if _, err := o.in(first, "log conditions", func() error { return o.logConditions(first) }); err != nil {
		return err
	}
	first.p.Kill()
	o.died(first)
	for len(o.living) == 0 {
		o.make()
	}
	second := o.living[0]
	if err := o.moveTo(g, second); err != nil {
		return err
	}
	*ended = o.made == 2 && !second.p.Dead()
	return o.last()
}

// logConditions makes some changes that are written back, some that are only in the log, and then
// logs a condition for each key.
func (o *owners) logConditions(c *owner) error {
	s, err := c.x.Session()
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(o.seed, 14))
	now := make([]string, replayedKeys)
	put := func(n int, value string) {
		m := o.model[string(simKey(uint64(n)))]
		m.begin(value)
		m.ack()
		now[n] = value
	}
	for n := range now {
		if r.IntN(2) == 0 {
			put(n, fmt.Sprint("written ", n))
			if err := s.Upsert(simKey(uint64(n)), []byte(now[n])); err != nil {
				return err
			}
		}
	}
	if _, err := c.x.(index.Checker).Check(); err != nil { // which writes back
		return err
	}
	var keys, values [][]byte
	for n := range now {
		var value []byte
		switch r.IntN(4) {
		case 0:
			put(n, fmt.Sprint("logged ", n))
			value = []byte(now[n])
		case 1:
			put(n, "")
		default:
			continue
		}
		keys, values = append(keys, simKey(uint64(n))), append(values, value)
	}
	if err := dex.LogOnly(c.x, keys, values); err != nil {
		return err
	}
	keys, values = nil, nil
	var absent []bool
	for n := range now {
		value, is := fmt.Sprintf("on a condition %d", n), r.IntN(3) > 0
		keys, values, absent = append(keys, simKey(uint64(n))), append(values, []byte(value)), append(absent, is)
		if is == (now[n] == "") {
			put(n, value)
		}
	}
	if err := dex.LogConditions(c.x, keys, values, absent); err != nil {
		return err
	}
	return s.Close()
}
