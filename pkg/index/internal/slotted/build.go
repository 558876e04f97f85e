package slotted

import (
	"encoding/binary"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Load is how much a leaf holds or shall hold.
type Load struct {
	Count int
	Bytes int // of entries, each rounded up
}

// Add adds an entry of n bytes.
func (d *Load) Add(n int) {
	d.Count++
	d.Bytes += fence.RoundUp(n)
}

// LoadOf returns the load of items.
func LoadOf(items []EntryAt) (d Load) {
	for i := range items {
		d.Add(int(items[i].N))
	}
	return d
}

// Load returns how much the leaf holds.
func (l *Leaf) Load() (d Load) {
	for i := range l.Count {
		if n := SlotLength(l.SlotWord(i)); n != 0 {
			d.Add(n)
		}
	}
	return d
}

// Used returns how many bytes slots and entries take of a leaf.
func (d *Load) Used() int { return SlotBytes*d.Count + d.Bytes }

// Spare returns how many bytes a leaf keeps free if it can: an entry of average size, since an
// update writes the new entry while the old one stands.
func (d *Load) Spare() int { return fence.RoundUp(d.Bytes / max(1, d.Count)) }

// Packs reports whether a leaf with room bytes is compacted to hold d, where an entry more has not
// fitted: if a sixteenth is free afterwards and there is a spare; without a spare, if leaves are
// rewritten for each change anyway. A leaf of one entry cannot be divided: it holds any one.
func (d *Load) Packs(room int, spared bool) bool {
	return d.Used()+d.Spare() <= room-room/16 || !spared && d.Used() <= room || d.Count == 1
}

// slots is how many slots a leaf with room bytes gets, so that slots and heap are used up together
// if entries of the same size keep coming, with a spare entry left. At least as many as there are
// entries.
func (d *Load) slots(room, typical int) int {
	want := 0
	if d.Count == 0 {
		want = (room - typical) / (SlotBytes + typical)
	} else {
		want = (room - d.Spare()) * d.Count / d.Used()
	}
	return min(max(want, d.Count), (room-d.Bytes)/SlotBytes)
}

// typical returns the size of entries that an empty leaf is laid out for.
func typical(l *fence.Layout) int {
	if l.Uint64 {
		return fence.RoundUp(min(l.LongestEntry(), 128))
	}
	return fence.RoundUp(min(l.LongestEntry(), 64))
}

// Build makes the image of a leaf in b: header as given (but for level and count, which it fills
// in), and entries from to to of p. They must fit. It returns how many bytes of the node have a
// meaning: only those need be written.
func Build(b []byte, l *fence.Layout, addr pool.Addr, h *fence.Header, p *Pairs, from, to int) int {
	return BuildFor(b, l, addr, h, p, from, to, LoadOf(p.List[from:to]))
}

// BuildFor is Build of a leaf that is to hold d soon, which must fit, and has these entries of it
// already.
func BuildFor(b []byte, l *fence.Layout, addr pool.Addr, h *fence.Header, p *Pairs, from, to int, d Load) int {
	h.Level, h.Count = 0, d.slots(l.Room(h.Low, h.High), typical(l))
	h.Encode(b)
	l.Seal(b, h.End, addr, h.Version)
	seed := unit.Seed(addr, h.Version)
	at := h.End + SlotBytes*h.Count
	for i := range h.Count {
		w := SlotOf(l, seed, i, 0, 0, nil)
		if from+i < to {
			e := p.Entry(from + i)
			w = SlotOf(l, seed, i, l.Fingerprint(l.KeyOf(e)), at, e)
			n := at + copy(b[at:], e)
			at = fence.RoundUp(n)
			clear(b[n:at])
		}
		binary.LittleEndian.PutUint64(b[h.End+SlotBytes*i:], w)
	}
	if invariants.Enabled {
		var built Leaf
		invariants.Check(built.Open(l, addr, b[:l.NodeBytes]) && built.Verify(), "leaf %v does not verify after it was built", addr)
		invariants.Check(h.Rightmost || item.Below(h.Low, h.High), "leaf %v has fences %x and %x", addr, h.Low, h.High)
		for i := from; i < to; i++ {
			key := p.Key(i)
			invariants.Check(!item.Below(key, h.Low) && !h.Above(key), "leaf %v of %x to %x gets key %x", addr, h.Low, h.High, key)
		}
	}
	return at
}

// SplitAt returns how many of the sorted entries of a leaf with header h stay on the left: near the
// middle by bytes; nine tenths when the new one comes last, as in a sorted load. Both sides get at
// least one, and fit (see LeastNode).
func SplitAt(h *fence.Header, p *Pairs, newLast bool) int {
	l, all := p.Lay, LoadOf(p.List)
	target := all.Used() / 2
	if newLast {
		target = all.Used() * 9 / 10
	}
	best, miss := 1, -1
	var left Load
	for at := 1; at < len(p.List); at++ {
		left.Add(int(p.List[at-1].N))
		sep := l.Separator(p.Key(at-1), p.Key(at))
		if left.Used() > l.Room(h.Low, sep) || all.Used()-left.Used() > l.Room(sep, h.High) {
			continue
		}
		if d := max(left.Used()-target, target-left.Used()); miss < 0 || d < miss {
			best, miss = at, d
		}
	}
	return best
}
