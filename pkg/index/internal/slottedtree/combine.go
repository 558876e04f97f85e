package slottedtree

import (
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/combine"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool"
)

// The holder of a leaf's lock carries out, with its own change of one entry, those of sessions that
// wait for the lock (btree.Session.Combine). What is here is which changes may be made in one list,
// and what the memory holds after each part of it. For each key that changes, the list has:
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

// place is where a key of a group is, or will be.
type place struct {
	fp        byte
	slot      int // -1 = none yet
	off, room int // of its new entry
}

type keyAt = combine.KeyAt[place]

// group is the changes that are made together. It implements btree.Together.
type group struct {
	combine.Group[place]
	s      *Session
	l      slotted.Leaf // a copy: the one that is locked stays on the stack
	vacant int          // no slot before it is empty, but for those that the group has given away
}

// offered is the change that the session offers to whoever has the lock; nil if it does it itself.
func (s *Session) offered(m combine.Mode, key, value []byte) *btree.Change {
	if !s.t.combines || s.made != nil || s.Lay.InBlock(len(value)) {
		return nil
	}
	return s.OfferChange(m, key, value)
}

// combine is btree's Combine for the locked leaf.
func (s *Session) combine(l *slotted.Leaf, c *btree.Change) (done bool, err error) {
	if !s.Meets(c) {
		return false, nil
	}
	g := &s.group
	g.Reset()
	g.s, g.l, g.vacant = s, *l, 0
	l.Occupy(&s.heap)
	return s.Combine(l.Addr, c, g)
}

// Add implements btree.Together.
func (g *group) Add(c *combine.Change) bool { return g.AddTo(g, c) }

// BeginCombined implements btree.Together: the leaf was READ with the lock.
func (g *group) BeginCombined(*btree.Change, int) error { return nil }

// Find implements combine.Leaf.
func (g *group) Find(key []byte) (at place, is, ok bool) {
	lay, l := g.s.Lay, &g.l
	if l.Below(key) || l.Above(key) {
		return at, false, false
	}
	at = place{fp: lay.Fingerprint(key), slot: -1}
	i, e, o := l.Find(key, at.fp)
	if o == slotted.Torn || o == slotted.Present && lay.HasReference(e) {
		return at, false, false
	}
	if is = o == slotted.Present; is {
		at.slot = i
	}
	return at, is, true
}

// Fit implements combine.Leaf.
func (g *group) Fit(k *keyAt, value []byte) bool {
	at := &k.At
	slot := at.slot
	if slot < 0 {
		if slot = g.l.VacantFrom(g.vacant); slot < 0 {
			return false
		}
	}
	if n := g.s.Lay.EntryBytes(len(k.Key), len(value)); n > at.room {
		off := g.l.Take(&g.s.heap, n)
		if off == 0 {
			return false
		}
		at.off, at.room = off, fence.RoundUp(n)
	}
	if at.slot < 0 {
		at.slot, g.vacant = slot, slot+1
	}
	return true
}

// Load implements btree.Together.
func (g *group) Load() btree.Load { return loadOf(g.l.Load()) }

// Queue implements btree.Together: all entries, then all slot words.
func (g *group) Queue() (changed bool, err error) {
	s, l, keys := g.s, &g.l, g.Keys()
	for i := range keys {
		k := &keys[i]
		switch {
		case k.Is && k.Put:
			e := s.Lay.PutEntry(s.scratch, k.Key, k.Value)
			l.Put(k.At.slot, k.At.fp, k.At.off, e)
			s.PS.Write(pool.Shared, l.Addr+pool.Addr(k.At.off), l.Bytes[k.At.off:k.At.off+len(e)])
		case k.Was && !k.Is:
			l.Remove(k.At.slot)
		default:
			k.At.slot = -1
			continue
		}
		changed = true
	}
	for i := range keys {
		if slot := keys[i].At.slot; slot >= 0 {
			at := l.SlotAt(slot)
			s.PS.Write(pool.Shared, l.Addr+pool.Addr(at), l.Bytes[at:at+slotted.SlotBytes])
		}
	}
	if changed {
		s.handOn(l)
	}
	return changed, nil
}
