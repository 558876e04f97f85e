package dex

import (
	"encoding/binary"

	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
)

// fill makes the frame f, whose lock the caller holds, the leaf b, and takes out the entries of the
// leaf's keys: from the unlock on sessions change them in the frame. After an error the client is
// given up.
func (s *session) fill(f *frame.Frame, b []byte) error {
	f.Fill(b)
	f.SetInPlace(s.x.with.caching)
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
			return s.x.giveUp(err)
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
