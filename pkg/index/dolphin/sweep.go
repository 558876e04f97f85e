package dolphin

import (
	"errors"

	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/pool"
)

// The walk of a sweep goes by branches of the root, an operation each. It READs each inner node,
// and each leaf. A leaf is seen by its slot, or as what took the place of one that has the slot
// still, or as the right half of one of these: it may get its slot behind the walk, or in a node of
// which the walk has READ the words in another order.

// walkAll tells r of all that is in the tree during all of the walk.
func (t *Tree) walkAll(r *pool.Review) (err error) {
	s, err := t.newSession()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	w := &sweeper{s: s}
	for b := art.EndBranch; b <= art.Highest; b++ {
		began := t.Env.Now()
		w.seen = w.seen[:0]
		if err := w.piece(b); err != nil {
			return err
		}
		if len(w.seen) == 0 {
			continue
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

// piece sees what is below branch b of the root.
func (w *sweeper) piece(b int) error {
	w.s.Begin()
	defer w.s.End()
	return w.s.NewWalker(nil).SeeBelow(b, w.see, w.leaf)
}

func (w *sweeper) see(a pool.Addr) { w.seen = append(w.seen, a) }

// leaf sees the leaf of a slot, and those that have no slot yet and are found by it. out: it is
// out, or what has taken its place is, so the slot has changed since it was READ.
func (w *sweeper) leaf(slot art.Slot) (out bool, err error) {
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
