package dex

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/seqlock"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// frame is a place of the cache for one leaf. The leaf's image is kept as words, each loaded
// atomically and stored whole (package seqlock). A reader takes no lock; it compares the version
// before and after (optimistic lock coupling, DEX section 4). A change acquires the lock, which
// makes the version odd.
//
// The image is what the memory server will hold when all changes are written back (flush.go). A
// flush has several parts, which a crash may separate. So until the flush
//
//   - an entry is put only where neither the image's nor the memory server's slots point to
//     (busy), or over the one that it replaces (own);
//   - that is one which the memory server has not got, if there is no log (over.go);
//   - a slot that was emptied is not reused (clears).
type frame struct {
	// What a reader loads: one cache line.
	version atomic.Uint64 // odd = locked
	addr    atomic.Uint64 // of the leaf; 0 = none
	lsn     atomic.Uint64 // where the record of the last change ends in the log
	first   atomic.Uint64 // where that of the first change since the last flush ends; 0 = clean
	used    atomic.Uint32 // how often it was found; halved from time to time
	id      int32         // in the cache
	// the image; behind it, up to its capacity, the notes, which only the lock's holder uses
	words []uint64
}

// notes returns the number of words that a frame has behind an image of so many words: busy, sets,
// clears, written, and changed.
func notes(words int) int { return 3*mapWords(words) + 2 }

func mapWords(words int) int { return (words + 63) / 64 }

// notes returns busy, sets, clears, written and changed of f.
func (f *frame) notes() []uint64 { return f.words[len(f.words):cap(f.words)] }

// busy has a bit for each word that is in use. Under the lock. Most frames never need it: then it
// is not made. Until it is, each entry that was put took the words of the one before.
func (f *frame) busy(v *view) []uint64 {
	busy, noted := f.notes()[:mapWords(len(f.words))], f.noted()
	if *noted&busyNote == 0 {
		*noted |= busyNote
		for i := range v.count {
			if _, off, n := slotted.Slot(f.word(v.dir + i)); n > 0 {
				setBits(busy, off/8, (n+7)/8)
			}
		}
	}
	return busy
}

// sets has a bit for each slot that has another entry than the memory server's, clears one for each
// slot that was emptied.
func (f *frame) sets() []uint64   { m := mapWords(len(f.words)); return f.notes()[m : 2*m] }
func (f *frame) clears() []uint64 { m := mapWords(len(f.words)); return f.notes()[2*m : 3*m] }

// noted has written and the notes of over.go.
func (f *frame) noted() *uint64 { return &f.notes()[3*mapWords(len(f.words))] }

// written returns the words between which entries were put; 0, 0 = none were.
func (f *frame) written() (low, high int) {
	w := *f.noted()
	return int(w & (busyNote - 1)), int(w >> 32)
}

// setWritten sets written.
func (f *frame) setWritten(low, high int) {
	w := f.noted()
	*w = uint64(high)<<32 | uint64(low) | *w&allNotes
}

// changed has bit i%64 for each slot i that got another entry since the leaf has this frame.
func (f *frame) changed() *uint64 { return &f.notes()[3*mapWords(len(f.words))+1] }

// tryLock acquires the lock if it is free.
func (f *frame) tryLock() bool {
	v := f.version.Load()
	return v&1 == 0 && f.version.CompareAndSwap(v, v+1)
}

// unlock releases the lock. Readers that began meanwhile start again.
func (f *frame) unlock() { f.version.Add(1) }

func (f *frame) word(i int) uint64     { return atomic.LoadUint64(&f.words[i]) }
func (f *frame) store(i int, w uint64) { seqlock.Store(&f.words[i], w) }

// view is a leaf's header. Without the lock it may be nonsense; then the version has changed.
type view struct {
	dir, heap int // words where the directory and the heap begin
	count     int
	lowLen    int
	highLen   int
	rightmost bool
}

const (
	fenceWord     = fence.HeaderBytes / 8
	flagRightmost = 1 << 8 // of word 1
)

// open reads the header. It returns false if the header makes no sense.
func (f *frame) open(v *view) bool {
	w := f.word(1)
	v.count, v.lowLen, v.highLen = int(w>>16&0xffff), int(w>>32&0xffff), int(w>>48)
	v.rightmost = w&flagRightmost != 0
	v.dir = fenceWord + (v.lowLen+v.highLen+7)/8
	v.heap = v.dir + v.count
	return v.heap <= len(f.words)
}

// below reports whether key lies below the leaf's range.
func (f *frame) below(v *view, key []byte, numbers bool) bool {
	if numbers {
		return binary.BigEndian.Uint64(key) < bits.ReverseBytes64(f.word(fenceWord))
	}
	return f.compare(8*fenceWord, v.lowLen, key) > 0
}

// above reports whether key lies above the leaf's range.
func (f *frame) above(v *view, key []byte, numbers bool) bool {
	switch {
	case v.rightmost:
		return false
	case numbers:
		return binary.BigEndian.Uint64(key) >= bits.ReverseBytes64(f.word(fenceWord+1))
	}
	return f.compare(8*fenceWord+v.lowLen, v.highLen, key) <= 0
}

// find returns the slot of key and its word; -1 if the key is not there.
func (f *frame) find(v *view, key []byte, fp byte, numbers bool) (slot int, w uint64) {
	var number uint64
	if numbers {
		number = binary.LittleEndian.Uint64(key)
	}
	dir := f.words[v.dir:v.heap]
	for i := range dir {
		w := atomic.LoadUint64(&dir[i])
		if byte(w>>24) != fp || w&0xfff == 0 {
			continue
		}
		_, off, n := slotted.Slot(w)
		if off < 8*v.heap || off+n > 8*len(f.words) {
			continue
		}
		if numbers {
			if n >= 8 && f.word(off/8) == number {
				return i, w
			}
		} else if n >= 2+len(key) && int(f.word(off/8)&0x7fff) == len(key) && f.equal(off+2, key) {
			return i, w
		}
	}
	return -1, 0
}

// value appends the value of the entry of w, or its reference.
func (f *frame) value(w uint64, lay *fence.Layout, key, dst []byte) []byte {
	_, off, n := slotted.Slot(w)
	head := lay.ValueAt(len(key))
	return f.bytes(off+head, n-head, dst)
}

// refers reports whether the value of the entry of w lies in a block.
func (f *frame) refers(w uint64, lay *fence.Layout) bool {
	if !lay.Blocks {
		return false
	}
	_, off, _ := slotted.Slot(w)
	i := off / 8
	return lay.HasReferenceIn(f.word(i), f.word(min(i+1, len(f.words)-1)))
}

// load returns the 8 bytes at off. Bytes beyond the end are zero.
func (f *frame) load(off int) uint64 {
	i, s := off/8, uint(off%8*8)
	w := f.word(i) >> s
	if s > 0 && i+1 < len(f.words) {
		w |= f.word(i+1) << (64 - s)
	}
	return w
}

func (f *frame) equal(off int, b []byte) bool {
	for ; len(b) >= 8; off, b = off+8, b[8:] {
		if f.load(off) != binary.LittleEndian.Uint64(b) {
			return false
		}
	}
	if len(b) == 0 {
		return true
	}
	w := f.load(off)
	for i := range b {
		if byte(w>>(8*i)) != b[i] {
			return false
		}
	}
	return true
}

// compare is bytes.Compare of the n bytes at off with b.
func (f *frame) compare(off, n int, b []byte) int {
	for i := 0; i < n && i < len(b); i += 8 {
		w := bits.ReverseBytes64(f.load(off + i))
		var o [8]byte
		copy(o[:], b[i:])
		x := binary.BigEndian.Uint64(o[:])
		if k := min(8, n-i, len(b)-i); k < 8 {
			w, x = w>>(64-8*k), x>>(64-8*k)
		}
		if w != x {
			if w < x {
				return -1
			}
			return 1
		}
	}
	return n - len(b)
}

// bytes appends the n bytes at off.
func (f *frame) bytes(off, n int, dst []byte) []byte {
	for ; n >= 8; off, n = off+8, n-8 {
		dst = binary.LittleEndian.AppendUint64(dst, f.load(off))
	}
	if n > 0 {
		w := f.load(off)
		for i := range n {
			dst = append(dst, byte(w>>(8*i)))
		}
	}
	return dst
}

// fill makes the frame a copy of leaf b. Under the lock.
func (f *frame) fill(b []byte) {
	for i := range f.words {
		f.store(i, binary.LittleEndian.Uint64(b[8*i:]))
	}
	f.lsn.Store(0)
	*f.changed() = 0
	f.mark(false)
	f.clean()
}

// clean records that the memory server has this image. Under the lock.
func (f *frame) clean() {
	changed, over := *f.changed(), f.over()
	clear(f.notes())
	*f.changed() = changed
	f.mark(over)
	f.first.Store(0)
}

// place returns the first word of free space for an entry of n bytes; 0 if there is none before the
// next flush.
func (f *frame) place(v *view, n int) int {
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
func (f *frame) own(i int, w uint64, n int) int {
	_, off, has := slotted.Slot(w)
	if f.over() && (has+7)/8 >= (n+7)/8 {
		return off / 8
	}
	if f.sets()[i/64]>>(i%64)&1 == 0 || (has+7)/8 != (n+7)/8 {
		return 0
	}
	return off / 8
}

// vacant returns a slot that is empty here and in the memory server; -1 if there is none.
func (f *frame) vacant(v *view) int {
	clears := f.clears()
	for i := range v.count {
		if f.word(v.dir+i)&0xfff == 0 && clears[i/64]>>(i%64)&1 == 0 {
			return i
		}
	}
	return -1
}

// put writes entry e at word at, and then the word of slot i. Under the lock.
func (f *frame) put(l *fence.Layout, v *view, i, at int, fp byte, e []byte) {
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
	*f.changed() |= 1 << (i % 64)
	low, high := f.written()
	if high == 0 {
		low = at
	}
	f.setWritten(min(low, at), max(high, at+n))
}

// remove empties slot i. Under the lock.
func (f *frame) remove(l *fence.Layout, v *view, i int) {
	f.busy(v) // the memory server's slot leads to the entry's words
	f.store(v.dir+i, slotted.SlotOf(l, f.seed(), i, 0, 0, nil))
	f.sets()[i/64] &^= 1 << (i % 64)
	f.clears()[i/64] |= 1 << (i % 64)
}

func (f *frame) seed() uint32 { return unit.Seed(pool.Addr(f.addr.Load()), uint32(f.word(0))) }

// content returns the number of entries and their bytes, each rounded up to words.
func (f *frame) content(v *view) (count, bytes int) {
	for i := range v.count {
		if _, _, n := slotted.Slot(f.word(v.dir + i)); n > 0 {
			count++
			bytes += (n + 7) &^ 7
		}
	}
	return count, bytes
}

func setBits(m []uint64, at, n int) {
	for end := at + n; at < end; {
		first := at % 64
		k := min(64-first, end-at)
		m[at/64] |= (1<<k - 1) << first
		at += k
	}
}
