package blink

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
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
func (s *session) Lookup(key, dst []byte) ([]byte, error) {
	s.Begin()
	defer s.End()
	return s.lookup(key, dst)
}

// lookup is Lookup as a part of an operation.
func (s *session) lookup(key, dst []byte) ([]byte, error) {
	if err := s.lay.CheckKey(key); err != nil {
		return dst, err
	}
	p, err := s.descend(key, fence.Holding, 0)
	if err != nil {
		return dst, s.explain("look up", err)
	}
	s.hit(&p)
	fp := s.lay.Fingerprint(key)
	for hops := 0; ; {
		if err := s.Read(p.addr, s.node); err != nil {
			return dst, s.explain("look up", err)
		}
		var l slotted.Leaf
		o := slotted.Torn
		var e []byte
		if l.Open(s.lay, p.addr, s.node) {
			if l.Below(key) {
				if err := s.Misled(&p, key, &hops); err != nil {
					return dst, s.explain("look up", err)
				}
				continue
			}
			if l.Above(key) {
				if err := s.follow(&p, &l, key, &hops); err != nil {
					return dst, s.explain("look up", err)
				}
				continue
			}
			_, e, o = l.Find(key, fp)
		} else if grew, err := s.outgrown(p.addr, s.node); grew && err == nil {
			if p, err = s.descend(key, fence.Holding, 0); err != nil {
				return dst, s.explain("look up", err)
			}
			continue
		} else if err != nil {
			return dst, s.explain("look up", err)
		}
		switch {
		case o == slotted.Torn && unit.IsDead(p.addr, s.node):
			if err := s.lost(&p, key); err != nil {
				return dst, s.explain("look up", err)
			}
			continue
		case o == slotted.Present:
			r, long := blocks.ReferenceIn(&s.lay.Codec, e)
			if !long {
				_, value, _ := s.lay.Pair(e)
				return append(dst, value...), nil
			}
			if value, err := s.Blocks.Value(&r); err != nil {
				return dst, s.explain("look up", err)
			} else if value != nil {
				return append(dst, value...), nil
			}
		case o == slotted.Absent:
			return dst, index.ErrNotFound
		}
		if err := s.Reread(p.addr); err != nil {
			return dst, s.explain("look up", err)
		}
	}
}

// hit counts whether a descent needed no READ.
func (s *session) hit(p *path) {
	if p.cached || p.parent == nil {
		s.Count.Hits++
	}
}

// explain says what failed. The answers of package index are returned bare elsewhere.
func (s *session) explain(what string, err error) error {
	return fmt.Errorf("%s: %w", what, err)
}

// leafAt decodes what s.node holds of the leaf at a, which is locked: nothing may be torn then.
// errDead: it is dead.
func (s *session) leafAt(l *slotted.Leaf, a pool.Addr) error {
	if !l.Open(s.lay, a, s.node) {
		if unit.IsDead(a, s.node) {
			return errDead
		}
		return fmt.Errorf("leaf %v does not verify under its lock: %w", a, index.ErrFormat)
	}
	return nil
}
