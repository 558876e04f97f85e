package dex

import (
	"encoding/binary"

	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool"
)

// admit makes b the image of f, a new frame that the session has locked, if it is right: under the
// lock the caller has seen that b is the leaf's present state, and lies in this client's ranges. It
// reports whether f has the leaf, locked still. Otherwise f is dropped.
func (s *session) admit(f *frame.Frame, b []byte, right bool) (kept bool, err error) {
	if right {
		if err = s.fill(f, b); err == nil {
			return true, nil
		}
	}
	s.x.cache.Drop(f)
	return false, err
}

// frameFor gives the leaf at a, which this session wrote as b when the eviction clock had shown
// since, a frame, and returns it locked; nil if it had one, or can have none.
func (s *session) frameFor(a pool.Addr, since uint64, b []byte) (*frame.Frame, error) {
	s.prefetch = prefetch{addr: a, since: since, done: true}
	f, fresh, err := s.x.cache.Reserve(a, true, s.yield)
	if err != nil || f == nil || !fresh {
		return nil, err
	}
	var l slotted.Leaf
	kept, err := s.admit(f, b, !s.x.cache.Clock.After(a, since) && l.Open(s.x.lay, a, b) && s.owns(&l))
	if !kept {
		return nil, err
	}
	return f, nil
}

// owns reports whether all keys of a leaf are this client's.
func (s *session) owns(l *slotted.Leaf) bool {
	return s.x.ranges.Load().Covers(l.Low, l.High, l.Rightmost)
}

// fill makes the frame f, whose lock the caller holds, the leaf b, and takes out the entries of the
// leaf's keys: from the unlock on sessions change them in the frame. After an error the client is
// given up.
func (s *session) fill(f *frame.Frame, b []byte) error {
	f.Fill(b)
	f.SetInPlace(true)
	e := &s.x.rows
	if !e.Used() {
		return nil
	}
	var v frame.View
	f.Open(&v)
	for i := range v.Count {
		w := f.Slot(&v, i)
		if w&0xfff == 0 || f.Refers(w, s.x.lay) {
			continue
		}
		key, lacks := s.lacksEntry(f, w)
		if lacks { // and none is put in as long as the leaf has a frame
			continue
		}
		had, err := e.Invalidate(key)
		if err != nil {
			return s.x.condemn(err)
		}
		if had {
			f.SetChanged(i) // it is put in again when the leaf leaves its frame
		}
	}
	return nil
}

// lacksEntry reports whether the hints say that the key in the slot with word w has no entry.
// Otherwise it returns the key, which stays until the next call.
func (s *session) lacksEntry(f *frame.Frame, w uint64) (key []byte, lacks bool) {
	e := &s.x.rows
	if !s.x.lay.Uint64 {
		s.filling = f.Entry(w, s.filling[:0])
		key = s.x.lay.KeyOf(s.filling)
		return key, e.Lacks(key)
	}
	number := f.Number(w)
	if e.LacksNumber(number) {
		return nil, true
	}
	s.filling = binary.LittleEndian.AppendUint64(s.filling[:0], number)
	return s.filling, false
}
