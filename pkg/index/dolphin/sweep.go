package dolphin

import (
	"bytes"
	"errors"

	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/pool"
)

// A sweep walks twice, in pieces that are operations of their own, so no epoch waits for more than
// one of them.
//
// The walk by keys goes on as a scan does: it looks for the leaf that is the truth for the range
// behind the one before, and sees that, and its blocks. A pair that is there during all of it is in
// the leaf that it READs for the pair's range, wherever merges and splits have moved it by then.
//
// The walk by slots READs inner nodes, and sees them, and the leaves of their slots. It sees each
// node that is in the tree during all of it, and each leaf that has a slot during all of it.
//
// It comes second. A leaf without a slot is the truth for its range, as others take its place only
// when it has one. So a leaf that was not the truth any more when the walk by keys came had its
// slot by then. It has that during all of the walk by slots, or is out before that ends.

// walkAll tells r of all that is in the tree during all of the walk.
func (t *Tree) walkAll(r *pool.Review) (err error) {
	s, err := t.newSession()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	w := &sweeper{s: s}
	for _, piece := range []func(place []byte) (next []byte, more bool, err error){w.byKeys, w.bySlots} {
		for place, more := []byte(nil), true; more; {
			began := t.Env.Now()
			w.seen = w.seen[:0]
			if place, more, err = piece(place); err != nil {
				return err
			}
			r.Seen(w.seen)
			if err := t.Rest(began); err != nil {
				return err
			}
		}
	}
	return s.SeeRoots(r.Seen)
}

// pieceNodes is how many nodes or leaves a piece READs, besides those on the way to where it
// begins.
const pieceNodes = 64

// sweeper is the walk of a sweep. It implements art.Seer.
type sweeper struct {
	s    *Session
	seen []pool.Addr
}

// SeeNode implements art.Seer.
func (w *sweeper) SeeNode(a pool.Addr) { w.see(a) }

// SeeLeaf implements art.Seer.
func (w *sweeper) SeeLeaf(slot art.Slot) { w.see(slot.Addr()) }

func (w *sweeper) see(a pool.Addr) { w.seen = append(w.seen, a) }

// bySlots is a piece of the walk by slots: from a place on. It returns where the next one begins.
func (w *sweeper) bySlots(place []byte) (next []byte, more bool, err error) {
	w.s.Begin()
	defer w.s.End()
	return w.s.NewWalker(nil).SeeFrom(place, pieceNodes, w)
}

// byKeys is a piece of the walk by keys: from the leaf of key on. It returns where the next one
// begins.
func (w *sweeper) byKeys(key []byte) (next []byte, more bool, err error) {
	s, l := w.s, &w.s.leaf
	s.Begin()
	defer s.End()
	next = bytes.Clone(key)
	for n := 0; n < pieceNodes; {
		there, err := s.find(next, false)
		if err != nil || !there {
			return next, false, err
		}
		again, damaged := s.gatherAlive(l)
		switch {
		case damaged:
			return next, false, damagedRecord(l.at)
		case again:
			if err := s.Reread(l.at); err != nil {
				return next, false, err
			}
			continue
		}
		w.see(l.at)
		for _, p := range s.pairs {
			if v, long, _ := l.value(p.cursor, p.w); long {
				r := blocks.Decode(v)
				w.see(r.Addr)
			}
		}
		if l.endless {
			return next, false, nil
		}
		next = append(next[:0], l.high...)
		n++
	}
	return next, true, nil
}
