package blink

import (
	"encoding/binary"
	"math/bits"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/index/internal/crc"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
)

// Changes of a leaf's image under its lock. Nothing here posts: write.go does, from the places that these functions return.

// heapMap has a bit for each unit of a leaf's bytes that is in use. The last word is never used: a run may be said to reach into it.
type heapMap [maxNodeBytes/grain/64 + 1]uint64

// mark sets n bits from bit at on.
func (m *heapMap) mark(at, n int) {
	for n > 0 {
		i, off := at/64, at%64
		k := min(n, 64-off)
		m[i] |= (1<<k - 1) << off // 1<<64 is 0, so 64 bits work too
		at += k
		n -= k
	}
}

// next is the first bit from at on that is set (or clear), at most end.
func (m *heapMap) next(at, end int, set bool) int {
	for at < end {
		w := m[at/64]
		if !set {
			w = ^w
		}
		if w >>= at % 64; w != 0 {
			return min(end, at+bits.TrailingZeros64(w))
		}
		at = (at/64 + 1) * 64
	}
	return end
}

// place finds n bytes of the heap that no live entry has; 0 if there are none. Behind the last entry there is room until that is used up for the first
// time; then there are gaps.
func (l *leaf) place(m *heapMap, n int) int {
	end, last := len(l.b)/grain, l.heap/grain
	clear(m[:(end+63)/64])
	dir := l.b[l.end:l.heap]
	for i := 0; i < len(dir)/slotBytes; i++ {
		w := binary.LittleEndian.Uint64(dir[slotBytes*i:])
		if w&0xfff == 0 {
			continue
		}
		first, units := int(w>>12&0xfff), (int(w&0xfff)+grain-1)/grain
		if units < 64 { // mark, where it pays
			j, off, mask := first>>6, first&63, uint64(1)<<(units&63)-1
			m[j] |= mask << off
			m[j+1] |= mask >> 1 >> (63 - off)
		} else {
			m.mark(first, units)
		}
		last = max(last, first+units)
	}
	need := (n + grain - 1) / grain
	if last+need <= end {
		return last * grain
	}
	for at := l.heap / grain; ; {
		at = m.next(at, end, false)
		if end-at < need {
			return 0
		}
		stop := m.next(at, end, true)
		if stop-at >= need {
			return at * grain
		}
		at = stop
	}
}

// vacant is an empty slot; -1 if there is none.
func (l *leaf) vacant() int {
	for i := range l.count {
		if slotLength(l.slot(i)) == 0 {
			return i
		}
	}
	return -1
}

// put writes entry e of the key with fingerprint fp at offset off, and then the word of slot i that publishes it.
func (l *leaf) put(i int, fp byte, off int, e []byte) {
	copy(l.b[off:], e)
	w := slotWord(crc.Sum(unit.SlotSeed(l.seed, i), e), fp, off, len(e))
	binary.LittleEndian.PutUint64(l.b[l.slotAt(i):], w)
	if invariants.Enabled {
		invariants.Check(off >= l.heap && off+len(e) <= len(l.b), "entry of %d bytes at %d of leaf %v", len(e), off, l.addr)
		invariants.Check(l.verifyAll(), "leaf %v does not verify after slot %d was written", l.addr, i)
	}
}

// remove empties slot i.
func (l *leaf) remove(i int) {
	binary.LittleEndian.PutUint64(l.b[l.slotAt(i):], l.empty(i))
}
