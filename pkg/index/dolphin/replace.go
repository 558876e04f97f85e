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
// Of 1, what lies on L's server is in the list of 2: a WRITE takes effect before all that is behind
// it (G1), so whoever sees the forward word finds both leaves, and a client that dies within the
// list has not written it before these. What lies elsewhere is awaited first.
//
// The pair for which there was no room is put into L1 or L2 in 1, and takes effect with 2.
//
// Where L2's place lies below L's own slot, 3 and 4 are one swap: of that slot, from L to a node
// that leads to L1 and L2. By the swap L's slot led to L until then, so L2 had no slot.
//
// Whoever holds L's lock word, and finds the forward word, does 3 to 5, so L is never in the way of
// a client that died. A client that dies in 1 leaves L as it was, or shut, and memory that
// nobody knows.
//
// 3 comes before 4, or with it, so the right half of each leaf that a slot leads to has a slot, or
// had one. So nobody puts others in the place of L1, or L2, before both have slots: who does comes
// to leaves by their slots. So do writers, unless 3 finds no memory (lockFor).
//
// L2 may have got its slot, and lost it again, when a slow client comes to 3. It puts L2 into a
// slot only by a swap from a word that it saw before one of these: before it READ that L's slot
// leads to L, or before it did 2 itself. At that moment L2 had not lost its slot: nobody had swung
// L's, or nobody knew L2. And no word of a slot is there twice: leaves have new memory, which is
// not used again while an operation goes on that saw it, and one that is left alone in a node stays
// there (art.Layout.LoneLeaves), so its word does not come back into the slot that a Fork took it
// out of. So if the word is still there, L2's slot was not there in between. A copy of a slot that
// leads to L2 says that L2 has one, or had one.

// pairAt is a pair of a leaf: where its record is.
type pairAt struct {
	cursor
	w stateWord
}

// gatherAlive gathers the records of l that count, in the order of their keys, to s.pairs. again:
// the leaf has to be READ again, as a later record than one of them is there by now, or a cell was
// being WRITTEN. damaged: a record is none that a client writes.
func (s *Session) gatherAlive(l *leaf) (again, damaged bool) {
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
	again, damaged := s.gatherAlive(l)
	return again || damaged
}

// changeOf is what a record gets that is made with the leaf which takes the place of its own.
type changeOf struct {
	tag   uint64
	value []byte // or a reference
	found found  // what the leaf says of the key
}

// replace puts other leaves in the place of the locked one, which is in s.leaf, and has no room for
// a record of key that needs so many bytes. The lock is released, also with an error. c is a value
// for key; nil = there is none. It takes effect with the forward word where key has none, and its
// leaf has room; or has one, and one leaf takes the place, as an update takes no more room than the
// value before. done: that was so.
func (s *Session) replace(key []byte, needs int, c *changeOf) (done bool, err error) {
	l := &s.leaf
	if s.aliveLocked(l) {
		return false, s.Unlock(damagedRecord(l.at))
	}
	is, whole := c != nil && c.found.is, needs
	if is {
		needs -= s.recordSize(pairAt{c.found.cursor, c.found.w})
	}
	cut, one := s.leftHalf(key, needs)
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
	out := art.Vacant
	if m.n == 2 {
		common := max(item.CommonPrefix(bound, l.low), item.CommonPrefix(bound, l.high))
		out, err = s.ReserveLink(bound, common, l.at)
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
	if m.n == 1 {
		bound = nil
	}
	sought, err := s.readWords(bound)
	if sought && err == nil {
		out, err = s.SeekOn(bound)
	}
	if err != nil {
		s.Discard()
		return false, err
	}
	high := l.high
	if l.endless {
		high = nil
	}
	to, end := &s.halves[0], cursor{}
	if m.n == 1 {
		if is {
			s.pairs = slices.DeleteFunc(s.pairs, func(p pairAt) bool { return p.cursor == c.found.cursor })
		}
		end = s.make(0, m.at[0], l.low, high, pool.Nil, s.pairs)
	} else {
		end = s.make(0, m.at[0], l.low, bound, m.at[1], s.pairs[:cut])
		if other := s.make(1, m.at[1], bound, high, pool.Nil, s.pairs[cut:]); bytes.Compare(key, bound) >= 0 {
			to, end = &s.halves[1], other
		}
	}
	if done = c != nil && (is && m.n == 1 || !is && to.hasRoom(end, whole)); done {
		if err := s.putIn(to, end, key, c); err != nil {
			s.Discard()
			return false, err
		}
	}
	if late := s.PS.Late(); late != nil {
		s.Discard()
		return false, op.Failure(late, false)
	}
	s.Forget() // from here on others may know them
	if done && is {
		s.takeOut(&c.found)
	}
	if err := s.publishLeaves(&m); err != nil {
		return done, err
	}
	if err := s.settle(m.n, out); err != nil && !done {
		return false, err
	}
	return done, nil // who comes to the leaf next does what is left
}

// putIn puts key with the value of c behind the pairs of l, an image, and queues the WRITE of that
// value's block, if it has one.
func (s *Session) putIn(l *leaf, end cursor, key []byte, c *changeOf) error {
	long := s.lay.InBlock(len(c.value))
	if long {
		e, err := s.Blocks.PutEntry(s.entry, key, c.value, s.leaf.at)
		s.t.NoteMemory(err)
		if err != nil {
			return err
		}
		c.value = s.lay.ValueOf(e)
	}
	l.put(end, key, c.tag, c.value, long)
	return nil
}

// publishLeaves is 1 and 2, for the images of m: the leaf that is locked gets the first one's
// address. What lies on another server than that leaf is WRITTEN in a round trip before. The WRITEs
// of one list take effect in its order (G1).
func (s *Session) publishLeaves(m *leaves) error {
	for i := range m.n {
		s.PS.Write(pool.Sole, m.at[i], s.images[i])
	}
	s.setForward(uint64(m.at[0]))
	return s.publish()
}

// make makes the image of a leaf at a with some pairs of s.leaf, and returns where the next one
// goes.
func (s *Session) make(i int, a pool.Addr, low, high []byte, half pool.Addr, pairs []pairAt) cursor {
	l, n := &s.leaf, &s.halves[i]
	n.build(s.images[i], a, unit.NewVersion(s.Env), s.Env.Uint64(), low, high, half, pool.Nil)
	return n.copyPairs(l, pairs, n.first())
}

// leftHalf is how many pairs of the locked leaf go to the left one of two halves; all of them, if
// one leaf takes its place, which then has room enough. Of the places near the middle it is the one
// with the shortest separator: that is the place of a leaf, and long ones make inner nodes. Where
// keys come in ascending order nothing comes to the left half any more, so that gets most.
// oneWillDo: one leaf has room, if there is no memory for two.
func (s *Session) leftHalf(key []byte, needs int) (left int, oneWillDo bool) {
	l := &s.leaf
	total := 0
	for _, p := range s.pairs {
		total += s.recordSize(p)
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
		left += s.recordSize(before)
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

// recordSize is what the record of p takes, with its value.
func (s *Session) recordSize(p pairAt) int {
	n := s.lay.recordBytes(p.w)
	if s.lay.words {
		n += wordBytes
	}
	return n
}

// separator returns the shortest place that is above left, and not above right.
func separator(left, right []byte) []byte { return right[:item.CommonPrefix(left, right)+1] }
