package dex_test

import (
	"errors"
	"fmt"
	"slices"
)

// known is what is known of a key.
type known struct {
	value   string // "" = it is not there
	pending string // what an operation wanted that did not end
	open    bool   // there is one
	seen    bool   // somebody has read what it wanted
	// what earlier operations wanted that did not end, since the last one of which the outcome is
	// known
	maybe []string
	acked []string // all values that were acknowledged
}

func (m *known) begin(want string) {
	m.fold()
	m.pending, m.open = want, true
}

// fold makes an operation that did not end one of the earlier ones.
func (m *known) fold() {
	switch {
	case m.open && m.seen:
		m.value, m.maybe = m.pending, nil
	case m.open:
		m.maybe = append(m.maybe, m.pending)
	}
	m.open, m.seen = false, false
}

// could reports whether the key may be there, or, with there false, whether it may be absent. No
// operation is open.
func (m *known) could(there bool) bool {
	is := func(v string) bool { return (v != "") == there }
	return is(m.value) || slices.ContainsFunc(m.maybe, is)
}

// try does an operation with a condition, and judges its answer, which is nil or refused. The
// operation takes effect only if the key is there, or, with there false, only if the key is absent.
// The answer also settles what an operation wanted whose client died. Another error is passed on;
// then the outcome is unknown.
func (m *known) try(key []byte, want string, there bool, refused error, do func() error) error {
	m.fold()
	before, may := *m, m.could(there)
	before.maybe = slices.Clone(m.maybe)
	if may {
		m.begin(want)
	}
	switch err := do(); {
	case err == nil && may:
		m.ack()
		return nil
	case err == nil:
		return fmt.Errorf("key %x gets %q, for which it has to be there: %v; it is %q, or %q", key, want, there, before.value, before.maybe)
	case !errors.Is(err, refused):
		return err
	}
	if m.open && m.seen {
		return fmt.Errorf("key %x was %q to another one, which was refused: %w", key, want, refused)
	}
	m.open, m.value, m.maybe = false, before.value, before.maybe
	if !m.could(!there) {
		return fmt.Errorf("key %x is %q, or %q: %w", key, m.value, m.maybe, refused)
	}
	left := slices.DeleteFunc(append([]string{m.value}, m.maybe...), func(v string) bool { return (v != "") == there })
	m.value, m.maybe = left[0], left[1:]
	return nil
}

func (m *known) ack() {
	m.value, m.open, m.maybe = m.pending, false, nil
	m.acked = append(m.acked, m.value)
}

// glimpse is what was known of a key before it is read, which another goroutine changes meanwhile.
type glimpse struct {
	before []string
	from   int
}

func (m *known) glimpse() glimpse {
	before := append([]string{m.value}, m.maybe...)
	if m.open {
		before = append(before, m.pending)
	}
	return glimpse{before, len(m.acked)}
}

// allows checks what was read since.
func (m *known) allows(g glimpse, key []byte, got string) error {
	if m.open && got == m.pending && got != m.value && !slices.Contains(m.maybe, got) {
		m.seen = true
		return nil
	}
	if slices.Contains(g.before, got) || slices.Contains(m.acked[g.from:], got) || m.open && got == m.pending {
		return nil
	}
	return fmt.Errorf("key %x is %q to another one; it was %q, and then %q (pending: %v %q)", key, got, g.before, m.acked[g.from:], m.open, m.pending)
}

// saw checks what was read.
func (m *known) saw(key []byte, got string) error {
	if !(m.open && m.seen) && (got == m.value || slices.Contains(m.maybe, got)) || m.open && got == m.pending {
		m.value, m.open, m.maybe = got, false, nil
		return nil
	}
	return fmt.Errorf("key %x is %q; it was %q (pending: %v %q, seen: %v)", key, got, m.value, m.open, m.pending, m.seen)
}
