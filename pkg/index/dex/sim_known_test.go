package dex_test

import (
	"fmt"
	"slices"
)

// known is what is known of a key.
type known struct {
	value   string   // "" = it is not there
	pending string   // what an operation wanted that did not end
	open    bool     // there is one
	seen    bool     // somebody has read what it wanted
	maybe   []string // what earlier operations wanted that did not end, since the last one of which the outcome is known
	acked   []string // all values that were acknowledged
}

func (m *known) begin(want string) {
	switch {
	case m.open && m.seen:
		m.value, m.maybe = m.pending, nil
	case m.open:
		m.maybe = append(m.maybe, m.pending)
	}
	m.pending, m.open, m.seen = want, true, false
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
