package slotted

import (
	"encoding/binary"
	"math/bits"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
)

// Changes of a leaf's image under its lock. The caller posts them, from the places that these
// functions return.

// HeapMap has a bit for each grain of a leaf's bytes that is in use. The last word is never used: a
// run may reach into it.
type HeapMap [fence.MaxNodeBytes/fence.Grain/64 + 1]uint64

// Mark sets n bits from bit at on.
func (m *HeapMap) Mark(at, n int) {
	for n > 0 {
		i, off := at/64, at%64
		k := min(n, 64-off)
		m[i] |= (1<<k - 1) << off // 1<<64 is 0, so 64 bits work too
		at += k
		n -= k
	}
}

// Next returns the first bit from at on that is set (or clear), at most end.
func (m *HeapMap) Next(at, end int, set bool) int {
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

// Space is what is free of a leaf's heap, for entries that are placed one after another.
type Space struct {
	Used HeapMap
	last int // unit behind the last entry
}

// Place finds n bytes of the heap that no live entry has; 0 if there are none.
func (l *Leaf) Place(m *Space, n int) int {
	l.Occupy(m)
	return l.Take(m, n)
}

// Occupy makes m what the live entries leave free.
func (l *Leaf) Occupy(m *Space) {
	end, last := len(l.Bytes)/fence.Grain, l.heap/fence.Grain
	used := &m.Used
	clear(used[:(end+63)/64])
	dir := l.Bytes[l.End:l.heap]
	for i := 0; i < len(dir)/SlotBytes; i++ {
		w := binary.LittleEndian.Uint64(dir[SlotBytes*i:])
		if w&0xfff == 0 {
			continue
		}
		first, units := int(w>>12&0xfff), (int(w&0xfff)+fence.Grain-1)/fence.Grain
		if units < 64 { // mark, where it pays
			j, off, mask := first>>6, first&63, uint64(1)<<(units&63)-1
			used[j] |= mask << off
			used[j+1] |= mask >> 1 >> (63 - off)
		} else {
			used.Mark(first, units)
		}
		last = max(last, first+units)
	}
	m.last = last
}

// Take finds n bytes that are free in m; 0 if there are none. They are free no more. Behind the
// last entry there is room until that is used up for the first time. Then there are gaps.
func (l *Leaf) Take(m *Space, n int) int {
	end, need := len(l.Bytes)/fence.Grain, (n+fence.Grain-1)/fence.Grain
	if at := m.last; at+need <= end {
		m.Used.Mark(at, need)
		m.last += need
		return at * fence.Grain
	}
	for at := l.heap / fence.Grain; ; {
		at = m.Used.Next(at, end, false)
		if end-at < need {
			return 0
		}
		stop := m.Used.Next(at, end, true)
		if stop-at >= need {
			m.Used.Mark(at, need)
			return at * fence.Grain
		}
		at = stop
	}
}

// Vacant returns an empty slot; -1 if there is none.
func (l *Leaf) Vacant() int { return l.VacantFrom(0) }

// VacantFrom returns an empty slot, but none before slot i; -1 if there is none.
func (l *Leaf) VacantFrom(i int) int {
	for ; i < l.Count; i++ {
		if SlotLength(l.SlotWord(i)) == 0 {
			return i
		}
	}
	return -1
}

// Put writes entry e of the key with fingerprint fp at offset off, and then the word of slot i,
// which publishes it.
func (l *Leaf) Put(i int, fp byte, off int, e []byte) {
	l.put(i, fp, off, e)
	if invariants.Enabled {
		invariants.Check(off >= l.heap && off+len(e) <= len(l.Bytes), "entry of %d bytes at %d of leaf %v", len(e), off, l.Addr)
		invariants.Check(l.Verify(), "leaf %v does not verify after slot %d was written", l.Addr, i)
	}
}

func (l *Leaf) put(i int, fp byte, off int, e []byte) {
	copy(l.Bytes[off:], e)
	binary.LittleEndian.PutUint64(l.Bytes[l.SlotAt(i):], SlotOf(l.Lay, l.seed, i, fp, off, e))
}

// Unmix makes mixed slots (Mixed) verify: their keys, which known has to know, have values of zeros
// then, in entries as long as they were. It returns how many; ok is false if one is none.
func (l *Leaf) Unmix(known func(key []byte) bool) (n int, ok bool) {
	var entry [MaxEntryBytes]byte
	ok = l.Mixed(func(i int, w uint64, key []byte) bool {
		n++
		if known(key) {
			l.put(i, slotFP(w), SlotOffset(w), PutZeros(l.Lay, entry[:], key, SlotLength(w)))
			return true
		}
		return false
	})
	return n, ok
}

// PutZeros encodes an entry of n bytes with a value of zeros into dst.
func PutZeros(l *fence.Layout, dst, key []byte, n int) []byte {
	e := l.PutEntry(dst, key, nil)
	clear(dst[len(e):n])
	return dst[:n]
}

// Remove empties slot i.
func (l *Leaf) Remove(i int) {
	binary.LittleEndian.PutUint64(l.Bytes[l.SlotAt(i):], l.empty(i))
}
