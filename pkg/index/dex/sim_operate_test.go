package dex_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/audit"
)

// operate does one operation, or looks a key up and changes it then, and compares the answer with
// the model. The model also reports whether an operation with a condition may take effect.
func (o *owners) operate(s index.Session, key []byte, r *rand.Rand) error {
	m := o.model[string(key)]
	o.counts.ops++
	switch r.IntN(7) {
	case 0, 1:
		got, err := s.Lookup(key, nil)
		if err != nil && !errors.Is(err, index.ErrNotFound) {
			return err
		}
		if err := m.saw(key, string(got)); err != nil || r.IntN(2) == 0 {
			return err
		}
		return o.put(s, key, r)
	case 2:
		return m.try(key, "", true, index.ErrNotFound, func() error { return s.Delete(key) })
	case 3:
		v := someValue(r)
		return m.try(key, string(v), false, index.ErrExists, func() error { return s.Insert(key, v) })
	case 4:
		v := someValue(r)
		return m.try(key, string(v), true, index.ErrNotFound, func() error { return s.Update(key, v) })
	case 5:
		return o.modify(s, key, r)
	}
	return o.put(s, key, r)
}

// modify gives a key some value, or takes it out, or keeps it, after it was told what it has.
func (o *owners) modify(s index.Session, key []byte, r *rand.Rand) error {
	m, v := o.model[string(key)], someValue(r)
	action := index.Action(r.IntN(3))
	var told []string
	change := func(old []byte, found bool) ([]byte, index.Action) {
		told = append(told, string(old))
		return v, action
	}
	before := *m
	before.maybe = slices.Clone(m.maybe)
	switch action {
	case index.Put:
		m.begin(string(v))
	case index.Remove:
		m.begin("")
	}
	err := s.Modify(key, change)
	for _, old := range told { // whatever became of it
		was := before
		if wrong := was.saw(key, old); wrong != nil {
			return fmt.Errorf("modify: %w", wrong)
		}
	}
	switch {
	case err != nil:
		return err
	case action == index.Keep:
		return m.saw(key, told[len(told)-1])
	}
	m.ack()
	return nil
}

func someValue(r *rand.Rand) []byte {
	v := make([]byte, 1+r.IntN(24))
	for i := range v {
		v[i] = byte('a' + r.IntN(26))
	}
	return v
}

// put gives a key some value.
func (o *owners) put(s index.Session, key []byte, r *rand.Rand) error {
	m, v := o.model[string(key)], someValue(r)
	m.begin(string(v))
	if err := s.Upsert(key, v); err != nil {
		return err
	}
	m.ack()
	return nil
}

// peek reads a key that another goroutine changes.
func (o *owners) peek(s index.Session, key []byte) error {
	m := o.model[string(key)]
	g := m.glimpse()
	value, err := s.Lookup(key, nil)
	if err != nil && !errors.Is(err, index.ErrNotFound) {
		return err
	}
	return m.allows(g, key, string(value))
}

// sweep scans some keys from number on, and below end, of which those whose number is k modulo the
// sessions are this goroutine's own.
func (o *owners) sweep(s index.Session, number, end, k uint64) error {
	end = min(end, number+simSweep)
	var before [simSweep]glimpse
	for i := range end - number {
		before[i] = o.model[string(simKey(number+i))].glimpse()
	}
	found := map[string]string{}
	if err := s.Scan(simKey(number), simSweep, false, func(key, value []byte) bool {
		found[string(key)] = string(value)
		return bytes.Compare(key, simKey(end)) < 0
	}); err != nil {
		return err
	}
	for i := range end - number {
		key := simKey(number + i)
		m, got := o.model[string(key)], found[string(key)]
		err := error(nil)
		if (number+i)%o.sessions == k {
			err = m.saw(key, got)
		} else {
			err = m.allows(before[i], key, got)
		}
		if err != nil {
			return fmt.Errorf("scan from %x on: %w", simKey(number), err)
		}
	}
	return nil
}

// simSweep is how many keys a scan has.
const simSweep = 12

// last lets one client take everything, and looks at everything.
func (o *owners) last() error {
	for len(o.living) == 0 {
		o.make()
	}
	for {
		c := o.living[0]
		for _, g := range o.ranges {
			if err := o.moveTo(g, c); err != nil {
				return err
			}
		}
		alive, err := o.in(c, "look", func() error { return o.look(c) })
		if err != nil {
			return err
		}
		if alive {
			return o.account()
		}
		o.died(c)
		for len(o.living) == 0 {
			o.make()
		}
	}
}

func (o *owners) look(c *owner) error {
	s, err := c.x.Session()
	if err != nil {
		return err
	}
	found := map[string]string{}
	var lastKey []byte
	err = s.Scan(nil, 1<<20, false, func(key, value []byte) bool {
		if lastKey != nil && bytes.Compare(key, lastKey) <= 0 {
			err = fmt.Errorf("the scan shows %x after %x", key, lastKey)
		}
		lastKey = bytes.Clone(key)
		found[string(key)] = string(value)
		return true
	})
	if err != nil {
		return err
	}
	for n := range uint64(len(o.model)) {
		key := simKey(n)
		if err := o.model[string(key)].saw(key, found[string(key)]); err != nil {
			return fmt.Errorf("scan: %w", err)
		}
		got, err := s.Lookup(key, nil)
		if err != nil && !errors.Is(err, index.ErrNotFound) {
			return err
		}
		if err := o.model[string(key)].saw(key, string(got)); err != nil {
			return err
		}
	}
	if err := s.Close(); err != nil {
		return err
	}
	structure, err := c.x.(index.Checker).Check()
	o.found = structure
	o.counts.blocks += structure.Blocks
	return err
}

// account looks at all memory when nobody works any more: nothing of the index is in anybody's
// hands, and blocks that are neither of it nor in anybody's hands are those that clients had in
// theirs when they died.
func (o *owners) account() error {
	var pools []*pool.Pool
	for _, c := range o.living {
		pools = append(pools, c.pool)
		o.counts.reclaimed += int(c.pool.Reclaimed())
		if n := c.x.Stats().Misled; n > 0 {
			return fmt.Errorf("client %d came %d times to a leaf that begins above the key: memory was used again too early", c.client, n)
		}
		alive, err := o.in(c, "retire", func() error { // it gives back what it has replaced
			_, err := c.x.(index.Checker).Check()
			return err
		})
		if err != nil || !alive {
			return err
		}
	}
	lost := 0
	r, err := audit.Compare(o.c.Chunks(), o.found.Parts(), pools)
	if err != nil {
		return err
	}
	for _, n := range r.Lost {
		if len(n.Memory) < o.opts.NodeBytes && o.living[0].x.(index.Checker).Verifies(n.Addr, n.Memory) {
			lost++
		}
	}
	if o.counts.lost += lost; lost > mostLost*o.counts.deaths {
		return fmt.Errorf("%d blocks are lost, and %d clients have died", lost, o.counts.deaths)
	}
	return nil
}

// mostLost is how many blocks a client of four sessions can have in its hands that are no part of
// the index: what it has replaced and not given back yet, by the goroutine that does it and by each
// session, and what each session had just written.
const mostLost = 6*32 + 4
