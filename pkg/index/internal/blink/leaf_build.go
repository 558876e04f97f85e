package blink

import (
	"encoding/binary"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/index/internal/crc"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// load is how much a leaf holds or shall hold.
type load struct {
	count int
	bytes int // of entries, each rounded up
}

func (d *load) add(n int) {
	d.count++
	d.bytes += roundUp(n)
}

func loadOf(items []entryAt) (d load) {
	for i := range items {
		d.add(int(items[i].n))
	}
	return d
}

// load is what is in the leaf.
func (l *leaf) load() (d load) {
	for i := range l.count {
		if n := slotLength(l.slot(i)); n != 0 {
			d.add(n)
		}
	}
	return d
}

// used is what slots and entries take of a leaf.
func (d *load) used() int { return slotBytes*d.count + d.bytes }

// spare is what a leaf keeps free if it can: an entry of average size, as an update writes the new entry while the old one stands.
func (d *load) spare() int { return roundUp(d.bytes / max(1, d.count)) }

// room is what a leaf with these fences has for slots and heap.
func (l *layout) room(low, high []byte) int {
	return l.nodeBytes - roundUp(HeaderBytes+len(low)+len(high))
}

// slots is how many slots a leaf with room bytes gets, so that slots and heap are used up together if entries of the same size
// keep coming, with a spare entry left. At least as many as there are entries.
func (d *load) slots(room, typical int) int {
	want := 0
	if d.count == 0 {
		want = (room - typical) / (slotBytes + typical)
	} else {
		want = (room - d.spare()) * d.count / d.used()
	}
	return min(max(want, d.count), (room-d.bytes)/slotBytes)
}

// typical is the size of entries that an empty leaf is laid out for.
func (l *layout) typical() int {
	if l.Uint64 {
		return roundUp(min(l.LongestEntry(), 128))
	}
	return roundUp(min(l.LongestEntry(), 64))
}

// buildLeaf makes the image of a leaf in b: header as given (but for level and count, which it fills in), and items from to to
// of p. They must fit. It returns how many bytes of the node have a meaning: only those need be written.
func buildLeaf(b []byte, l *layout, addr pool.Addr, h *header, p *pairs, from, to int) int {
	d := loadOf(p.list[from:to])
	h.level, h.count = 0, d.slots(l.room(h.low, h.high), l.typical())
	h.encode(b)
	unit.Seal(b, h.end, addr, h.version)
	seed := unit.Seed(addr, h.version)
	at := h.end + slotBytes*h.count
	for i := range h.count {
		w := slotWord(unit.SlotSeed(seed, i), 0, 0, 0)
		if from+i < to {
			e := p.Entry(from + i)
			w = slotWord(crc.Sum(unit.SlotSeed(seed, i), e), l.Fingerprint(l.KeyOf(e)), at, len(e))
			n := at + copy(b[at:], e)
			at = roundUp(n)
			clear(b[n:at])
		}
		binary.LittleEndian.PutUint64(b[h.end+slotBytes*i:], w)
	}
	if invariants.Enabled {
		var built leaf
		invariants.Check(built.open(l, addr, b[:l.nodeBytes]) && built.verifyAll(), "leaf %v does not verify after it was built", addr)
		invariants.Check(h.rightmost || item.Below(h.low, h.high), "leaf %v has fences %x and %x", addr, h.low, h.high)
		for i := from; i < to; i++ {
			key := p.key(i)
			invariants.Check(!item.Below(key, h.low) && !h.above(key), "leaf %v of %x to %x gets key %x", addr, h.low, h.high, key)
		}
	}
	return at
}

// splitAt chooses how many of the sorted items of a leaf with header h stay on the left: near the middle by bytes; nine tenths
// when the new one comes last, as in a sorted load. Both sides get at least one, and fit (see leastNode).
func splitAt(h *header, p *pairs, newLast bool) int {
	l, all := p.lay, loadOf(p.list)
	target := all.used() / 2
	if newLast {
		target = all.used() * 9 / 10
	}
	best, miss := 1, -1
	var left load
	for at := 1; at < len(p.list); at++ {
		left.add(int(p.list[at-1].n))
		sep := l.Separator(p.key(at-1), p.key(at))
		if left.used() > l.room(h.low, sep) || all.used()-left.used() > l.room(sep, h.high) {
			continue
		}
		if d := max(left.used()-target, target-left.used()); miss < 0 || d < miss {
			best, miss = at, d
		}
	}
	return best
}
