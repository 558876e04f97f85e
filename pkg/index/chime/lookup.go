package chime

import (
	"bytes"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Lookup implements index.Session (section 4.4, "Search"): the neighbourhood of the key's home is
// READ with a replica of the metadata, without the lock. One round trip when the inner nodes are in
// the cache.
//
// A hit needs the one slot to verify: whoever takes the key out of this leaf, or to another one,
// lets nobody change it elsewhere before the slot is gone here. A miss needs all slots, the home
// word and the replica to verify at one version, the home word to be what the keys make of it, and
// the leaf to be the one that holds the key. docs/design/chime.md has the whole argument.
//
// A value in a block is READ after that: a round trip more.
func (s *session) Lookup(key, dst []byte) ([]byte, error) {
	s.Begin()
	defer s.End()
	return s.find(key, dst)
}

// find is Lookup as a part of an operation.
func (s *session) find(key, dst []byte) ([]byte, error) {
	if err := s.Lay.CheckKey(key); err != nil {
		return dst, err
	}
	p, err := s.Descend(key)
	if err != nil {
		return dst, explain("look up", err)
	}
	k := s.leafKey(key)
	hash := s.t.hash(k)
	home, fp, e := s.t.homeOf(hash), uint16(hash), asParentSays
	if v, ok, err := s.speculate(p.Addr(), home, fp, key, k, dst); ok || err != nil {
		return v, err
	}
	for hops := 0; ; {
		w := s.piecesFor(&p, home, e)
		if err := s.readPieces(&w, p.Addr(), s.Node); err != nil {
			return dst, explain("look up", err)
		}
		l := leaf{&s.t.shape, p.Addr(), s.Node}
		version, holds := l.checkRange(&w, key, home)
		switch slot, entry, value, o, err := s.match(&l, key, k, home, version); {
		case err != nil:
			return dst, explain("look up", err)
		case o == present && s.t.indirect:
			s.t.hot.recordLookup(l.addr, slot, fp)
			return append(dst, value...), nil
		case o == present:
			if v, ok, err := s.value(dst, entry); ok || err != nil {
				s.t.hot.recordLookup(l.addr, slot, fp)
				return v, err
			}
			holds = true
		case o == absent && holds:
			return dst, index.ErrNotFound
		}
		if e, err = s.nextExtent(&p, &l, &w, key, holds, e, &hops); err != nil {
			return dst, explain("look up", err)
		}
	}
}

// speculate READs the slot alone in which the hotspot buffer says that key is (section 4.3), of the
// leaf at a, where the descent led. A slot that verifies and has the key says all. ok is false if
// there is none, or it does not have the key: then the neighbourhood is to be READ.
func (s *session) speculate(a pool.Addr, home int, fp uint16, key, k, dst []byte) (v []byte, ok bool, err error) {
	t := s.t
	slot, ok := t.hot.hottest(a, fp)
	if !ok || slot >= t.n || t.ahead(home, slot) >= t.hood {
		return dst, false, nil
	}
	t.hot.speculated.Add(1)
	at := t.slotAt(slot)
	if err := s.Read(a+pool.Addr(at), s.Node[at:at+t.slot]); err != nil {
		return dst, false, explain("look up", err)
	}
	l := leaf{&t.shape, a, s.Node}
	e := l.entryAt(slot, k)
	if e == nil {
		return dst, false, nil
	}
	if v, ok, err = s.value(dst, e); err != nil || !ok {
		return dst, false, err
	}
	if t.indirect {
		has, value, whole := splitPair(v[len(dst):])
		if !whole || !bytes.Equal(has, key) {
			return dst, false, nil
		}
		v = append(dst, value...)
	}
	t.hot.speculatedRight.Add(1)
	t.hot.recordLookup(a, slot, fp)
	return v, true, nil
}

// value appends the value of entry e to dst. ok is false if it is in a block that does not hold it.
func (s *session) value(dst, e []byte) (v []byte, ok bool, err error) {
	r, long := blocks.ReferenceIn(s.t.codec, e)
	if !long {
		return append(dst, s.Lay.ValueOf(e)...), true, nil
	}
	value, err := s.Blocks.Value(&r)
	if err != nil {
		return dst, false, explain("look up", err)
	}
	return append(dst, value...), value != nil, nil
}

// nextExtent goes on where what was READ of l, where p leads, does not say, and says how much to
// READ next. holds: it is the leaf that holds key, and torn: READ the same again. Else its head
// says where to go; and all of it is READ, if the head does not verify, or is not to blame.
func (s *session) nextExtent(p *btree.Path, l *leaf, w *pieces, key []byte, holds bool, e extent, hops *int) (extent, error) {
	if holds {
		return e, s.Reread(p.Addr())
	}
	if e != wholeLeaf && s.t.with.hopscotchLeaf {
		if !w.head {
			return withHead, nil
		}
		var h fence.Header
		if head := headerOf(l, &h); head == nil || !h.Below(key) && !h.Above(key) {
			return wholeLeaf, nil
		}
	}
	var h fence.Header
	return asParentSays, s.Resolve(p, headerOf(l, &h), key, s.Node, hops)
}
