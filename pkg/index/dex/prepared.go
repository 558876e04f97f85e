package dex

import (
	"unsafe"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/pool"
)

// A change looks for the frame of its leaf before it begins a descent: Prepare has noted it, or the
// slots lead there as in a lookup (lookupCached). Such a frame is a guess, which is checked under
// the frame's lock: while it is held and both fences enclose the key, the frame holds the leaf of
// that key, since only the owner changes the leaf, and a structure change locks the frame first and
// drops it. If the frame is not that of the key, or is locked, nothing has happened, and the change
// descends.
//
// What Prepare notes is in the order of its keys, and changes come in that order. A key is known
// again by the place of its bytes. If other bytes are there by now, the fences tell.

// prepared are the frames that Prepare found for the changes to come.
type prepared struct {
	at     int // changes before this one have had theirs
	keys   []uintptr
	frames []*frame.Frame
}

// mostPrepared bounds what is noted.
const mostPrepared = 256

func (w *prepared) begin() { w.at, w.keys, w.frames = 0, w.keys[:0], w.frames[:0] }

// add notes that key is expected in f.
func (w *prepared) add(key []byte, f *frame.Frame) {
	if len(w.keys) < mostPrepared {
		w.keys, w.frames = append(w.keys, whereOf(key)), append(w.frames, f)
	}
}

// lookForward is among how many of the next ones a key is looked for.
const lookForward = 64

// take returns the frame that was noted for key; nil if none was.
func (w *prepared) take(key []byte) *frame.Frame {
	p := whereOf(key)
	for i, end := w.at, min(len(w.keys), w.at+lookForward); i < end; i++ {
		if w.keys[i] == p {
			w.at = i + 1
			if invariants.Enabled && i%5 == 3 { // a wrong one does no harm
				i = 0
			}
			return w.frames[i]
		}
	}
	return nil
}

func whereOf(key []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(key))) }

// changePrepared makes the change if a frame is prepared for key, and answers it. made is false if
// nothing has happened.
func (s *session) changePrepared(key, value []byte, epoch uint64, m mode) (made bool, err error) {
	x := s.x
	if m > remove || x.lay.InBlock(len(value)) {
		return false, nil
	}
	f := (*frame.Frame)(nil)
	if s.batch != nil {
		f = s.batch.ready.prepared.take(key)
	}
	if f == nil {
		_, hint := s.b.DescendCached(key)
		if hint == 0 {
			return false, nil
		}
		f = x.cache.Hinted(hint)
	}
	a := f.Addr()
	if a == 0 {
		return false, nil
	}
	if m == remove {
		s.prepareRemoval(key, epoch)
	} else {
		s.prepareInline(key, value, epoch)
	}
	o := s.apply(f, pool.Addr(a), key, x.lay.Fingerprint(key), epoch, m)
	switch {
	case o.err != nil:
		return false, o.err
	case o.st != frame.Done:
		return false, nil
	}
	f.Hit()
	return true, s.answer(&o, key, pool.Addr(a))
}
