package chime

import (
	"bytes"

	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// halves is a locked leaf that is divided, with a new key. It implements btree.Halves.
type halves struct {
	s     *session
	t     *target
	at    int // pairs from here on go to the right
	tabs  [2]table
	entry []byte // of the new key; nil = it comes into neither
}

// fresh is the item of the new key in a table.
const fresh = maxSlots

// split splits the locked leaf, which was READ as a whole and has no room for key, and gives the
// word up. If no hop makes room in a half either, the key comes into none: errSplit.
//
// Pairs that stay, and those that go, keep the numbers of their slots (section 4.4, "the new node's
// corresponding entries"), unless they hop for the new key. The split is that of package btree: the
// new leaf is WRITTEN, then this one is rewritten, with the release. So nobody knows the new leaf
// before this one is whole, without the pairs that went.
func (s *session) split(t *target, key, value []byte) error {
	p := &s.pairs
	if ok, err := s.loadKeys(p); err != nil || !ok {
		if err == nil {
			err = s.Blocks.Refused()
		}
		return s.Unlock(err)
	}
	p.sort()
	n := len(p.list)
	pos := 0
	for pos < n && item.Below(p.key(pos), key) {
		pos++
	}
	last := pos == n && t.header.Rightmost
	d := &halves{s: s, t: t}
	// of the n+1 pairs with the new one, these stay; the new one is number pos of them
	stay := (n + 1) / 2
	if last {
		stay = n
	}
	ok := d.place(p, stay, pos)
	for _, other := range []int{stay + 1, stay - 1} {
		if ok || other < 1 || other > n {
			break
		}
		stay = other
		ok = d.place(p, stay, pos)
	}
	keyOf := func(i int) []byte {
		switch {
		case i == pos:
			return key
		case i > pos:
			i--
		}
		return p.key(i)
	}
	var separator []byte
	if ok {
		separator = s.Lay.Separator(keyOf(stay-1), keyOf(stay))
		var err error
		if d.entry, err = s.Blocks.PutEntry(s.scratch, t.key, s.leafValue(key, value), t.addr); err != nil {
			return s.Unlock(err)
		}
	} else {
		d.at = n / 2
		d.split(p)
		separator = s.Lay.Separator(p.key(d.at-1), p.key(d.at))
	}
	err := s.SplitLeaf(&t.header, separator, last, d)
	if err != nil && s.PS.Holds() {
		err = s.Unlock(err)
	}
	if err != nil {
		s.Blocks.Discard()
		return err
	}
	if !ok {
		return errSplit
	}
	return nil
}

// place makes the tables of the halves if stay of the pairs with the new one, which is number pos,
// stay. false: a half has no room for it.
func (d *halves) place(p *pairs, stay, pos int) bool {
	d.at = stay
	half := 1
	if pos < stay {
		d.at, half = stay-1, 0
	}
	d.split(p)
	return d.tabs[half].insert(d.t.home, fresh)
}

// split makes the tables of the halves without the new key.
func (d *halves) split(p *pairs) {
	for i := range d.tabs {
		d.tabs[i].reset(&d.s.t.shape, vacant)
	}
	for i := range p.list {
		t := &d.tabs[0]
		if i >= d.at {
			t = &d.tabs[1]
		}
		slot := p.list[i].slot
		t.home[slot], t.item[slot] = int16(d.s.t.home(d.s.t.codec.KeyOf(p.Entry(i)))), slot
	}
}

// entryOf is the entry of an item of the tables.
func (d *halves) entryOf(it int) []byte {
	if it == fresh {
		return d.entry
	}
	e, _, _ := d.t.leaf.entry(it)
	return e
}

// Left implements btree.Halves. The own bits change with the release.
func (d *halves) Left(b, separator []byte, to pool.Addr) int {
	h := d.t.header
	h.Version++
	h.High, h.Rightmost, h.Sibling = separator, false, to
	d.s.PS.SetOwn(hintBits, uint64(d.s.t.hintsOf(&d.tabs[0])))
	l := leaf{d.t.shape, d.t.addr, b}
	return l.build(&h, &d.tabs[0], d.entryOf)
}

// Right implements btree.Halves. Of the new leaf's word nothing is known yet: its own bits are 0.
func (d *halves) Right(b, separator []byte, to pool.Addr) int {
	h := d.t.header
	h.Version, h.Low = unit.NewVersion(d.s.Env), bytes.Clone(separator)
	l := leaf{d.t.shape, to, b}
	return l.build(&h, &d.tabs[1], d.entryOf)
}
