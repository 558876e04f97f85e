package slotted

import (
	"bytes"
	"slices"

	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
)

// Pairs are the entries of a leaf's image in some order, and perhaps one more that is about to come
// into the leaf.
type Pairs struct {
	Lay   *fence.Layout
	Image []byte
	extra []byte // the entry of the item at offset 0
	skip  int    // how many bytes all keys have in common, being between the leaf's fences
	List  []EntryAt
}

// EntryAt is one entry of Pairs.
type EntryAt struct {
	prefix uint64 // of its key, without the common bytes
	Off    uint32 // where it is in the image, which may be of two leaves
	N      uint16 // how long it is
}

// Collect makes p the entries of l, in the order of slots. False means that the leaf is torn.
func (l *Leaf) Collect(p *Pairs) bool {
	p.Lay, p.Image, p.extra, p.List, p.skip = l.Lay, l.Bytes, nil, p.List[:0], 0
	if !l.Lay.Uint64 && !l.Rightmost {
		p.skip = item.CommonPrefix(l.Low, l.High)
	}
	for i := range l.Count {
		w := l.SlotWord(i)
		if SlotLength(w) == 0 {
			if w != l.empty(i) {
				return false
			}
			continue
		}
		e := l.EntryAt(w)
		if e == nil || !l.verified(i, w, e) {
			return false
		}
		key, _, ok := l.Lay.Pair(e)
		if !ok || len(key) < p.skip {
			return false
		}
		p.List = append(p.List, EntryAt{item.PrefixOf(key[p.skip:]), uint32(SlotOffset(w)), uint16(len(e))})
	}
	return true
}

// Add appends an entry that is not in the image; there can be one.
func (p *Pairs) Add(e []byte) {
	p.extra = e
	p.List = append(p.List, EntryAt{item.PrefixOf(p.Lay.KeyOf(e)[p.skip:]), 0, uint16(len(e))})
}

// Replace puts e in the place of the entry with the same key.
func (p *Pairs) Replace(e []byte) {
	key := p.Lay.KeyOf(e)
	for i := range p.List {
		if bytes.Equal(p.Key(i), key) {
			p.extra = e
			p.List[i].Off, p.List[i].N = 0, uint16(len(e))
			return
		}
	}
}

// Len and Entry implement blocks.Entries.
func (p *Pairs) Len() int { return len(p.List) }

// Entry, Key and Pair return those of entry i.
func (p *Pairs) Entry(i int) []byte { return p.at(p.List[i]) }

func (p *Pairs) Key(i int) []byte { return p.Lay.KeyOf(p.Entry(i)) }
func (p *Pairs) Pair(i int) (key, value []byte) {
	key, value, _ = p.Lay.Pair(p.Entry(i))
	return key, value
}

// Same reports whether items i and i+1 have the same key.
func (p *Pairs) Same(i int) bool {
	return p.List[i].prefix == p.List[i+1].prefix && (p.Lay.Uint64 || bytes.Equal(p.Key(i), p.Key(i+1)))
}

// fewItems is up to how many are sorted by insertion.
const fewItems = 48

// Sort sorts by key. A leaf was sorted when it was last rewritten and has grown at its end since,
// which suits insertion.
func (p *Pairs) Sort() {
	if len(p.List) > fewItems {
		slices.SortFunc(p.List, func(a, b EntryAt) int {
			if p.less(a, b) {
				return -1
			}
			if p.less(b, a) {
				return 1
			}
			return 0
		})
		return
	}
	for i := 1; i < len(p.List); i++ {
		it, j := p.List[i], i
		for ; j > 0; j-- {
			before := p.List[j-1]
			if before.prefix < it.prefix || before.prefix == it.prefix && !p.less(it, before) {
				break
			}
			p.List[j] = before
		}
		p.List[j] = it
	}
}

// Resort computes the common prefix anew, for a leaf with header h, and sorts.
func (p *Pairs) Resort(h *fence.Header) {
	p.skip = 0
	if !p.Lay.Uint64 && !h.Rightmost {
		p.skip = item.CommonPrefix(h.Low, h.High)
	}
	for i := range p.List {
		p.List[i].prefix = item.PrefixOf(p.Key(i)[p.skip:])
	}
	p.Sort()
}

func (p *Pairs) less(a, b EntryAt) bool {
	if a.prefix != b.prefix || p.Lay.Uint64 {
		return a.prefix < b.prefix
	}
	return item.Below(p.Lay.KeyOf(p.at(a)), p.Lay.KeyOf(p.at(b)))
}

func (p *Pairs) at(it EntryAt) []byte {
	if it.Off == 0 {
		return p.extra
	}
	return p.Image[it.Off : it.Off+uint32(it.N)]
}
