package frame

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

// View is a leaf's header. Without the lock it may be nonsense; then the version has changed.
type View struct {
	dir, heap int // words where the directory and the heap begin
	Count     int
	lowLen    int
	highLen   int
	rightmost bool
}

const (
	fenceWord     = fence.HeaderBytes / 8
	flagRightmost = 1 << 8 // of word 1
)

// Open reads the header. It returns false if the header makes no sense.
func (f *Frame) Open(v *View) bool {
	w := f.word(1)
	v.Count, v.lowLen, v.highLen = int(w>>16&0xffff), int(w>>32&0xffff), int(w>>48)
	v.rightmost = w&flagRightmost != 0
	v.dir = fenceWord + (v.lowLen+v.highLen+7)/8
	v.heap = v.dir + v.Count
	return v.heap <= len(f.words)
}

// Slot is the word of slot i.
func (f *Frame) Slot(v *View, i int) uint64 { return f.word(v.dir + i) }

// Room returns the bytes that entries have at most.
func (f *Frame) Room(v *View) int { return 8 * (len(f.words) - v.heap) }

// LowFence appends the leaf's lower fence to dst.
func (f *Frame) LowFence(v *View, dst []byte) []byte { return f.bytes(8*fenceWord, v.lowLen, dst) }

// CopyTo copies the image to b.
func (f *Frame) CopyTo(b []byte) {
	for i := range f.words {
		binary.LittleEndian.PutUint64(b[8*i:], f.word(i))
	}
}

// Below reports whether key lies below the leaf's range.
func (f *Frame) Below(v *View, key []byte, numbers bool) bool {
	if numbers {
		return binary.BigEndian.Uint64(key) < bits.ReverseBytes64(f.word(fenceWord))
	}
	return f.compare(8*fenceWord, v.lowLen, key) > 0
}

// Above reports whether key lies above the leaf's range.
func (f *Frame) Above(v *View, key []byte, numbers bool) bool {
	switch {
	case v.rightmost:
		return false
	case numbers:
		return binary.BigEndian.Uint64(key) >= bits.ReverseBytes64(f.word(fenceWord+1))
	}
	return f.compare(8*fenceWord+v.lowLen, v.highLen, key) <= 0
}

// Find returns the slot of key and its word; -1 if the key is not there.
func (f *Frame) Find(v *View, key []byte, fp byte, numbers bool) (slot int, w uint64) {
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

// Value appends the value of the entry of w, or its reference.
func (f *Frame) Value(w uint64, lay *fence.Layout, key, dst []byte) []byte {
	_, off, n := slotted.Slot(w)
	head := lay.ValueAt(len(key))
	return f.bytes(off+head, n-head, dst)
}

// Entry appends the entry of slot word w.
func (f *Frame) Entry(w uint64, dst []byte) []byte {
	_, off, n := slotted.Slot(w)
	return f.bytes(off, n, dst)
}

// Number is the key of the entry of slot word w, in an index whose keys are numbers.
func (f *Frame) Number(w uint64) uint64 {
	_, off, _ := slotted.Slot(w)
	return f.word(off / 8)
}

// Refers reports whether the value of the entry of w lies in a block.
func (f *Frame) Refers(w uint64, lay *fence.Layout) bool {
	if !lay.Blocks {
		return false
	}
	_, off, _ := slotted.Slot(w)
	i := off / 8
	return lay.HasReferenceIn(f.word(i), f.word(min(i+1, len(f.words)-1)))
}

// Content returns the number of entries and their bytes, each rounded up to words.
func (f *Frame) Content(v *View) (count, bytes int) {
	for i := range v.Count {
		if _, _, n := slotted.Slot(f.word(v.dir + i)); n > 0 {
			count++
			bytes += (n + 7) &^ 7
		}
	}
	return count, bytes
}

func (f *Frame) seed() uint32 { return unit.Seed(pool.Addr(f.addr.Load()), uint32(f.word(0))) }

func (f *Frame) word(i int) uint64     { return atomic.LoadUint64(&f.words[i]) }
func (f *Frame) store(i int, w uint64) { seqlock.Store(&f.words[i], w) }

// load returns the 8 bytes at off. Bytes beyond the end are zero.
func (f *Frame) load(off int) uint64 {
	i, s := off/8, uint(off%8*8)
	w := f.word(i) >> s
	if s > 0 && i+1 < len(f.words) {
		w |= f.word(i+1) << (64 - s)
	}
	return w
}

func (f *Frame) equal(off int, b []byte) bool {
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
func (f *Frame) compare(off, n int, b []byte) int {
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
func (f *Frame) bytes(off, n int, dst []byte) []byte {
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
