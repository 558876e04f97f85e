package dex_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/dmindex/dmindex/pkg/index"
)

// simTogether is how many keys a batch has at most, or a group of deferred operations.
const simTogether = 8

// someKeys are numbers of keys of g: for each, whether it is this goroutine's own, of those whose
// number is k modulo the sessions. No number is there twice.
func (o *owners) someKeys(g *owned, r *rand.Rand, k uint64) (numbers []uint64, own []bool) {
	for range 1 + r.IntN(simTogether) {
		number := g.low + r.Uint64N(g.high-g.low)
		if r.IntN(2) == 0 {
			if near, any := o.own(g, number, k); any {
				number = near
			}
		}
		if !slices.Contains(numbers, number) {
			numbers, own = append(numbers, number), append(own, number%o.sessions == k)
		}
	}
	return numbers, own
}

// batch looks some keys up together.
func (o *owners) batch(s index.Session, g *owned, r *rand.Rand, k uint64) error {
	numbers, own := o.someKeys(g, r, k)
	keys := make([][]byte, len(numbers))
	before := make([]glimpse, len(numbers))
	got := make([]string, len(numbers))
	for i, n := range numbers {
		keys[i] = simKey(n)
		before[i] = o.model[string(keys[i])].glimpse()
	}
	visits := 0
	if err := s.LookupBatch(keys, func(i int, value []byte, err error) {
		got[i] = string(value)
		visits++
	}); err != nil {
		return err
	}
	if visits != len(keys) {
		return fmt.Errorf("a batch of %d keys visits %d", len(keys), visits)
	}
	for i, key := range keys {
		m := o.model[string(key)]
		err := error(nil)
		if own[i] {
			err = m.saw(key, got[i])
		} else {
			err = m.allows(before[i], key, got[i])
		}
		if err != nil {
			return fmt.Errorf("in a batch: %w", err)
		}
	}
	return nil
}

// prepare prepares for changes of some keys, of which others may be told of by then.
func (o *owners) prepare(s index.Session, g *owned, r *rand.Rand, k uint64) error {
	numbers, _ := o.someKeys(g, r, k)
	keys, values := make([][]byte, len(numbers)), make([][]byte, len(numbers))
	for i, n := range numbers {
		keys[i] = simKey(n)
		if r.IntN(4) > 0 {
			values[i] = make([]byte, r.IntN(40))
		}
	}
	return s.Prepare(keys, values)
}

// deferred gives some own keys values, and looks others up, without waiting for the log: what it
// did and saw counts when all of it is durable.
func (o *owners) deferred(s index.Session, g *owned, r *rand.Rand, k uint64) error {
	numbers, own := o.someKeys(g, r, k)
	s.Defer(true)
	defer s.Defer(false)
	type seen struct {
		key   []byte
		value string
	}
	var wrote []*known
	var saw []seen
	for i, n := range numbers {
		key := simKey(n)
		m := o.model[string(key)]
		if !own[i] {
			continue
		}
		if r.IntN(3) > 0 {
			v := someValue(r)
			m.begin(string(v))
			if err := s.Upsert(key, v); err != nil {
				return err
			}
			wrote = append(wrote, m)
			got, err := s.Lookup(key, nil)
			if err != nil && !errors.Is(err, index.ErrNotFound) {
				return err
			}
			if string(got) != string(v) {
				return fmt.Errorf("key %x is %q, and this session has just made it %q", key, got, v)
			}
			continue
		}
		got, err := s.Lookup(key, nil)
		if err != nil && !errors.Is(err, index.ErrNotFound) {
			return err
		}
		saw = append(saw, seen{key, string(got)})
	}
	if err := s.Durable(s.Position()); err != nil {
		return err
	}
	for _, m := range wrote {
		m.ack()
	}
	for _, v := range saw {
		if err := o.model[string(v.key)].saw(v.key, v.value); err != nil {
			return fmt.Errorf("deferred: %w", err)
		}
	}
	return nil
}
