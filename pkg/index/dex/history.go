package dex

import (
	"bytes"
	"encoding/binary"
)

// history is what a replay knows of a key after some of its records. Of the records that were
// appended before their change was made (beside.go) only the last one may be cancelled, and only
// for the last one it may be unknown whether its condition was met: all that came before were made,
// or cancelled, or are followed by a plain record. So two records are all that is needed: the last
// one, and what the key had before it.
//
// Logs of several epochs are replayed one after the other. The client of the later one had replayed
// the earlier one before it appended a record, so its first record of a key does not build on what
// the earlier log says, but on the leaf.
type history struct {
	last     record
	position uint64 // of last; 0 = it cannot be taken back
	log      int    // that has it
	before   record // plain; op is 0 if nothing is known
}

// add appends a record to h. Its value is kept.
func (h *history) add(r record, position uint64, log int) {
	if r.op == recordCancel {
		h.takeBack(binary.LittleEndian.Uint64(r.value), log)
		return
	}
	before := record{}
	if h.last.op != 0 && h.log == log {
		before = h.last.plain()
	}
	r.value = bytes.Clone(r.value)
	*h = history{last: r, position: position, log: log, before: before}
}

// takeBack removes the last record, if it is the one at position. Otherwise a plain one has
// followed it, or it was truncated, or precedes a bulk load.
func (h *history) takeBack(position uint64, log int) {
	if h.last.op == 0 || h.log != log || h.position != position {
		return
	}
	*h = history{last: h.before, log: log}
}

// plain returns the record of a change that was made.
func (r record) plain() record {
	if r.op == recordPutAbsent || r.op == recordPutPresent {
		r.op = recordPut
	}
	return r
}

// meets reports whether the condition of r allows the change of a key that is there, or is not.
func (r *record) meets(there bool) bool {
	switch r.op {
	case recordPutAbsent:
		return !there
	case recordPutPresent:
		return there
	}
	return true
}

// outcome is the record that the key ends with. It has a condition only if that depends on the
// leaf. ok is false if no record is left.
func (h *history) outcome() (r record, ok bool) {
	switch {
	case h.last.op == 0:
		return r, false
	case h.before.op == 0:
		return h.last, true
	case h.last.meets(h.before.op != recordDelete):
		return h.last.plain(), true
	}
	return h.before, true
}
