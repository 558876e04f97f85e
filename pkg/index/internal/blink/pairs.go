package blink

import (
	"bytes"
	"slices"

	"github.com/dmindex/dmindex/pkg/index/internal/item"
)

// pairs are the entries of a leaf's image in some order, and perhaps one more that is about to come into the leaf.
type pairs struct {
	lay   *layout
	image []byte
	extra []byte // the entry of the item at offset 0
	skip  int    // how many bytes all keys have in common, being between the leaf's fences
	list  []entryAt
}

// entryAt is one entry of pairs.
type entryAt struct {
	prefix uint64 // of its key, without the common bytes
	off    uint32 // where it is in the image, which may be of two leaves
	n      uint16 // how long it is
}

// collect makes p the entries of l, in the order of slots. false means that the leaf is torn.
func (l *leaf) collect(p *pairs) bool {
	p.lay, p.image, p.extra, p.list, p.skip = l.lay, l.b, nil, p.list[:0], 0
	if !l.lay.Uint64 && !l.rightmost {
		p.skip = item.CommonPrefix(l.low, l.high)
	}
	for i := range l.count {
		w := l.slot(i)
		if slotLength(w) == 0 {
			if w != l.empty(i) {
				return false
			}
			continue
		}
		e := l.entry(w)
		if e == nil || !l.verified(i, w, e) {
			return false
		}
		key, _, ok := l.lay.Pair(e)
		if !ok || len(key) < p.skip {
			return false
		}
		p.list = append(p.list, entryAt{item.PrefixOf(key[p.skip:]), uint32(slotOffset(w)), uint16(len(e))})
	}
	return true
}

// add appends an entry that is not in the image; there can be one.
func (p *pairs) add(e []byte) {
	p.extra = e
	p.list = append(p.list, entryAt{item.PrefixOf(p.lay.KeyOf(e)[p.skip:]), 0, uint16(len(e))})
}

// replace puts e in the place of the entry with the same key.
func (p *pairs) replace(e []byte) {
	key := p.lay.KeyOf(e)
	for i := range p.list {
		if bytes.Equal(p.key(i), key) {
			p.extra = e
			p.list[i].off, p.list[i].n = 0, uint16(len(e))
			return
		}
	}
}

// Len and Entry implement blocks.Entries.
func (p *pairs) Len() int { return len(p.list) }

// Entry, key and pair are those of item i.
func (p *pairs) Entry(i int) []byte { return p.at(p.list[i]) }

func (p *pairs) key(i int) []byte { return p.lay.KeyOf(p.Entry(i)) }
func (p *pairs) pair(i int) (key, value []byte) {
	key, value, _ = p.lay.Pair(p.Entry(i))
	return key, value
}

// same says whether items i and i+1 have the same key.
func (p *pairs) same(i int) bool {
	return p.list[i].prefix == p.list[i+1].prefix && (p.lay.Uint64 || bytes.Equal(p.key(i), p.key(i+1)))
}

// fewItems is up to how many are sorted by insertion.
const fewItems = 48

// sort sorts by key. A leaf was sorted when it was last rewritten and has grown at its end since, which suits insertion.
func (p *pairs) sort() {
	if len(p.list) > fewItems {
		slices.SortFunc(p.list, func(a, b entryAt) int {
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
	for i := 1; i < len(p.list); i++ {
		it, j := p.list[i], i
		for ; j > 0; j-- {
			before := p.list[j-1]
			if before.prefix < it.prefix || before.prefix == it.prefix && !p.less(it, before) {
				break
			}
			p.list[j] = before
		}
		p.list[j] = it
	}
}

// resort computes what sorting goes by anew, for a leaf with header h, and sorts.
func (p *pairs) resort(h *header) {
	p.skip = 0
	if !p.lay.Uint64 && !h.rightmost {
		p.skip = item.CommonPrefix(h.low, h.high)
	}
	for i := range p.list {
		p.list[i].prefix = item.PrefixOf(p.key(i)[p.skip:])
	}
	p.sort()
}

func (p *pairs) less(a, b entryAt) bool {
	if a.prefix != b.prefix || p.lay.Uint64 {
		return a.prefix < b.prefix
	}
	return item.Below(p.lay.KeyOf(p.at(a)), p.lay.KeyOf(p.at(b)))
}

func (p *pairs) at(it entryAt) []byte {
	if it.off == 0 {
		return p.extra
	}
	return p.image[it.off : it.off+uint32(it.n)]
}
