package dolphin

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// How a leaf L with few pairs is merged with the one from its max on, R. Nobody holds two lock
// words. The requests, each awaited before the next:
//
//  1. under L's lock word, when nobody shares L (share.go): WRITE of L's forward word, merging. L
//     never changes any more. It is the truth for its range until 4: N has the same pairs for it,
//     and nobody changes them before.
//  2. under R's lock word, when nobody shares R: WRITE of N, which has the pairs of both. Nobody
//     knows it. Where they do not fit any more it is two leaves: N has those of L, and its right
//     half those of R.
//  3. WRITE of R's forward word, to N, and the release. From this moment on N is the truth for
//     R's range.
//  4. under L's lock word: WRITE of L's forward word, to N.
//  5. R's slot is taken out, and R is marked dead and given back; or, with a right half, it is
//     swung to that. A key of R is found by L's slot from now on: L leads to N.
//  6. L's slot is swung to N, and L is given back.
//
// R is the leaf from L's max on when its lock word is held, and its range begins there, and it has
// no forward word. So nobody has to know R's address in 1, and R may be replaced between 1 and 2.
//
// R decides: of several who come to 2 one gets R's lock word, and the others find the forward word.
// Whoever finds L or R half done does the rest. That begins with R where R itself is to be merged,
// so the one with the highest keys comes first.
//
// 6 comes last, so N has no slot before R has lost its own. Nobody puts others in N's place before,
// so whoever is led to R, by a copy of its slot as old as may be, finds N behind it. Nobody changes
// a record of L's range in N before 4.
//
// A slow client may come to 4 when others have done all of it, and L's place is another leaf's,
// which is to be merged, too. So it READs R's slot under the lock word of the leaf that it takes
// for L. If that leads to R still, 5 was not done, nor 6, so it is L.

const (
	// A leaf is to be merged if its pairs take up to so many eighths of its room, and those of it
	// and the next one together up to mergedShare; one without pairs if they fit.
	sparseShare = 2
	mergedShare = 5
	// lookEvery is how many deletes from a sparse leaf with pairs there are for one that looks at
	// the next leaf.
	lookEvery = 4
	// mostMerges is how many merges may wait for each other.
	mostMerges = 64
)

// mergeIfSmall looks, after a delete from the leaf in s.leaf, whether that is to be merged. Its
// lock word was given up. The delete has taken effect, and is answered so, whatever becomes of the
// merge: others go on with it, and an error that ended the session is told by its next operation.
//
// A merge takes memory before it gives some back. Where there is none it waits for what is on its
// way back: no delete comes to a leaf without pairs, so nobody else would merge it.
func (s *Session) mergeIfSmall() {
	if s.inPlace != nil {
		return
	}
	low := append(s.sparse[:0], s.leaf.low...)
	s.sparse = low
	for {
		if err := s.merge(); !errors.Is(err, index.ErrPoolFull) || !s.awaitMemory() {
			return
		}
		if there, err := s.find(low, false); err != nil || !there || !bytes.Equal(s.leaf.low, low) || s.leaf.forward() > shut {
			return
		}
	}
}

// merge is tidy.
func (s *Session) merge() error {
	l := &s.leaf
	if l.endless {
		return nil
	}
	left := 0
	for c := l.first(); ; {
		w, ok, _ := l.get(c)
		if !ok {
			break
		}
		if w.state() == alive {
			left += s.recordSize(pairAt{c, w})
		}
		c = l.next(c, w)
	}
	room := s.lay.size - l.records
	if left*8 > room*sparseShare || left > 0 && s.Env.Uint64()%lookEvery != 0 {
		return nil
	}
	low := bytes.Clone(l.low)
	next := bytes.Clone(l.high)
	there, err := s.find(next, false)
	if err != nil || !there || !bytes.Equal(s.leaf.low, next) || s.leaf.forward() > shut {
		return err
	}
	if s.leaf.at != s.Last().Word.Addr() {
		return nil // it has no slot yet, and there may be no memory for that
	}
	if _, damaged := s.gatherAlive(&s.leaf); damaged {
		return nil
	}
	all := left
	for _, p := range s.pairs {
		all += s.recordSize(p)
	}
	if all > room || left > 0 && all*8 > room*mergedShare {
		return nil
	}
	// Memory comes first: with the forward word, and without N, nobody could change a pair of L.
	// Others may fill R until its lock word is held. Without pairs in L one leaf takes all of that,
	// if N's min leaves it as much room; else it may be two.
	n := 2
	if left == 0 && padded(len(low)) <= padded(len(next)) {
		n = 1
	}
	defer s.EndReserve(s.BeginReserve())
	for range n {
		if err := s.Reserve(s.lay.size, s.leaf.at); err != nil {
			return err
		}
	}
	there, err = s.lock(low, false)
	if err != nil || !there {
		return err
	}
	l = &s.leaf
	if !bytes.Equal(l.low, low) || l.endless || !bytes.Equal(l.high, next) {
		return s.Unlock(nil)
	}
	if s.aliveLocked(l) || n == 1 && len(s.pairs) > 0 {
		return s.Unlock(nil)
	}
	return s.mergeRight()
}

// mergeRight merges the locked leaf with the one from its max on. It is shut first: whoever finds
// merging READs its pairs, also before it is given up here.
func (s *Session) mergeRight() error {
	if err := s.shutOut(); err != nil {
		return err
	}
	s.setForward(merging)
	if err := s.publish(); err != nil {
		return err
	}
	return s.mergeOn()
}

// mergeOn does 2 to 6 for the leaf in s.leaf, whose forward word says merging. No lock is held.
func (s *Session) mergeOn() error {
	if s.depth == mostMerges {
		return fmt.Errorf("merge leaf %v: more than %d merges wait for each other", s.leaf.at, mostMerges)
	}
	s.depth++
	defer func() { s.depth-- }()
	a, low, high := s.leaf.at, bytes.Clone(s.leaf.low), bytes.Clone(s.leaf.high)
	there, err := s.lock(high, !s.lay.words) // completes what it finds
	if err != nil || !there {
		return err
	}
	if !bytes.Equal(s.leaf.low, high) { // others were faster
		return s.Unlock(nil)
	}
	if err := s.shutOut(); err != nil {
		return err
	}
	// L is READ under R's lock word. It never changes, but for its forward word: if that says
	// merging it is the left one of this merge, as only who has R's lock word ends it. Words of R
	// were changed until R was shut.
	s.PS.Read(a, s.besideRoom)
	if s.lay.words {
		s.PS.Read(s.leaf.at, s.room)
	}
	if err := s.PS.Post(); err != nil {
		return op.Failure(err, false)
	}
	l, r := &s.beside, &s.leaf
	if !l.open(s.besideRoom, a) || !bytes.Equal(l.low, low) || !bytes.Equal(l.high, high) || l.forward() != merging {
		return s.Unlock(nil)
	}
	return s.mergeLocked(l, r)
}

// mergeLocked does 2 to 6 for l and r, whose lock word is held.
func (s *Session) mergeLocked(l, r *leaf) error {
	if s.aliveLocked(r) {
		return s.Unlock(damagedRecord(r.at))
	}
	right := slices.Clone(s.pairs)
	if s.aliveLocked(l) {
		return s.Unlock(damagedRecord(l.at))
	}
	all := 0
	for _, p := range right {
		all += s.recordSize(p)
	}
	for _, p := range s.pairs {
		all += s.recordSize(p)
	}
	high := r.high
	if r.endless {
		high = nil
	}
	n := 1
	if all > s.lay.size-headBytes(len(l.low), len(high)) {
		n = 2
	}
	var m leaves
	if err := s.allotSome(&m, r.at, n); err != nil { // both leaves' memory comes back
		s.Discard()
		return err
	}
	at := m.at
	first, second := &s.halves[0], &s.halves[1]
	if n == 1 {
		first.build(s.images[0], at[0], unit.NewVersion(s.Env), s.Env.Uint64(), l.low, high, pool.Nil, r.at)
		first.copyPairs(r, right, first.copyPairs(l, s.pairs, first.first()))
	} else {
		first.build(s.images[0], at[0], unit.NewVersion(s.Env), s.Env.Uint64(), l.low, l.high, at[1], pool.Nil)
		first.copyPairs(l, s.pairs, first.first())
		second.build(s.images[1], at[1], unit.NewVersion(s.Env), s.Env.Uint64(), r.low, high, pool.Nil, pool.Nil)
		second.copyPairs(r, right, second.first())
	}
	if late := s.PS.Late(); late != nil {
		s.Discard()
		return op.Failure(late, false)
	}
	s.Forget() // from here on others may know them
	if err := s.publishLeaves(&m); err != nil {
		return err
	}
	s.t.Merges.Add(1)
	return s.complete(at[0])
}

// copyPairs copies pairs of o to l, from c on, and returns where the next one goes.
func (l *leaf) copyPairs(o *leaf, pairs []pairAt, c cursor) cursor {
	for _, p := range pairs {
		v, long, _ := o.value(p.cursor, p.w)
		_, c = l.put(c, o.key(p.cursor, p.w), p.w.tag(), v, long)
	}
	return c
}

// mergeUp does 4 to 6, where the leaf at r, whose place is s.place, was merged into the one at to,
// in s.beside, which begins lower.
func (s *Session) mergeUp(r, to pool.Addr) error {
	low, high := bytes.Clone(s.beside.low), bytes.Clone(s.place)
	for {
		// Where R's slot is, and that it was there.
		st, there, err := s.leadsNow(high, slotOf(r))
		if err != nil || !there {
			return err
		}
		out, err := s.Seek(low)
		if err != nil {
			return err
		}
		if out != art.Leafed {
			_, _, err := s.Confirm(low, out)
			if err == nil {
				err = s.Retry()
			}
			if err != nil {
				return err
			}
			continue
		}
		last := s.Last()
		forwarded, err := s.forwardLeft(last.Word.Addr(), low, high, &st, r, to)
		if err != nil {
			return err
		}
		if forwarded {
			return s.complete(to)
		}
		// One of the copies is old.
		if _, err := s.ReadWord(&st); err != nil {
			return err
		}
		if err := s.renew(s.Last()); err != nil {
			return err
		}
	}
}

// forwardLeft does 4 for the leaf at a, if it is the left one of the merge of the leaf at r, where
// st leads, into the one at to. It is in s.leaf then.
func (s *Session) forwardLeft(a pool.Addr, low, high []byte, st *art.Step, r, to pool.Addr) (bool, error) {
	at, err := s.t.strips.WordOf(a)
	if err != nil {
		return false, damagedLeaf(a, "no place for a lock word")
	}
	if _, err := s.PS.Acquire(pool.Word{At: at, Node: a, InStrip: true}, pool.Span{At: a, Local: s.room}); err != nil {
		return false, op.Failure(err, false)
	}
	l := &s.leaf
	if !l.open(s.room, a) || !bytes.Equal(l.low, low) || l.endless || !bytes.Equal(l.high, high) {
		return false, s.Unlock(nil)
	}
	if leads := l.forward(); leads != merging {
		return leads == uint64(to), s.Unlock(nil)
	}
	s.PS.Read(st.Node.Addr+pool.Addr(art.SlotAt(st.Idx)), s.Answers[:art.SlotBytes])
	if err := s.PS.Post(); err != nil {
		return false, op.Failure(err, false)
	}
	w := slotIn(s.Answers)
	s.Learn(st, w)
	if w.Frozen() || !w.Leaf() || w.Addr() != r {
		return false, s.Unlock(nil)
	}
	s.setForward(uint64(to))
	return true, s.publish()
}
