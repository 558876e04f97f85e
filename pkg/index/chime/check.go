package chime

import (
	"bytes"
	"encoding/binary"

	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/checker"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/pool"
)

// leafChecker implements btree.LeafChecker.
type leafChecker struct {
	t     *tree
	pairs pairs
	tab   table
}

// CheckLeaf implements btree.LeafChecker. Besides its pairs it checks what the leaf's lock word
// says: nobody holds it, and it hides no empty slot.
func (c *leafChecker) CheckLeaf(s *btree.Session, r *checker.Report, a pool.Addr, b []byte) (bool, error) {
	l := leaf{&c.t.shape, a, b}
	h, ok := l.open()
	p := &c.pairs
	if !ok || !p.collect(l, &h) {
		return false, nil
	}
	if err := c.checkWord(s, r, &l, h.Version); err != nil {
		return true, err
	}
	if c.t.indirect {
		return true, c.checkBlocks(s, r, &h)
	}
	p.sort()
	for i := range p.list {
		key, value := p.pair(i)
		if item.Below(key, h.Low) || h.Above(key) {
			r.Fault("leaf %v of %x to %x has key %x", a, h.Low, h.High, key)
		}
		if i > 0 && !item.Below(p.key(i-1), key) {
			r.Fault("leaf %v has key %x twice", a, key)
		}
		length := len(value)
		if at, ok := blocks.ReferenceIn(c.t.codec, p.Entry(i)); ok {
			if length = at.Length; length > s.Lay.MaxValue {
				r.Fault("leaf %v has a value of %d bytes", a, length)
				continue
			}
			if err := r.Block(a, &at, &s.Blocks); err != nil {
				return true, err
			}
		}
		r.Pair(len(key), length)
	}
	return true, nil
}

// checkBlocks is CheckLeaf for the pairs, where they lie in blocks.
func (c *leafChecker) checkBlocks(s *btree.Session, r *checker.Report, h *fence.Header) error {
	p, have := &c.pairs, map[string]bool{}
	for i := range p.list {
		at, ok := blocks.ReferenceIn(c.t.codec, p.Entry(i))
		if !ok {
			r.Fault("leaf %v: slot %d has no reference", p.l.addr, p.list[i].slot)
			continue
		}
		if err := r.Block(p.l.addr, &at, &s.Blocks); err != nil {
			return err
		}
		key, value, err := checkPair(&s.Blocks, &at)
		if err != nil {
			return err
		}
		var want [8]byte
		c.t.fingerprint(&want, key)
		if !bytes.Equal(want[:], c.t.codec.KeyOf(p.Entry(i))) {
			r.Fault("leaf %v has another fingerprint for key %x", p.l.addr, key)
		}
		if item.Below(key, h.Low) || h.Above(key) || have[string(key)] {
			r.Fault("leaf %v of %x to %x has key %x, twice: %v", p.l.addr, h.Low, h.High, key, have[string(key)])
		}
		have[string(key)] = true
		r.Pair(len(key), len(value))
	}
	return nil
}

// checkWord checks the lock word of leaf l. Its holder may have died: then it says REPAIR.
func (c *leafChecker) checkWord(s *btree.Session, r *checker.Report, l *leaf, version uint32) error {
	at, err := s.Words.WordOf(l.addr)
	if err != nil {
		return err
	}
	word := s.Spare[:8]
	if err := s.Read(at, word); err != nil {
		return err
	}
	w := binary.NativeEndian.Uint64(word)
	holder, bits := uint16(w), vacancyHints(w>>16)
	if holder != 0 && holder != pool.Repair {
		r.Fault("leaf %v: client %d holds its lock word", l.addr, holder)
	}
	if holder != 0 || !bits.isKnown() {
		return nil
	}
	l.tabulate(&c.tab, version, 0, l.n)
	is := l.hintsOf(&c.tab)
	if hidden := is &^ bits & vacancyMask; hidden != 0 {
		r.Fault("leaf %v: its lock word says %#x of empty slots, there are %#x", l.addr, uint64(bits&vacancyMask), uint64(is&vacancyMask))
	}
	if d := is.count() - bits.count(); (d < 0 || d > 1) && !l.overflows(bits) {
		r.Fault("leaf %v: its lock word counts %d pairs, it has %d", l.addr, bits.count(), is.count())
	}
	return nil
}
