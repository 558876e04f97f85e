package dolphin

import (
	"bytes"
	"errors"
	"slices"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// How other leaves take the place of a leaf L: one with what is alive in L, or two, L1 and its
// right half L2, which have L's range together. The requests, each awaited before the next:
//
//  1. under L's lock word, when nobody shares L (share.go): WRITEs of L1 and L2. Nobody knows them.
//  2. WRITE of L's forward word, to L1, and the release of the lock word. From this moment on L1
//     and L2 are the truth, and L never changes any more.
//  3. L2 gets a slot. Whoever is led to L by the slot of L finds L2 by L1.
//  4. L's slot is swung to L1. Nobody comes to L who begins now.
//  5. L is marked dead, and given back.
//
// Whoever holds L's lock word, and finds the forward word, does 3 to 5, so L is never in the way of
// a client that died. A client that dies in 1 leaves L as it was, or shut, and memory that
// nobody knows.
//
// 3 comes before 4, so the right half of each leaf that a slot leads to has a slot, or had one. So
// nobody puts others in the place of L1, or L2, before both have slots: who does comes to leaves by
// their slots. So do writers, unless 3 finds no memory (lockFor).
//
// L2 may have got its slot, and lost it again, when a slow client comes to 3. It puts L2 into a
// slot only by a swap from a word that it saw before it READ that L's slot leads to L. At that READ
// L2 had not lost its slot, and no word of a slot is there twice: leaves have new memory, which is
// not used again while an operation goes on that saw it, and one that is left alone in a node stays
// there (art.Layout.LoneLeaves), so its word does not come back into the slot that a Fork took it
// out of. So if the word is still there, L2's slot was not there in between.

// pairAt is a pair of a leaf: where its record is.
type pairAt struct {
	cursor
	w stateWord
}

// alive gathers the records of l that count, in the order of their keys, to s.pairs. again: the
// leaf has to be READ again, as a later record than one of them is there by now, or a cell was
// being WRITTEN. damaged: a record is none that a client writes.
func (s *Session) alive(l *leaf) (again, damaged bool) {
	s.pairs = s.pairs[:0]
	c := l.first()
	for {
		w, ok, broken := l.get(c)
		if !ok {
			damaged = broken
			break
		}
		if w.tag() == s.lay.tagOf(l.key(c, w)) {
			s.pairs = append(s.pairs, pairAt{c, w})
		}
		c = l.next(c, w)
	}
	slices.SortFunc(s.pairs, func(a, b pairAt) int {
		if n := bytes.Compare(l.key(a.cursor, a.w), l.key(b.cursor, b.w)); n != 0 {
			return n
		}
		return a.n - b.n
	})
	n := 0
	for i, p := range s.pairs {
		if i+1 < len(s.pairs) && bytes.Equal(l.key(p.cursor, p.w), l.key(s.pairs[i+1].cursor, s.pairs[i+1].w)) {
			continue // a later record says what counts
		}
		is, torn := l.counts(p.cursor, p.w)
		if again = again || torn; is {
			s.pairs[n] = p
			n++
		}
	}
	s.pairs = s.pairs[:n]
	return again, damaged
}

// aliveLocked is alive of a leaf whose lock word is held, or that never changes any more: no cell
// is being WRITTEN.
func (s *Session) aliveLocked(l *leaf) (damaged bool) {
	again, damaged := s.alive(l)
	return again || damaged
}

// changeOf is what a record gets that is made with the leaf which takes the place of its own.
type changeOf struct {
	tag    uint64
	value  []byte // or a reference
	length int    // of the value
	found  found  // what the leaf says of the key
}

// replace puts other leaves in the place of the locked one, which is in s.leaf, and has no room for
// a record of key that needs so many bytes. The lock is released, also with an error. c is a value
// for key; nil = there is none. Where key has one, and one leaf takes the place, that has the new
// one: an update takes no more room than the value before, and takes effect with the forward word.
// done: that was so.
func (s *Session) replace(key []byte, needs int, c *changeOf) (done bool, err error) {
	l := &s.leaf
	if s.aliveLocked(l) {
		return false, s.Unlock(damagedRecord(l.at))
	}
	is := c != nil && c.found.is
	if is {
		needs -= s.recordNeeds(pairAt{c.found.cursor, c.found.w})
	}
	cut, one := s.cut(key, needs)
	// Nobody knows what is allocated until the forward word says it. What 3 takes is reserved: with
	// the forward word, and without a slot for L2, nobody could change a pair of L.
	n, bound := 1, []byte(nil)
	if cut < len(s.pairs) {
		before, behind := s.pairs[cut-1], s.pairs[cut]
		n, bound = 2, separator(l.key(before.cursor, before.w), l.key(behind.cursor, behind.w))
	}
	defer s.EndReserve(s.BeginReserve())
	var m leaves
	if err := s.allot(&m, l.at, n, one); err != nil {
		return false, err
	}
	if m.n == 2 {
		common := max(item.CommonPrefix(bound, l.low), item.CommonPrefix(bound, l.high))
		err := s.ReserveLink(bound, common, l.at)
		if err != nil {
			s.GiveBack() // to the reserve
		}
		switch {
		case err != nil && one && errors.Is(err, index.ErrPoolFull):
			err = s.allot(&m, l.at, 1, true)
		case err != nil:
			s.Discard()
		}
		if err != nil {
			return false, err
		}
	}
	if err := s.readWords(); err != nil {
		s.Discard()
		return false, err
	}
	done = is && m.n == 1
	at := m.at
	high := l.high
	if l.endless {
		high = nil
	}
	if m.n == 1 {
		if done {
			if err := s.changed(key, c); err != nil {
				s.Discard()
				return false, err
			}
		}
		s.make(0, at[0], l.low, high, pool.Nil, s.pairs)
		if done {
			first := &s.halves[0]
			end := first.first()
			for w, ok, _ := first.get(end); ok; w, ok, _ = first.get(end) {
				end = first.next(end, w)
			}
			first.put(end, key, c.tag, c.value, s.lay.InBlock(c.length))
		}
	} else {
		s.make(0, at[0], l.low, bound, at[1], s.pairs[:cut])
		s.make(1, at[1], bound, high, pool.Nil, s.pairs[cut:])
	}
	if err := s.writeLeaves(&m); err != nil {
		return false, err
	}
	if done {
		s.takeOut(&c.found)
	}
	s.setForward(uint64(at[0]))
	if err := s.publish(); err != nil {
		return done, err
	}
	if err := s.complete(at[0]); err != nil && !done {
		return false, err
	}
	return done, nil // who comes to the leaf next does what is left
}

// changed takes the record of key out of s.pairs, and queues the WRITE of the block of its new
// value, if that has one.
func (s *Session) changed(key []byte, c *changeOf) error {
	s.pairs = slices.DeleteFunc(s.pairs, func(p pairAt) bool { return p.cursor == c.found.cursor })
	if c.length = len(c.value); !s.lay.InBlock(c.length) {
		return nil
	}
	e, err := s.Blocks.PutEntry(s.entry, key, c.value, s.leaf.at)
	s.t.NoteMemory(err)
	if err == nil {
		c.value = s.lay.ValueOf(e)
	}
	return err
}

// writeLeaves WRITEs the images of m. With an error the lock is released, or the session is dead.
func (s *Session) writeLeaves(m *leaves) error {
	for i := range m.n {
		s.PS.Write(pool.Sole, m.at[i], s.images[i])
	}
	if err := s.PS.Post(); err != nil {
		s.Forget()
		return op.Failure(err, false)
	}
	if late := s.PS.Late(); late != nil {
		// What looks like a leaf is one, as shutAfterDeath believes.
		for i := range m.n {
			n := unit.PutDead(s.images[i], m.at[i], art.KindLeaf, unit.NewVersion(s.Env))
			s.PS.Write(pool.Sole, m.at[i], s.images[i][:n])
		}
		if err := s.PS.Post(); err != nil {
			s.Forget()
			return op.Failure(err, false)
		}
		s.Discard()
		return op.Failure(late, false)
	}
	s.Forget() // from here on others may know them
	return nil
}

// make makes the image of a leaf at a with some pairs of s.leaf.
func (s *Session) make(i int, a pool.Addr, low, high []byte, half pool.Addr, pairs []pairAt) {
	l, n := &s.leaf, &s.halves[i]
	n.build(s.images[i], a, unit.NewVersion(s.Env), s.Env.Uint64(), low, high, half, pool.Nil)
	c := n.first()
	for _, p := range pairs {
		v, long, _ := l.value(p.cursor, p.w)
		_, c = n.put(c, l.key(p.cursor, p.w), p.w.tag(), v, long)
	}
}

// cut is how many pairs of the locked leaf go to the left one of two halves; all of them, if one
// leaf takes its place, which then has room enough. Of the places near the middle it is the one
// with the shortest separator: that is the place of a leaf, and long ones make inner nodes. Where
// keys come in ascending order nothing comes to the left half any more, so that gets most.
// oneWillDo: one leaf has room, if there is no memory for two.
func (s *Session) cut(key []byte, needs int) (left int, oneWillDo bool) {
	l := &s.leaf
	total := 0
	for _, p := range s.pairs {
		total += s.recordNeeds(p)
	}
	room := s.lay.size - l.records
	if len(s.pairs) < 2 || total+needs <= room*5/8 {
		return len(s.pairs), true
	}
	from, to := total*3/8, total*5/8
	if last := s.pairs[len(s.pairs)-1]; bytes.Compare(key, l.key(last.cursor, last.w)) > 0 {
		from, to = total*7/8, total*7/8
	}
	best, shortest := 0, 0
	for i := 1; i < len(s.pairs); i++ {
		before, behind := s.pairs[i-1], s.pairs[i]
		left += s.recordNeeds(before)
		if left < from && i+1 < len(s.pairs) {
			continue
		}
		n := item.CommonPrefix(l.key(before.cursor, before.w), l.key(behind.cursor, behind.w))
		if best == 0 || left <= to && n < shortest {
			best, shortest = i, n
		}
		if left >= to {
			break
		}
	}
	return best, total+needs <= room
}

// recordNeeds is what the record of p takes, with its value.
func (s *Session) recordNeeds(p pairAt) int {
	n := s.lay.recordBytes(p.w)
	if s.lay.words {
		n += wordBytes
	}
	return n
}

// separator returns the shortest place that is above left, and not above right.
func separator(left, right []byte) []byte { return right[:item.CommonPrefix(left, right)+1] }

// complete does 3 to 5 for the leaf of s.leaf, in whose place the one at to is.
func (s *Session) complete(to pool.Addr) error {
	at := s.leaf.at
	s.place, s.high = append(s.place[:0], s.leaf.low...), append(s.high[:0], s.leaf.high...)
	for {
		there, err := s.Leads(s.place, slotOf(at))
		if err != nil || !there {
			return err
		}
		st := *s.Last()
		if st.Word.Frozen() {
			if err := s.Replace(s.Level); err != nil {
				return err
			}
			continue
		}
		if err := s.Read(to, s.besideRoom); err != nil {
			return err
		}
		if !s.beside.open(s.besideRoom, to) {
			// It is out, so it had L's slot: the copy is old.
			if err := s.renew(&st); err != nil {
				return err
			}
			continue
		}
		if !bytes.Equal(s.beside.low, s.place) {
			return s.mergeUp(at, to)
		}
		if half := s.beside.right; half != pool.Nil || s.beside.merged != pool.Nil {
			if done, err := s.settleRight(&st, at); err != nil {
				return err
			} else if !done {
				continue
			}
			if there, err = s.Leads(s.place, slotOf(at)); err != nil || !there {
				return err
			}
		}
		if won, err := s.Swing(s.Last(), slotOf(to)); won || err != nil {
			return err
		}
	}
}

// settleRight does what comes before the slot of the leaf at a is swung to the one in s.beside,
// which takes its place. st is the step that leads there. done is false if the tree is another one
// than it was; then it is to be looked at anew.
func (s *Session) settleRight(st *art.Step, a pool.Addr) (done bool, err error) {
	if m := s.beside.merged; m != pool.Nil {
		s.right = append(s.right[:0], s.high...)
		return true, s.Unlink(s.right, slotOf(m))
	}
	s.right = append(s.right[:0], s.beside.high...)
	return s.linkRight(st, a, s.beside.at, s.beside.right)
}

// linkRight is settleRight for the leaf at half, whose place is s.right, the right half of the one
// at left: it gets a slot, unless it has one.
func (s *Session) linkRight(st *art.Step, a, left, half pool.Addr) (done bool, err error) {
	out, err := s.Seek(s.right)
	if err != nil {
		return false, err
	}
	if out == art.Leafed {
		w := s.Last().Word
		if err := s.Read(w.Addr(), s.besideRoom); err != nil {
			return false, err
		}
		if !s.beside.open(s.besideRoom, w.Addr()) {
			return false, s.renew(s.Last())
		}
		if bytes.Equal(s.beside.low, s.right) {
			if w.Addr() == half || s.beside.forward() != uint64(left) {
				return true, nil
			}
			won, err := s.Swing(s.Last(), slotOf(half)) // it was the right one of a merge
			return won, err
		}
		if w.Frozen() {
			return false, s.Replace(s.Level)
		}
	}
	// The words of the way were seen before this READ.
	s.PS.Read(st.Node.Addr+pool.Addr(art.SlotAt(st.Idx)), s.Answers[:art.SlotBytes])
	if err := s.PS.Post(); err != nil {
		return false, op.Failure(err, false)
	}
	w := slotIn(s.Answers)
	s.Learn(st, w)
	if w.Frozen() || !w.Leaf() || w.Addr() != a {
		return false, s.Retry()
	}
	s.coming = coming{s: s, place: s.right, at: half}
	if out == art.Leafed {
		done, err = s.Fork(&s.coming, s.beside.low)
	} else {
		done, err = s.Link(&s.coming, out)
	}
	return done, err
}
