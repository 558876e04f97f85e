package art

import (
	"encoding/binary"

	"github.com/dmindex/dmindex/pkg/pool"
)

// Newcomer is a leaf that is about to get a slot. All memory that a change takes is allocated
// before its first request is queued: what is queued cannot be taken back.
type Newcomer interface {
	// Place is its place: what it has for a key in the tree.
	Place() []byte
	// Allot allocates what the leaf takes, near an address (Session.Allocate), unless it is there
	// already. It returns the leaf's slot, which lacks the partial key.
	Allot(near pool.Addr) (Slot, error)
	// Queue queues the WRITEs of the leaf. ErrPoolFull: there is no memory for what else it takes,
	// and nothing is queued.
	Queue(near pool.Addr) error
}

// writeNewcomer allots n, and queues its WRITEs.
func (s *Session) writeNewcomer(n Newcomer, near pool.Addr) (Slot, error) {
	w, err := n.Allot(near)
	if err == nil {
		err = n.Queue(near)
	}
	return w, err
}

// Link puts n where its descent ended, which came to no leaf. done is false if somebody was
// faster, and the descent is to begin anew.
func (s *Session) Link(n Newcomer, out Outcome) (done bool, err error) {
	st := &s.Path[s.Level]
	switch {
	case out == Mismatched:
		return s.headerSplit(n)
	case st.Idx < 0 || st.Word.Frozen():
		return s.replaceWith(s.Level, n, false)
	}
	return s.LinkAt(n, st)
}

// LinkAt (SMART, section 4.1.2, normal insert) puts n into the slot of st: an empty one, a
// tombstone, or one whose leaf is out. The requests, in one list if all of it is on one server:
//
//  1. WRITE of the leaf, and of what belongs to it: nobody knows them;
//  2. CAS of the slot: the change takes effect. By G1, or G3, whoever sees the slot finds the leaf.
//
// A client that dies before 2 leaves memory that nobody knows.
func (s *Session) LinkAt(n Newcomer, st *Step) (done bool, err error) {
	near := st.Node.Addr
	w, err := n.Allot(near)
	if err == nil {
		err = s.lockNode(st)
	}
	if err == nil {
		err = n.Queue(near)
	}
	if err != nil {
		s.Discard()
		return false, err
	}
	before := st.Word
	won, err := s.publish(st, s.t.lay.hang(w, n.Place(), st.Node.End()))
	if !won || err != nil {
		return false, err
	}
	if before.Leaf() {
		return true, s.RetireChild(before)
	}
	return true, nil
}

// publish posts what is queued, and then swaps the word of st to w, under the node's lock if
// lockNode acquired that. won: what was made is known now. Else it is given back, and the copy has
// the word that was found.
func (s *Session) publish(st *Step, w Slot) (won bool, err error) {
	if err := s.awaitStrayed(st.Node.Addr); err != nil {
		return false, err
	}
	s.Pause()
	s.QueueSwap(st, w)
	if err := s.postSwap(); err != nil {
		s.Forget()
		return false, failure(err)
	}
	found, won := s.Swapped(st, w)
	if !won {
		s.Discard()
		if err := s.Retry(); err != nil {
			return false, err
		}
		return false, s.unblock(st, found)
	}
	s.Forget()
	return true, nil
}

// QueueSwap queues the CAS of the slot of st from the word that the descent found to another one.
func (s *Session) QueueSwap(st *Step, to Slot) {
	s.PS.CompareSwap(st.Node.Addr+pool.Addr(SlotAt(st.Idx)), uint64(st.Word), uint64(to), s.Answers[:SlotBytes])
}

// Swapped is asked when what QueueSwap queued is over. The copy has the slot's word then. won: that
// is to, by this swap. Else it is found.
func (s *Session) Swapped(st *Step, to Slot) (found Slot, won bool) {
	if found = Slot(binary.NativeEndian.Uint64(s.Answers)); found != st.Word {
		to = found
	}
	s.Learn(st, to)
	return found, found == st.Word
}

// unblock is called where the word of Path[s.Level] was another one than expected. If it is that
// word, frozen, somebody replaces the node, and may have died: so this session does it, too.
func (s *Session) unblock(st *Step, found Slot) error {
	if found.Frozen() && found.Clean() == st.Word {
		st.Word = found
		return s.Replace(s.Level)
	}
	return nil
}

// ReplaceLeaf puts the leaf of slot to, with the same place, into the slot of st in place of the
// one that is there, which is retired.
func (s *Session) ReplaceLeaf(st *Step, to Slot) (won bool, err error) {
	if st.Word.Frozen() {
		return false, s.Replace(s.Level)
	}
	before := st.Word
	won, err = s.publish(st, s.t.lay.inPlaceOf(to, before))
	if !won || err != nil {
		return false, err
	}
	return true, s.RetireChild(before)
}
