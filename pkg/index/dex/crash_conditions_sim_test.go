package dex_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex"
)

// TestCrashInReplayOfConditions is TestCrashInReplay for a log that ends with records whose
// condition the dead client did not get to evaluate. What each of them does depends on an earlier
// record of the key, or on the leaf. There are so many insertions that leaves are divided for them.
// A client that replays may die, and the next one finds some of the leaves changed: it ends with
// the same.
func TestCrashInReplayOfConditions(t *testing.T) {
	seeds, step := uint64(6), 29
	afterEachPart(t, seeds, step, func(t *testing.T, seed uint64, part int) (ended bool, err error) {
		return crashInReplayOf(t, seed, part, 0, (*owners).logConditions)
	})
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
