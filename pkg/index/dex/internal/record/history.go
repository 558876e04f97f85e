package record

import (
	"bytes"
	"encoding/binary"
)

// History is what a replay knows of a key after some of its records. Of the records that were
// appended before their change was made only the last one may be cancelled, and only for the last
// one it may be unknown whether its condition was met: all that came before were made, or
// cancelled, or are followed by a plain record. So two records are all that is needed: the last
// one, and what the key had before it.
//
// Logs of several epochs are replayed one after the other. The client of the later one had replayed
// the earlier one before it appended a record, so its first record of a key does not build on what
// the earlier log says, but on the leaf.
type History struct {
	last     Record
	position uint64 // of last; 0 = it cannot be taken back
	log      int    // that has it
	before   Record // plain; Op is 0 if nothing is known
}

// Add appends a record to h. Its value is kept.
func (h *History) Add(r Record, position uint64, log int) {
	if r.Op == Cancel {
		h.takeBack(binary.LittleEndian.Uint64(r.Value), log)
		return
	}
	before := Record{}
	if h.last.Op != 0 && h.log == log {
		before = h.last.plain()
	}
	r.Value = bytes.Clone(r.Value)
	*h = History{last: r, position: position, log: log, before: before}
}

// takeBack removes the last record, if it is the one at position. Otherwise a plain one has
// followed it, or it was truncated, or precedes a bulk load.
func (h *History) takeBack(position uint64, log int) {
	if h.last.Op == 0 || h.log != log || h.position != position {
		return
	}
	*h = History{last: h.before, log: log}
}

// plain returns the record of a change that was made.
func (r Record) plain() Record {
	if r.Op == PutIfAbsent || r.Op == PutIfPresent {
		r.Op = Put
	}
	return r
}

// Meets reports whether the condition of r allows the change of a key that is there, or is not.
func (r *Record) Meets(there bool) bool {
	switch r.Op {
	case PutIfAbsent:
		return !there
	case PutIfPresent:
		return there
	}
	return true
}

// Outcome is the record that the key ends with. It has a condition only if that depends on the
// leaf. ok is false if no record is left.
func (h *History) Outcome() (r Record, ok bool) {
	switch {
	case h.last.Op == 0:
		return r, false
	case h.before.Op == 0:
		return h.last, true
	case h.last.Meets(h.before.Op != Delete):
		return h.last.plain(), true
	}
	return h.before, true
}

// Epoch returns the epoch of the last record that was not taken back.
func (h *History) Epoch() uint64 { return h.last.Epoch }
