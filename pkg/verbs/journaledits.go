package verbs

import (
	"encoding/binary"
	"fmt"
)

// Edits make one text of another. A ledger has its checksum in front, its chunks at the end, and
// accounts of up to megabytes between them, and one change may touch all three. So the part of a
// ledger that changes is sent as edits where that is shorter:
//
//	each edit: how many bytes stay, how many behind them go, how many come in their place; those
//
// The numbers are unsigned varints. What lies behind the last edit stays.

const (
	editMatch = 16 // so many equal bytes are worth an edit of their own
	editNear  = 64 // behind a difference of as many bytes the texts may be equal again, in step
	editShift = 24 // or out of step
	editBlock = 64 // of the old text, by which what moved is found

	editPrime = 0x9e3779b97f4a7c15
)

// AppendEdits appends the edits that make now of old, if they are at most so many bytes long. They
// are not the shortest ones: what moved towards the front is not found. It takes a time that grows
// with the texts, and with each difference.
func AppendEdits(dst, old, now []byte, most int) (edits []byte, ok bool) {
	e := editor{dst: dst, old: old, now: now, most: len(dst) + most}
	for e.i < len(now) {
		k := equal(old[e.j:], now[e.i:])
		if k >= editMatch || e.i+k == len(now) && e.j+k == len(old) {
			e.put()
			e.i, e.j = e.i+k, e.j+k
			e.doneNow, e.doneOld = e.i, e.j
		} else if !e.near() && !e.moved() {
			e.i, e.j = len(now), len(old)
		}
		if e.full || len(e.dst)+e.i-e.doneNow > e.most {
			return dst, false
		}
	}
	e.j = len(old)
	e.put()
	return e.dst, len(e.dst) <= e.most
}

// editor makes edits. It has told what lies before doneOld and doneNow, keeps not told, and looks
// at i and j.
type editor struct {
	dst              []byte
	most             int
	full             bool
	old, now         []byte
	i, j             int
	doneNow, doneOld int
	stay             int            // bytes behind the last edit that stay
	blocks           map[uint64]int // of the old text, by their hash: where they begin
}

// put appends an edit of what lies before i and j, if there is any.
func (e *editor) put() {
	if e.i > e.doneNow || e.j > e.doneOld {
		e.dst = binary.AppendUvarint(e.dst, uint64(e.doneOld-e.stay))
		e.dst = binary.AppendUvarint(e.dst, uint64(e.j-e.doneOld))
		e.dst = binary.AppendUvarint(e.dst, uint64(e.i-e.doneNow))
		e.dst = append(e.dst, e.now[e.doneNow:e.i]...)
		e.stay = e.j
	}
}

// near goes on to where the texts are soon equal again. Runs of chunks repeat, so blocks of them
// are no help.
func (e *editor) near() bool {
	for d := 1; d <= editNear && e.j+d+editMatch <= len(e.old) && e.i+d+editMatch <= len(e.now); d++ {
		if equal(e.old[e.j+d:][:editMatch], e.now[e.i+d:][:editMatch]) == editMatch {
			e.i, e.j = e.i+d, e.j+d
			return true
		}
	}
	for sum := 1; sum <= 2*editShift; sum++ {
		for gone := max(0, sum-editShift); gone <= min(sum, editShift); gone++ {
			j, i := e.j+gone, e.i+sum-gone
			if j+editMatch <= len(e.old) && i+editMatch <= len(e.now) && equal(e.old[j:][:editMatch], e.now[i:]) == editMatch {
				e.i, e.j = i, j
				return true
			}
		}
	}
	return false
}

// moved goes on to where the new text has a block of the old one that lies behind.
func (e *editor) moved() bool {
	if e.blocks == nil {
		e.blocks = make(map[uint64]int, len(e.old)/editBlock)
		for at := 0; at+editBlock <= len(e.old); at += editBlock {
			h := editHash(e.old[at:])
			if _, has := e.blocks[h]; !has {
				e.blocks[h] = at
			}
		}
	}
	high := uint64(1) // of the byte that leaves the block
	for range editBlock - 1 {
		high *= editPrime
	}
	limit := min(len(e.now)-editBlock, e.doneNow+e.most)
	for i, h := e.i, uint64(0); i <= limit; i++ {
		if i == e.i {
			h = editHash(e.now[i:])
		} else {
			h = (h-uint64(e.now[i-1])*high)*editPrime + uint64(e.now[i+editBlock-1])
		}
		if at, has := e.blocks[h]; has && at >= e.j && equal(e.old[at:][:editBlock], e.now[i:]) == editBlock {
			e.i, e.j = i, at
			return true
		}
	}
	e.full = limit < len(e.now)-editBlock
	return false
}

func editHash(b []byte) (h uint64) {
	for _, c := range b[:editBlock] {
		h = h*editPrime + uint64(c)
	}
	return h
}

// equal is how many bytes two texts have in common at their begin.
func equal(a, b []byte) (n int) {
	most := min(len(a), len(b))
	for n+8 <= most && binary.LittleEndian.Uint64(a[n:]) == binary.LittleEndian.Uint64(b[n:]) {
		n += 8
	}
	for n < most && a[n] == b[n] {
		n++
	}
	return n
}

// applyEdits appends what edits make of old. ErrMalformed: they are none of it.
func applyEdits(dst, old, edits []byte) ([]byte, error) {
	for all := len(edits); len(edits) > 0; {
		var numbers [3]uint64 // stay, go, come
		for i := range numbers {
			n, read := binary.Uvarint(edits)
			if read <= 0 || n > 1<<32 {
				return nil, fmt.Errorf("edits of %d bytes end within an edit, or have one that is none: %w", all, ErrMalformed)
			}
			numbers[i], edits = n, edits[read:]
		}
		stay, gone, come := numbers[0], numbers[1], numbers[2]
		if stay+gone > uint64(len(old)) || come > uint64(len(edits)) {
			return nil, fmt.Errorf("an edit keeps %d bytes and removes %d, of %d, and has %d of %d new ones: %w", stay, gone, len(old), len(edits), come, ErrMalformed)
		}
		dst = append(append(dst, old[:stay]...), edits[:come]...)
		old, edits = old[stay+gone:], edits[come:]
	}
	return append(dst, old...), nil
}
