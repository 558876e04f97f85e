package dolphin

import (
	"errors"

	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/pool"
)

// The walk of a sweep READs each inner node, and each leaf. It goes by pieces, an operation each,
// of some nodes and leaves, so no epoch waits for more than that. A leaf is seen by its slot, or as
// what took the place of one that has the slot still, or as the right half of one of these: it may
// get its slot behind the walk, or in a node of which the walk has READ the words in another order.

// walkAll tells r of all that is in the tree during all of the walk.
func (t *Tree) walkAll(r *pool.Review) (err error) {
	s, err := t.newSession()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	w := &sweeper{s: s}
	for place, more := []byte(nil), true; more; {
		began := t.Env.Now()
		w.seen = w.seen[:0]
		if place, more, err = w.piece(place); err != nil {
			return err
		}
		r.Seen(w.seen)
		if err := t.Rest(began); err != nil {
			return err
		}
	}
	return s.SeeRoots(r.Seen)
}

// sweeper is the walk of a sweep.
type sweeper struct {
	s    *Session
	seen []pool.Addr
}

// pieceNodes is how many nodes and leaves a piece READs, besides those on the way to where it
// begins.
const pieceNodes = 64

// piece sees what comes from a place on, and returns where the next one begins.
func (w *sweeper) piece(place []byte) (next []byte, more bool, err error) {
	w.s.Begin()
	defer w.s.End()
	return w.s.NewWalker(nil).SeeFrom(place, pieceNodes, w)
}

// SeeNode implements art.Seer.
func (w *sweeper) SeeNode(a pool.Addr) { w.see(a) }

func (w *sweeper) see(a pool.Addr) { w.seen = append(w.seen, a) }

// SeeLeaf implements art.Seer. It sees the leaf of a slot, and those that have no slot yet and are
// found by it. out: it is out, or what has taken its place is, so the slot has changed since it was
// READ.
func (w *sweeper) SeeLeaf(slot art.Slot) (out bool, err error) {
	fw, half, out, err := w.read(slot.Addr())
	if err == nil && fw > merging {
		_, half, out, err = w.read(pool.Addr(fw))
	}
	if err == nil && !out && half != pool.Nil {
		_, _, _, err = w.read(half) // it may have had a slot, and lost it
	}
	return out, err
}

// read sees the leaf at a, and its blocks. out: it is out, and says nothing.
func (w *sweeper) read(a pool.Addr) (fw uint64, half pool.Addr, out bool, err error) {
	s, l := w.s, &w.s.leaf
	for {
		if err := s.Read(a, s.room); err != nil {
			return 0, pool.Nil, false, err
		}
		w.see(a)
		if !l.open(s.room, a) {
			return 0, pool.Nil, true, nil
		}
		again, damaged := s.alive(l)
		if damaged {
			return 0, pool.Nil, false, damagedLeaf(a, "a record that is none")
		}
		for _, p := range s.pairs {
			if v, long, _ := l.value(p.cursor, p.w); long {
				r := blocks.Decode(v)
				w.see(r.Addr)
			}
		}
		if !again {
			fw, err := s.t.forwardOf(l)
			return fw, l.right, false, err
		}
		if err := s.Reread(a); err != nil {
			return 0, pool.Nil, false, err
		}
	}
}
