package smart

import (
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
)

// Lookup implements index.Session (section 4.5, "Search"). One round trip if the inner nodes are in
// the cache: the READ of the leaf. A hit needs no more. That the key is not there takes a proof: a
// READ of the slot, or of the node, that says so.
func (s *Session) Lookup(key, dst []byte) ([]byte, error) {
	s.Begin()
	defer s.End()
	return s.find(key, dst)
}

// find is Lookup as a part of an operation.
func (s *Session) find(key, dst []byte) ([]byte, error) {
	if err := s.lay.CheckKey(key); err != nil {
		return dst, err
	}
	for {
		there, err := s.locate(key)
		if err != nil {
			return dst, explain("look up", err)
		}
		if !there {
			return dst, index.ErrNotFound
		}
		v, long := s.leaf.value()
		if !long {
			return append(dst, v...), nil
		}
		r := reference(v)
		if value, err := s.Blocks.Value(&r); err != nil {
			return dst, explain("look up", err)
		} else if value != nil {
			return append(dst, value...), nil
		}
		if err := s.Reread(r.Addr); err != nil {
			return dst, explain("look up", err)
		}
	}
}

// locate finds the leaf of key, alive, and READs it to s.leaf; false: there is none.
func (s *Session) locate(key []byte) (bool, error) {
	ended, err := s.Seek(key)
	for err == nil {
		var to art.Slot // where the leaf moved
		if ended == art.Leafed {
			w := s.Path[s.Level].Word
			var v verdict
			if v, err = s.readValue(w); err != nil {
				return false, err
			}
			switch {
			case v == torn:
				if err = s.Reread(w.Addr()); err != nil {
					return false, err
				}
				// Or it is out, and who marked it died meanwhile.
				s.Path[s.Level].Fresh = false
				_, ended, err = s.Confirm(key, ended)
				continue
			case v == whole && s.leaf.isInTree() && s.leaf.hasKey(key):
				return s.leaf.ctl.state() == alive, nil
			case v == whole && s.leaf.ctl.state() == moved:
				to = s.leaf.forward()
			case v == out:
				s.Path[s.Level].Fresh = false // it may have moved since the slot was READ
			}
		}
		var proved bool
		if proved, ended, err = s.Confirm(key, ended); proved && err == nil {
			if to == 0 {
				return false, nil
			}
			there, again, err := s.locateMoved(key, to)
			if !again || err != nil {
				return there, err
			}
			if ended, err = s.Seek(key); err != nil {
				return false, err
			}
		}
	}
	return false, err
}

// locateMoved goes on to where a leaf moved. The slot that led to it was READ by this operation,
// and still did: so the new one was not taken out before this operation began. A slot of a copy may
// lead to a leaf that is out, and what that says may be out, too, and its memory another leaf's.
// again: the key is to be looked for again.
func (s *Session) locateMoved(key []byte, to art.Slot) (there, again bool, err error) {
	for {
		v, err := s.readValue(to)
		switch {
		case err != nil:
			return false, false, err
		case v == torn || v == out:
			return false, true, s.Reread(to.Addr())
		case s.leaf.ctl.state() != moved:
			return s.leaf.ctl.state() == alive && s.leaf.hasKey(key), false, nil
		}
		to = s.leaf.forward()
	}
}

// readLeaf READs the leaf of slot w.
func (s *Session) readLeaf(w art.Slot) (verdict, error) {
	b := s.leafRoom[:w.LeafBytes()]
	if err := s.Read(w.Addr(), b); err != nil {
		return torn, err
	}
	return s.leaf.open(s.lay.Sums, b, w.Addr()), nil
}
