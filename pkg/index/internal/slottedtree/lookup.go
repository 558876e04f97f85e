package slottedtree

import (
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
)

// Lookup implements index.Session (section 4.4, "Lookup operation"): the leaf is READ without its
// lock. One round trip when the inner nodes are in the cache.
//
// A hit needs the header and the one slot to verify: the slot held that value at the moment that
// its word was read, or, if the leaf was being split then, at the moment that the header was read.
// A miss needs every slot to verify: a key that was there all the time stayed in one slot, and
// would have been seen in it. docs/design/sherman.md has the whole argument.
//
// A value in a block is READ after the leaf: a round trip more. It is the value that the slot held
// at that moment, however old it is by now: a block's value stays until no operation is under way
// that began before the block went out.
func (s *Session) Lookup(key, dst []byte) ([]byte, error) {
	s.Begin()
	defer s.End()
	return s.Find(key, dst)
}

// Find is Lookup as a part of an operation.
func (s *Session) Find(key, dst []byte) ([]byte, error) {
	if err := s.Lay.CheckKey(key); err != nil {
		return dst, err
	}
	p, err := s.Descend(key)
	if err != nil {
		return dst, explain("look up", err)
	}
	fp := s.Lay.Fingerprint(key)
	for hops := 0; ; {
		if err := s.Read(p.Addr(), s.Node); err != nil {
			return dst, explain("look up", err)
		}
		var l slotted.Leaf
		var h *fence.Header
		if l.Open(s.Lay, p.Addr(), s.Node) {
			h = &l.Header
			if !l.Below(key) && !l.Above(key) {
				switch _, e, o := l.Find(key, fp); o {
				case slotted.Present:
					r, long := blocks.ReferenceIn(&s.Lay.Codec, e)
					if !long {
						_, value, _ := s.Lay.Pair(e)
						return append(dst, value...), nil
					}
					if value, err := s.Blocks.Value(&r); err != nil {
						return dst, explain("look up", err)
					} else if value != nil {
						return append(dst, value...), nil
					}
				case slotted.Absent:
					return dst, index.ErrNotFound
				}
			}
		}
		if err := s.Resolve(&p, h, key, s.Node, &hops); err != nil {
			return dst, explain("look up", err)
		}
	}
}

// Judge looks at b, what was READ of the leaf where p leads. true: l is that leaf, verified as a
// whole, and its range holds key. Else p leads elsewhere now, or to the same one again; READ again.
// hops is of one operation.
func (s *Session) Judge(p *btree.Path, l *slotted.Leaf, key, b []byte, hops *int) (bool, error) {
	if l.Is(s.Lay, p.Addr(), b, key) {
		return true, nil
	}
	return false, s.redirect(p, l, key, b, hops)
}

// JudgeFor is Judge for who only wants to know what the leaf has of key: other slots need not
// verify if that one does.
func (s *Session) JudgeFor(p *btree.Path, l *slotted.Leaf, key, b []byte, hops *int) (bool, error) {
	if l.Answers(s.Lay, p.Addr(), b, key) {
		return true, nil
	}
	return false, s.redirect(p, l, key, b, hops)
}

// redirect finds where p leads after b, which was READ, was not the leaf of key.
func (s *Session) redirect(p *btree.Path, l *slotted.Leaf, key, b []byte, hops *int) error {
	var h *fence.Header
	if l.Open(s.Lay, p.Addr(), b) {
		h = &l.Header
	}
	return s.Resolve(p, h, key, b, hops)
}
