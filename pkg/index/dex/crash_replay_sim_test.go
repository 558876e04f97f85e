package dex_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// TestCrashInReplay kills a client that takes a dead client's range after parts of its requests.
// The next one finds every acknowledged change, and a tree in order. See afterEachPart.
func TestCrashInReplay(t *testing.T) {
	seeds, step := uint64(6), 7
	afterEachPart(t, seeds, step, func(t *testing.T, seed uint64, part int) (ended bool, err error) {
		return crashInReplayOf(t, seed, part, -1, (*owners).scribble)
	})
}

const replayedKeys = 120

// crashInReplayOf replays what leave leaves in the log of the first client. Values longer than
// inline lie in blocks; below 0 the seed says how long these are.
func crashInReplayOf(t *testing.T, seed uint64, part, inline int, leave func(*owners, *owner) error) (ended bool, err error) {
	o, err := dying(t, seed, "client-2", part, replayedKeys, 256, poolsim.Options{Servers: 1 + int(seed%2)})
	if err != nil {
		return false, err
	}
	if inline >= 0 {
		o.opts.InlineBytes = inline
	}
	return ended, o.w.Run(func(p *simenv.Process) {
		o.main = p
		if err := o.leaveAndTake(leave, &ended); err != nil {
			o.w.Fail(err)
		}
	})
}

// leaveAndTake lets client 1 die with changes in its log, client 2 take its range, and others if
// that one dies.
func (o *owners) leaveAndTake(leave func(*owners, *owner) error, ended *bool) error {
	g := &owned{low: 0, high: replayedKeys, start: simKey(0)}
	o.ranges = []*owned{g}
	o.make()
	first := o.living[0]
	if err := o.moveTo(g, first); err != nil {
		return err
	}
	if _, err := o.in(first, "serve", func() error { return leave(o, first) }); err != nil {
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

// scribble changes keys, fewer and fewer of them, so that leaves fill and have changes that were
// written back and others that were not.
func (o *owners) scribble(c *owner) error {
	s, err := c.x.Session()
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(o.seed, 10))
	for n := range 400 {
		key := simKey(r.Uint64N(uint64(replayedKeys - n/5)))
		m := o.model[string(key)]
		if r.IntN(4) == 0 {
			m.begin("")
			if err := s.Delete(key); err != nil && !errors.Is(err, index.ErrNotFound) {
				return err
			}
		} else {
			v := make([]byte, 1+r.IntN(24))
			for i := range v {
				v[i] = byte('a' + r.IntN(26))
			}
			m.begin(string(v))
			if err := s.Upsert(key, v); err != nil {
				return err
			}
		}
		m.ack()
		if n == 100+50*int(o.seed%3) {
			if _, err := c.x.(index.Checker).Check(); err != nil { // which writes back
				return err
			}
		}
	}
	return s.Close()
}
