package dolphin

import (
	"bytes"

	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
)

// settled is how far the right half of a leaf has come that takes another one's place.
type settled uint8

const (
	anew   settled = iota // the tree is another one than it was, and is to be looked at anew
	linked                // the right half has its slot
	swung                 // so has the left one, and the leaf is retired
)

// settle is complete for who wrote the forward word of the leaf in s.leaf, with the n leaves in
// s.halves. The descent to the right half's place ended at out, and Path is as it was then, before
// the forward word was written.
//
// So the first attempt READs nothing. A word that was seen before the forward word was written was
// seen before anybody could put L2 into a slot. If the word is still there L2 was never there.
// Clients that divide other leaves below the same node fill its empty slots, one after the other.
// So the slots were READ with the values of L.
func (s *Session) settle(n int, out art.Outcome) error {
	left := &s.halves[0]
	if n == 2 {
		s.right = append(s.right[:0], left.high...)
		s.coming = coming{s: s, place: s.right, at: left.right}
		done, err := anew, error(nil)
		switch w := s.Last().Word; {
		case out != art.Leafed:
			_, err = s.Link(&s.coming, out) // if others were faster completeWith finds that
		case w.Addr() == s.leaf.at && !w.Frozen():
			done, err = s.forkOver(left)
		} // else the place of the leaf of w is to be READ
		if err != nil || done == swung {
			return err
		}
	}
	return s.completeWith(left.at, left)
}

// complete does 3 to 5 for the leaf of s.leaf, in whose place the one at to is.
func (s *Session) complete(to pool.Addr) error { return s.completeWith(to, nil) }

// leadsNow is Leads to a slot that can be changed, which is st: a node whose slots are frozen is
// replaced first.
func (s *Session) leadsNow(place []byte, word art.Slot) (st art.Step, there bool, err error) {
	for {
		if there, err = s.Leads(place, word); err != nil || !there {
			return st, false, err
		}
		if st = *s.Last(); !st.Word.Frozen() {
			return st, true, nil
		}
		if err = s.Replace(s.Level); err != nil {
			return st, false, err
		}
	}
}

// completeWith is complete. known is the leaf at to if this session made it; nil = it is READ.
func (s *Session) completeWith(to pool.Addr, known *leaf) error {
	at := s.leaf.at
	s.place, s.high = append(s.place[:0], s.leaf.low...), append(s.high[:0], s.leaf.high...)
	for {
		st, there, err := s.leadsNow(s.place, slotOf(at))
		if err != nil || !there {
			return err
		}
		left := known
		if left == nil {
			if err := s.Read(to, s.besideRoom); err != nil {
				return err
			}
			if left = &s.beside; !left.open(s.besideRoom, to) {
				// It is out, so it had L's slot: the copy is old.
				if err := s.renew(&st); err != nil {
					return err
				}
				continue
			}
		}
		if !bytes.Equal(left.low, s.place) {
			return s.mergeUp(at, to)
		}
		if left.right != pool.Nil || left.merged != pool.Nil {
			switch done, err := s.settleRight(&st, at, left); {
			case err != nil || done == swung:
				return err
			case done == anew:
				continue
			}
			if there, err = s.Leads(s.place, slotOf(at)); err != nil || !there {
				return err
			}
		}
		if won, err := s.ReplaceLeaf(s.Last(), slotOf(to)); won || err != nil {
			return err
		}
	}
}

// settleRight does what comes before the slot of the leaf at a, where st leads, is swung to left,
// which takes its place.
func (s *Session) settleRight(st *art.Step, a pool.Addr, left *leaf) (settled, error) {
	if m := left.merged; m != pool.Nil {
		s.right = append(s.right[:0], s.high...)
		return linked, s.Unlink(s.right, slotOf(m))
	}
	s.right = append(s.right[:0], left.high...)
	return s.linkRight(st, a, left)
}

// linkRight is settleRight for the right half of left, whose place is s.right: it gets a slot,
// unless it has one. left may be in s.beside, and is not there afterwards.
func (s *Session) linkRight(st *art.Step, a pool.Addr, left *leaf) (settled, error) {
	from, half := left.at, left.right
	s.coming = coming{s: s, place: s.right, at: half}
	out, err := s.Seek(s.right)
	if err != nil {
		return anew, err
	}
	if out == art.Leafed {
		w := s.Last().Word
		switch {
		case w.Addr() == half:
			return linked, nil // or it was there when the copy was made
		case w.Addr() == a && w.Frozen():
			return anew, s.Replace(s.Level)
		case w.Addr() == a:
			return s.forkOver(left)
		}
		if err := s.Read(w.Addr(), s.besideRoom); err != nil {
			return anew, err
		}
		if !s.beside.open(s.besideRoom, w.Addr()) {
			return anew, s.renew(s.Last())
		}
		if bytes.Equal(s.beside.low, s.right) {
			if s.beside.forward() != uint64(from) {
				return linked, nil
			}
			_, err := s.ReplaceLeaf(s.Last(), slotOf(half)) // it was the right one of a merge
			return anew, err
		}
		if w.Frozen() {
			return anew, s.Replace(s.Level)
		}
	}
	// The words of the way were seen before this READ.
	s.PS.Read(st.Node.Addr+pool.Addr(art.SlotAt(st.Idx)), s.Answers[:art.SlotBytes])
	if err := s.PS.Post(); err != nil {
		return anew, op.Failure(err, false)
	}
	w := slotIn(s.Answers)
	s.Learn(st, w)
	if w.Frozen() || !w.Leaf() || w.Addr() != a {
		return anew, s.Retry()
	}
	var done bool
	if out == art.Leafed {
		done, err = s.Fork(&s.coming, s.beside.low)
	} else {
		done, err = s.Link(&s.coming, out)
	}
	if done && err == nil {
		return linked, nil
	}
	return anew, err
}

// forkOver is 3 and 4 in one, where the descent to the place of the right half of left ended at
// L's own slot: that gets a node with both. By the swap L's slot led to L until then, so L2 had no
// slot. L1 gets its slot in the same moment. Then follows 5.
func (s *Session) forkOver(left *leaf) (settled, error) {
	won, err := s.ForkOver(&s.coming, left.low, slotOf(left.at))
	if won {
		return swung, err
	}
	return anew, err
}
