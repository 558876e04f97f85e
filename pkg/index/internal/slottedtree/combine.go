package slottedtree

import (
	"bytes"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool"
)

// The holder of a leaf's lock carries out, with its own change of one entry, those of sessions that
// wait for the lock (pool/combine.go has the queue and its rules). What is here is which changes
// may be made in one list, and what the memory holds after each part of it.
//
// The changes take effect one after another in the order of the queue, the holder's first. Each is
// answered by what those before it left. Of a key that several change only the last state is
// written: the others took effect directly before it. For each key that changes, the list has:
//
//  1. WRITE of its new entry, if it has a value in the end, into space that no slot word in the
//     memory points to;
//  2. behind all of these, WRITE of its slot word: one aligned word, so the key changes at once,
//     from its old state to its last one;
//  3. at the end the release of the lock, or its handover after the completion.
//
// A key keeps its slot, also if it is removed and inserted again in one list. A key that is new
// gets a slot that is empty in the memory. Neither space nor slots that the list frees are used in
// the same list: a slot word that still stands must find its entry, and no word may depend on
// another one. So after any part of the list, and in whichever order its slot words become visible,
// every key has its old state or its last one, whole. To a reader these are changes of different
// keys, that are under way at the same time. A client that dies leaves each key in either state,
// and all of these operations without an answer.
//
// A change goes back to the queue where it needs more than one entry in its leaf: its key is not
// the leaf's, the leaf has no room, or the old or the new value lies in a block.

// remove is the mode of a delete.
const remove = upsert + 1

// change is what a session offers to do, and the answer.
type change struct {
	mode       mode
	fp         byte
	key, value []byte

	answer error // nil, ErrExists or ErrNotFound
	// of a remove: the leaf that had the key, and what is in it now
	leaf pool.Addr
	load btree.Load
}

// maxGroup is how many changes one list makes.
const maxGroup = 1 + pool.MaxTaken

// group is the changes that are made together, by key.
type group struct {
	keys    [maxGroup]keyState
	n       int
	vacant  int // no slot before it is empty, but for those that the group has given away
	removes bool
}

// keyState is what becomes of a key.
type keyState struct {
	fp         byte
	key, value []byte
	slot       int  // -1 = none yet
	was, is    bool // it is in the leaf: in the memory, and after the changes so far
	written    bool // value is its value, and off where its entry shall be
	off, room  int
}

// offered is the change that the session offers to whoever has the lock; nil if it does it itself.
func (s *Session) offered(m mode, fp byte, key, value []byte) *change {
	if !s.t.combines || s.made != nil || s.Lay.InBlock(len(value)) {
		return nil
	}
	s.offer = change{mode: m, fp: fp, key: key, value: value}
	return &s.offer
}

// answered ends an operation whose change c another session carried out, or failed to.
func (s *Session) answered(c *change, err error, what string) error {
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", what, err)
	case c.answer != nil:
		return c.answer
	case c.mode == remove:
		err = s.Session.Tidy(c.key, c.leaf, c.load)
	default:
		err = s.ConnectMet()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// combine makes the session's change c of the locked leaf together with those of others that wait
// for the lock, and gives it up. done is false if it has not: nobody waits, or the change needs
// more than one entry. Then nothing has changed.
func (s *Session) combine(l *slotted.Leaf, c *change, what string) (done bool, err error) {
	if c == nil || !s.PS.Waited() {
		return false, nil
	}
	g := &s.group
	g.n, g.vacant, g.removes = 0, 0, false
	l.Occupy(&s.heap)
	if !s.add(g, l, c) {
		return false, nil
	}
	back := uint32(0)
	n := s.PS.Take(l.Addr)
	for i := range n {
		if !s.add(g, l, s.PS.Taken(i).(*change)) {
			back |= 1 << i
		}
	}
	changed := s.queueChanges(g, l)
	if g.removes {
		load := loadOf(l.Load())
		c.leaf, c.load = l.Addr, load
		for i := range n {
			o := s.PS.Taken(i).(*change)
			o.leaf, o.load = l.Addr, load
		}
	}
	s.PS.PutBack(back)
	if changed {
		s.handOn(l)
		err = s.Publish()
	} else {
		err = s.Unlock(nil)
	}
	return true, s.answered(c, err, what)
}

// add adds c to the changes of g, and says in it what its answer is once they are made. It reports
// whether c is such a change as can be made with others; if not, g stays as it is.
func (s *Session) add(g *group, l *slotted.Leaf, c *change) bool {
	k := g.of(c)
	if k == nil {
		if l.Below(c.key) || l.Above(c.key) {
			return false
		}
		i, e, o := l.Find(c.key, c.fp)
		if o == slotted.Torn || o == slotted.Present && s.Lay.HasReference(e) {
			return false
		}
		k = &g.keys[g.n]
		g.n++
		*k = keyState{fp: c.fp, key: c.key, slot: -1}
		if o == slotted.Present {
			k.slot, k.was, k.is = i, true, true
		}
	}
	switch {
	case c.mode == insert && k.is:
		c.answer = index.ErrExists
	case !k.is && (c.mode == update || c.mode == remove):
		c.answer = index.ErrNotFound
	case c.mode == remove:
		c.answer, k.is, g.removes = nil, false, true
	case s.place(g, l, k, s.Lay.EntryBytes(len(c.key), len(c.value))):
		c.answer, k.is, k.written, k.value = nil, true, true, c.value
	default:
		return false
	}
	return true
}

// of is the state of the key of c, if the group has it already.
func (g *group) of(c *change) *keyState {
	for i := range g.keys[:g.n] {
		if k := &g.keys[i]; k.fp == c.fp && bytes.Equal(k.key, c.key) {
			return k
		}
	}
	return nil
}

// place finds a slot and space for an entry of n bytes of k. If the leaf has none nothing changes.
func (s *Session) place(g *group, l *slotted.Leaf, k *keyState, n int) bool {
	slot := k.slot
	if slot < 0 {
		if slot = l.VacantFrom(g.vacant); slot < 0 {
			return false
		}
	}
	if n > k.room {
		off := l.Take(&s.heap, n)
		if off == 0 {
			return false
		}
		k.off, k.room = off, fence.RoundUp(n)
	}
	if k.slot < 0 {
		k.slot, g.vacant = slot, slot+1
	}
	return true
}

// queueChanges makes the changes of g in the image of the locked leaf and queues their WRITEs: all
// entries, then all slot words. It reports whether there are any.
func (s *Session) queueChanges(g *group, l *slotted.Leaf) bool {
	changed := false
	for i := range g.keys[:g.n] {
		k := &g.keys[i]
		switch {
		case k.is && k.written:
			e := s.Lay.PutEntry(s.scratch, k.key, k.value)
			l.Put(k.slot, k.fp, k.off, e)
			s.PS.Write(pool.Shared, l.Addr+pool.Addr(k.off), l.Bytes[k.off:k.off+len(e)])
		case k.was && !k.is:
			l.Remove(k.slot)
		default:
			k.slot = -1
			continue
		}
		changed = true
	}
	for i := range g.keys[:g.n] {
		if k := &g.keys[i]; k.slot >= 0 {
			at := l.SlotAt(k.slot)
			s.PS.Write(pool.Shared, l.Addr+pool.Addr(at), l.Bytes[at:at+slotted.SlotBytes])
		}
	}
	return changed
}
