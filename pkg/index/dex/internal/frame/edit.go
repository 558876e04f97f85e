package frame

import (
	"encoding/binary"

	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
)

// Fill makes the frame a copy of leaf b. Under the lock.
func (f *Frame) Fill(b []byte) {
	for i := range f.words {
		f.store(i, binary.LittleEndian.Uint64(b[8*i:]))
	}
	f.page.Store(0)
	*f.changed() = 0
	f.SetInPlace(false)
	f.Clean()
}

// CopyFrom makes f, which nobody else knows, a copy of from with its notes, to try edits in. Under
// the lock of from.
func (f *Frame) CopyFrom(from *Frame) {
	f.SetAddr(from.Addr())
	for i := range f.words {
		f.words[i] = from.word(i)
	}
	copy(f.notes(), from.notes())
}

// Clean records that the memory server has this image. Under the lock.
func (f *Frame) Clean() {
	changed, over := *f.changed(), f.inPlace()
	clear(f.notes())
	*f.changed() = changed
	f.SetInPlace(over)
	f.rec.Store(0)
}

// place returns the first word of free space for an entry of n bytes; 0 if there is none before the
// next flush.
func (f *Frame) place(v *View, n int) int {
	need, busy := (n+7)/8, f.busy(v)
	for at := v.heap; at+need <= len(f.words); {
		run := 0
		for run < need && busy[(at+run)/64]>>((at+run)%64)&1 == 0 {
			run++
		}
		if run == need {
			return at
		}
		at += run + 1
	}
	return 0
}

// own returns the first word of the entry of slot i, whose word is w, if another entry of n bytes
// of the same key can be put over it; otherwise 0. Without a log it must have been put since the
// last flush, so that no slot of the memory server points there.
func (f *Frame) own(i int, w uint64, n int) int {
	_, off, has := slotted.Slot(w)
	if f.inPlace() && (has+7)/8 >= (n+7)/8 {
		return off / 8
	}
	if f.sets()[i/64]>>(i%64)&1 == 0 || (has+7)/8 != (n+7)/8 {
		return 0
	}
	return off / 8
}

// vacant returns a slot that is empty here and in the memory server; -1 if there is none.
func (f *Frame) vacant(v *View) int {
	clears := f.clears()
	for i := range v.Count {
		if f.word(v.dir+i)&0xfff == 0 && clears[i/64]>>(i%64)&1 == 0 {
			return i
		}
	}
	return -1
}

// FindRoom returns where an entry of n bytes has room before the next flush: the slot, and the
// first word. It is to be the entry of slot i, whose word is w, with another value; or of a new key
// if i is below 0. at is 0 if there is no room. Under the lock.
func (f *Frame) FindRoom(v *View, i int, w uint64, n int) (slot, at int) {
	if i >= 0 {
		if at = f.own(i, w, n); at > 0 {
			return i, at
		}
	} else if i = f.vacant(v); i < 0 {
		return i, 0
	}
	return i, f.place(v, n)
}

// Put writes entry e at word at, and then the word of slot i. Under the lock.
func (f *Frame) Put(l *fence.Layout, v *View, i, at int, fp byte, e []byte) {
	n := (len(e) + 7) / 8
	if _, off, has := slotted.Slot(f.word(v.dir + i)); off/8 != at || (has+7)/8 != n {
		setBits(f.busy(v), at, n)
	}
	var tail [8]byte
	for k := range n {
		if b := e[8*k:]; len(b) >= 8 {
			f.store(at+k, binary.LittleEndian.Uint64(b))
		} else {
			copy(tail[:], b)
			f.store(at+k, binary.LittleEndian.Uint64(tail[:]))
		}
	}
	f.store(v.dir+i, slotted.SlotOf(l, f.seed(), i, fp, 8*at, e))
	f.sets()[i/64] |= 1 << (i % 64)
	f.SetChanged(i)
	low, high := f.written()
	if high == 0 {
		low = at
	}
	f.setWritten(min(low, at), max(high, at+n))
}

// Remove empties slot i. Under the lock.
func (f *Frame) Remove(l *fence.Layout, v *View, i int) {
	f.busy(v) // the memory server's slot leads to the entry's words
	f.store(v.dir+i, slotted.SlotOf(l, f.seed(), i, 0, 0, nil))
	f.sets()[i/64] &^= 1 << (i % 64)
	f.clears()[i/64] |= 1 << (i % 64)
}

// Blank makes f a leaf without slots, of which nothing is written back.
func (f *Frame) Blank() {
	clear(f.notes())
	f.words[1] = 0
}
