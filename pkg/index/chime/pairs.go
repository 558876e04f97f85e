package chime

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
)

// pairs are those of a whole leaf, in the order of their keys. It implements blocks.Entries.
type pairs struct {
	l    leaf
	list []pairAt
	// where keys lie in blocks: what these hold, one behind the other
	bytes []byte
	// of the homes, as the keys make them
	digest [maxSlots]uint32
	bitmap [maxSlots]uint16
}

// pairAt is where a pair is, and the beginning of its key.
type pairAt struct {
	prefix uint64
	slot   int16
	at, n  int32 // in bytes
}

// Len implements blocks.Entries.
func (p *pairs) Len() int { return len(p.list) }

// Entry implements blocks.Entries.
func (p *pairs) Entry(i int) []byte {
	e, _, _ := p.l.entry(int(p.list[i].slot))
	return e
}

// pair is pair i. The value can be a reference. Where keys lie in blocks, these were READ.
func (p *pairs) pair(i int) (key, value []byte) {
	if at := p.list[i]; at.n > 0 {
		key, value, _ = splitPair(p.bytes[at.at:][:at.n])
		return key, value
	}
	key, value, _ = p.l.codec.Pair(p.Entry(i))
	return key, value
}

func (p *pairs) key(i int) []byte {
	key, _ := p.pair(i)
	return key
}

// keyOf is the key of a pair in the list.
func (p *pairs) keyOf(at pairAt) []byte {
	if at.n > 0 {
		key, _, _ := splitPair(p.bytes[at.at:][:at.n])
		return key
	}
	e, _, _ := p.l.entry(int(at.slot))
	return p.l.codec.KeyOf(e)
}

// collect makes p what is in the leaf with header h, not sorted yet. ok is false if it does not
// verify as a whole: replicas and slots at its version, and each home word as the keys make it. So
// for each home the keys are those at one moment, while the leaf was READ.
func (p *pairs) collect(l leaf, h *fence.Header) (ok bool) {
	p.l, p.list = l, p.list[:0]
	for g := range l.groups() {
		if v, sibling, ok := l.replica(g); !ok || v != h.Version || sibling != siblingOf(h) {
			return false
		}
	}
	for i := range l.n {
		p.digest[i], p.bitmap[i] = l.emptyDigest(i, h.Version), 0
	}
	for i := range l.n {
		e, v, ok := l.entry(i)
		if !ok || v != h.Version {
			return false
		}
		if e == nil {
			continue
		}
		key, _, ok := l.codec.Pair(e)
		if !ok {
			return false
		}
		hash := l.hash(key)
		home := l.homeOf(hash)
		j := l.ahead(home, i)
		if j >= l.hood {
			return false
		}
		p.digest[home] += l.digestTerm(home, j, h.Version, hash)
		p.bitmap[home] |= 1 << j
		p.list = append(p.list, pairAt{prefix: item.PrefixOf(key), slot: int16(i)})
	}
	for i := range l.n {
		if d, m := l.homeWord(i); d != p.digest[i] || m != p.bitmap[i] {
			return false
		}
	}
	return true
}

func (p *pairs) sort() {
	slices.SortFunc(p.list, func(a, b pairAt) int {
		if c := cmp.Compare(a.prefix, b.prefix); c != 0 || p.l.lay.Uint64 {
			return c
		}
		return bytes.Compare(p.keyOf(a), p.keyOf(b))
	})
}

// tabulate makes t the table of the leaf: of the slots that known has, at a version. What is in
// others is not to be moved.
func (l *leaf) tabulate(t *table, version uint32, from, known int) {
	t.reset(l.shape, fixed)
	for d := range known {
		i := l.next(from, d)
		e, v, ok := l.entry(i)
		switch {
		case !ok || v != version:
		case e == nil:
			t.home[i] = vacant
		default:
			t.home[i], t.item[i] = int16(l.home(l.codec.KeyOf(e))), int16(i)
		}
	}
}
