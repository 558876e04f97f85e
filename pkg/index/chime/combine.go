package chime

import (
	"bytes"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/combine"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
)

// The holder of a leaf's word carries out, with its own change of one slot, those of sessions that
// wait for the word (btree.Session.Combine). What is here is which changes may be made in one list,
// and what the memory holds after each part of it.
//
// Nothing hops. A key keeps its slot, also if it is removed and inserted again in one list. A key
// that is new gets a slot of its neighbourhood that is empty in the memory; a slot that the list
// empties is not used in the same list. So each slot is of one key through the list, which has:
//
//  1. WRITE of each slot whose key goes, from the last slot to the first;
//  2. WRITE of each other slot that changes, with its last state;
//  3. behind all of these, WRITE of the home word of each home whose keys changed, unless its slot
//     is among these;
//  4. the release of the word, with the new own bits.
//
// Where one key comes, 2 and 3 are as of one change (writeBoth).
//
// After any part of the list, each slot has its old state or its last one, or is the one that is
// being written and does not verify. So a key is found where it is, or was, with one of its values.
// A reader that does not find a key saw its slot without it, and a home word that names exactly the
// keys that it saw (docs/design/chime.md, "A miss"). That word can be ahead of other slots, as the
// words of slots in 1 and 2 are: then it names a key whose slot has it not yet, and what such a
// reader sees does not match. It never says that a key is gone whose slot still has it. A key lies
// behind its home, so its slot is WRITTEN before that of its home if keys of both go. Where it lies
// before, past the last slot, both do not go in one list (mayDelete).
//
// A client that dies leaves a slot that does not verify, if it was cut within it: of a key that is
// new, or that goes. Nobody was told of either. An entry that replaces another one is WRITTEN by
// such WRITEs only as take effect as a whole. Where there are none, it is a Rewrite of its slot,
// and there is one of these in a list at most. RebuildWord makes home words and own bits anew.
//
// Where only the holder's own key changes, what it has READ suffices: the neighbourhood. For other
// keys it READs the leaf, one round trip more for all of them.
//
// A change goes back to the queue where it needs more than that: its key is not the leaf's, there
// is no empty slot in its neighbourhood, or the old or the new value lies in a block.

// place is where a key of a group is, or will be.
type place struct{ home, slot int } // slot -1 = none yet

type keyAt = combine.KeyAt[place]

// group is the changes that are made together. It implements btree.Together.
type group struct {
	combine.Group[place]
	s        *session
	t        *target
	rewrites *keyAt // the key whose entry is rewritten, where a WRITE can be cut short; nil = none
}

// offered is the change that the session offers to whoever has the word; nil if it does it itself.
func (s *session) offered(m combine.Mode, key, value []byte) *btree.Change {
	if !s.t.with.writeCombining || s.t.indirect || s.t.codec.InBlock(len(value)) {
		return nil
	}
	return s.OfferChange(m, key, value)
}

// combine is btree's Combine for the locked leaf.
func (s *session) combine(t *target, c *btree.Change) (done bool, err error) {
	if !s.Meets(c) {
		return false, nil
	}
	g := &s.group
	g.Reset()
	g.s, g.t, g.rewrites = s, t, nil
	return s.Combine(t.addr, c, g)
}

// Add implements btree.Together.
func (g *group) Add(c *combine.Change) bool {
	return (c.Mode != combine.Delete || g.mayDelete(c.Key)) && g.AddTo(g, c)
}

// mayDelete reports whether key may go in one list with the keys that go already: none of them has
// its home behind its slot and where another one lies.
func (g *group) mayDelete(key []byte) bool {
	var at place
	known := false
	for i := range g.Keys() {
		if k := &g.Keys()[i]; bytes.Equal(k.Key, key) {
			at, known = k.At, true
		}
	}
	for i := range g.Keys() {
		k := &g.Keys()[i]
		if !k.Was || k.Is || bytes.Equal(k.Key, key) {
			continue
		}
		if !known {
			at, _, _ = g.Find(key)
			known = true
		}
		if at.wrapsTo(k.At) || k.At.wrapsTo(at) {
			return false
		}
	}
	return true
}

// wrapsTo reports whether p lies past the last slot, and its home is the slot of o.
func (p place) wrapsTo(o place) bool { return p.slot < p.home && p.home == o.slot }

// BeginCombined implements btree.Together.
func (g *group) BeginCombined(c *btree.Change, n int) error {
	s, t := g.s, g.t
	if t.whole || !g.needsLeaf(c, n) {
		return nil
	}
	if err := s.readLocked(t.addr, s.Node); err != nil {
		return err
	}
	if s.decodeWhole(t) == nil || !t.whole {
		return t.isDamaged()
	}
	return nil
}

// needsLeaf reports whether c and n changes that were taken need more than the neighbourhood of
// c's key: one is of another key, or is a delete and nothing says how many pairs the leaf has.
func (g *group) needsLeaf(c *btree.Change, n int) bool {
	uncounted := !g.t.hints.isKnown()
	if uncounted && c.Mode == combine.Delete {
		return true
	}
	for i := range n {
		o := g.s.CombinedChange(i)
		if uncounted && o.Mode == combine.Delete || !bytes.Equal(o.Key, c.Key) {
			return true
		}
	}
	return false
}

// Find implements combine.Leaf. The session's own key is the leaf's.
func (g *group) Find(key []byte) (at place, is, ok bool) {
	t := g.t
	if len(g.Keys()) > 0 && (t.header.Below(key) || t.header.Above(key)) {
		return at, false, false
	}
	at = place{home: t.shape.home(key), slot: -1}
	i, e, o := t.find(key, at.home, t.version)
	if o == torn || o == present && g.s.Lay.HasReference(e) {
		return at, false, false
	}
	if is = o == present; is {
		at.slot = i
	}
	return at, is, true
}

// Fit implements combine.Leaf.
func (g *group) Fit(k *keyAt, _ []byte) bool {
	if k.At.slot < 0 {
		k.At.slot = g.vacant(k.At.home)
		return k.At.slot >= 0
	}
	if k.Was && !g.s.slotWriteIsWhole(g.t) {
		if g.rewrites != nil && g.rewrites != k {
			return false
		}
		g.rewrites = k
	}
	return true
}

// slotWriteIsWhole reports whether the WRITE of a slot of the locked leaf takes effect as a whole,
// whoever dies.
func (s *session) slotWriteIsWhole(t *target) bool { return s.Pool.WholeAlways(t.addr) >= t.slot }

// vacant is a slot for a key with a home that is empty in the memory, and no other key's; -1 if
// there is none.
func (g *group) vacant(home int) int {
search:
	for j := range g.t.hood {
		i := g.t.next(home, j)
		if !g.t.vacant(i) {
			continue
		}
		for _, k := range g.Keys() {
			if k.At.slot == i {
				continue search
			}
		}
		return i
	}
	return -1
}

// Load implements btree.Together.
func (g *group) Load() btree.Load { return g.s.loadAfter(g.t) }

// Queue implements btree.Together. It also says what the release makes of the own bits.
func (g *group) Queue() (bool, error) {
	s, t, keys := g.s, g.t, g.Keys()
	if g.rewrites != nil {
		if err := s.PS.ReserveRewrite(t.addr, s.Lay.NodeBytes); err != nil {
			return false, op.Failure(err, false)
		}
	}
	changed := 0
	for i := range keys {
		k := &keys[i]
		switch {
		case k.Is && k.Put:
			t.put(k.At.slot, t.version, s.t.codec.PutEntry(s.scratch, k.Key, k.Value))
			if !k.Was {
				t.addToHome(k.At.home, k.At.slot, t.version, k.Key)
			}
		case k.Was && !k.Is:
			t.put(k.At.slot, t.version, nil)
			t.removeFromHome(k.At.home, k.At.slot, t.version, k.Key)
		default:
			k.At.slot = -1
			continue
		}
		changed++
		if k.Was != k.Is && !t.whole && t.hints.isKnown() { // the only key
			if k.Is {
				t.hints = t.hintsWith(k.At.slot).withCount(t.hints.count() + 1)
			} else {
				t.hints = t.hintsWithout(t.hints, k.At.slot)
			}
		}
	}
	if changed == 0 {
		return false, nil
	}
	for last := t.n; last >= 0; { // those that go, from the last slot to the first
		next := -1
		for i := range keys {
			if k := &keys[i]; !k.Is && k.At.slot < last {
				next = max(next, k.At.slot)
			}
		}
		if last = next; next >= 0 {
			s.writeSlot(t, next)
		}
	}
	for i := range keys {
		switch k := &keys[i]; {
		case k.At.slot < 0 || !k.Is:
		case changed == 1 && !k.Was && k.At.home == t.home:
			s.writeBoth(t, k.At.slot)
		case k.Was && k.Is && !s.slotWriteIsWhole(t):
			at := t.slotAt(k.At.slot)
			e, _, _ := t.entry(k.At.slot)
			s.PS.Rewrite(t.addr+pool.Addr(at), t.b[at:at+slotHead+len(e)])
		default:
			s.writeSlot(t, k.At.slot)
		}
	}
	for i := range keys {
		if k := &keys[i]; k.At.slot >= 0 && k.Was != k.Is && !g.covers(i, k.At.home) && !(changed == 1 && k.Is && k.At.home == t.home) {
			s.writeHome(t, k.At.home)
		}
	}
	if t.whole {
		t.hints = t.hintsOf(s.table(t))
	}
	if invariants.Enabled {
		for i := range keys {
			k := &keys[i]
			invariants.Check(k.At.slot < 0 || t.isHomeComplete(k.At.home, t.version), "home word %d of leaf %v after combined changes", k.At.home, t.addr)
		}
	}
	s.PS.SetOwn(hintBits, uint64(t.hints))
	return true, nil
}

// covers reports whether the home word of home is WRITTEN already: with its slot, or for a key
// before number n.
func (g *group) covers(n, home int) bool {
	for i, k := range g.Keys() {
		if k.At.slot < 0 {
			continue
		}
		if k.At.slot == home || i < n && k.Was != k.Is && k.At.home == home {
			return true
		}
	}
	return false
}
