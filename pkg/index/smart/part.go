package smart

import (
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/pool"
)

// A lookup READs the first part of a leaf, up to the end of cell 0, where that spares much. A leaf
// that was changed in place an odd number of times has its value in cell 1, so the lookup takes a
// second round trip. Where that happens often lookups READ whole leaves.

// seconds is how often a session found that cell 1 counts: a moving average over about 64 leaves.
type seconds struct{ share uint32 }

const (
	secondsUnit  = 1 << 16 // always
	mostSeconds  = secondsUnit / 8
	secondsShift = 6
)

// note notes which cell of a leaf counts.
func (n *seconds) note(cell int) {
	n.share -= n.share >> secondsShift
	n.share += uint32(cell) << (16 - secondsShift)
}

// readsWhole reports whether whole leaves are to be READ.
func (n *seconds) readsWhole() bool { return n.share > mostSeconds }

// readValue READs the leaf of slot w, as far as its value takes.
func (s *Session) readValue(w art.Slot) (verdict, error) {
	bytes := w.LeafBytes()
	part := s.lay.firstPart(bytes)
	if bytes-part < leastSpared {
		return s.readLeaf(w)
	}
	if s.seconds.readsWhole() {
		v, err := s.readLeaf(w)
		if err == nil && v == whole {
			s.seconds.note(s.leaf.ctl.cell())
		}
		return v, err
	}
	b := s.leafRoom[:part]
	if err := s.Read(w.Addr(), b); err != nil {
		return torn, err
	}
	v := s.leaf.openPart(s.lay.Sums, b, w.Addr(), bytes, false)
	if v == apart {
		offset, cell := s.leaf.otherCell()
		if err := s.Read(w.Addr()+pool.Addr(offset), cell); err != nil {
			return torn, err
		}
		v = s.leaf.openPart(s.lay.Sums, b, w.Addr(), bytes, true)
	}
	if v == whole {
		s.seconds.note(s.leaf.ctl.cell())
	}
	return v, nil
}
