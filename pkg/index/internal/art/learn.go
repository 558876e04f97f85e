package art

import "encoding/binary"

// Sessions store in the copy of a node what they READ or change of it, for all sessions of the
// client. A copy has room for the slots that were filled when it was made, and a few more. For a
// child in a slot behind them a larger copy is made, and takes the place of the one in the cache.
// It has the same stamp, since its words are those of that copy, or were READ later; of two with
// one stamp Version says which is the later one. Sessions that have the copy before go on with it:
// what they store there, and what two sessions store in larger copies that they make at once, may
// be in no copy that is found later. Then that says less than is known, which words of copies may
// always do: the next descent that misses the child READs the slots, and stores them.

// Learn keeps w, READ or changed by this operation, as the word of the slot of st.
func (s *Session) Learn(st *Step, w Slot) { st.Node = s.learn(st.Node, st.Idx, w) }

// learn keeps w as the word of slot i of c. It returns the copy that has it. A slot that is empty
// needs no room.
func (s *Session) learn(c *Copy, i int, w Slot) *Copy {
	if c.store(i, w) || w.Empty() {
		return c
	}
	return s.t.enlarge(c, i, func(c *Copy) { c.store(i, w) })
}

// Renew keeps the slots of b, a node READ by an operation under way, whatever became of its head.
// It returns the copy that has them.
func (s *Session) Renew(c *Copy, b []byte) *Copy {
	return s.RenewFrom(c, 0, b[HeadBytes:SlotAt(c.Size())])
}

// RenewFrom is Renew with slots only, of which the first one is number first.
func (s *Session) RenewFrom(c *Copy, first int, b []byte) *Copy {
	filled := len(b) / SlotBytes
	for filled > 0 && Slot(binary.LittleEndian.Uint64(b[SlotBytes*(filled-1):])).Empty() {
		filled--
	}
	store := func(c *Copy) { c.renewFrom(first, b) }
	if last := first + filled - 1; filled > 0 && last >= int(c.room) {
		return s.t.enlarge(c, last, store)
	}
	store(c)
	return c
}

// renewFrom stores the slots of b that there is room for.
func (c *Copy) renewFrom(first int, b []byte) {
	for i := range min(len(b)/SlotBytes, max(0, int(c.room)-first)) {
		if w := Slot(binary.LittleEndian.Uint64(b[i*SlotBytes:])); c.Word(first+i) != w {
			c.store(first+i, w)
		}
	}
}

// enlarge returns a copy of the node of c with room for slot i, in which store has stored. If the
// cache has c, or a copy that another session made of it, it has the one returned from now on,
// unless somebody is faster, or there is no room for it.
func (t *Tree) enlarge(c *Copy, i int, store func(*Copy)) *Copy {
	now := t.latest(c)
	if i < int(now.room) {
		store(now)
		return now
	}
	// Where children come one by one most find room.
	n := now.cloneWith(min(now.Size(), i+1+i/8))
	n.Version++
	store(n)
	if now.Kept() {
		t.Cache.Put(&n.Head)
	}
	return n
}

// latest is the copy in the cache that was made of c; c if there is none. A word that may be stored
// in c may be stored there, too: it has the same stamp, so it is of the same node.
func (t *Tree) latest(c *Copy) *Copy {
	if h := t.Cache.Get(c.Addr, c.Stamp); h != nil && h.Stamp == c.Stamp {
		return copyOf(h)
	}
	return c
}
