package dolphin

import (
	"errors"

	"github.com/dmindex/dmindex/pkg/index/internal/combine"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
)

// The holder of a leaf's lock word makes, with its own change of one pair, those that sessions of
// its client offer while they wait for the word (pool/combine.go has the queue and its rules). What
// is here is which changes may be made in one list, and what the memory holds after each part of
// it. The list has:
//
//  1. WRITE of the value words of keys that get a record, if values are words;
//  2. WRITE of their records, one behind the other;
//  3. for each other key with another value in the end: WRITE of its value word or cell; for each
//     that is gone: WRITE of its state word, dead; for each that was there and got a record: WRITE
//     of the state word of the one before, moved;
//  4. the CAS that gives the lane up.
//
// These are at most three WRITEs a key, where a record's WRITE can be cut short: 52 requests.
//
// A key that is there keeps its record if its last value can be WRITTEN over the one before, also
// if it is removed and inserted again in one list. A key that is new and removed again gets
// nothing. So a key changes by the WRITEs of one change (write.go), from its old state to its last
// one, and none of these depends on those of another key. Records of 2 are found only behind those
// before them: a reader sees the first ones, or all. To it these are changes of different keys that
// are under way at the same time. A client that dies leaves each key in either state, or a record
// in part, and the leaf is shut.
//
// # Shared updates go on
//
// None of these changes needs the leaf to itself, so nobody shuts it, and nobody waits for presence
// words. Updates that are shared change value words of records that they saw alive. What they meet
// is what they meet beside one change:
//
//   - The record is dead or moved by now: the update comes before the list, and its value is
//     nobody's.
//   - The record is alive, and its key got another value in the list: the two WRITEs of one word
//     order themselves (G2), and the update comes before the list, or behind it.
//   - The list removed the key, and inserted it again in its record: likewise.
//
// What does need the leaf to itself is not offered, and takes no offers: Modify, and replacing or
// merging a leaf. Sessions whose change is in the queue go on waiting for the word then, and find
// the leaf open, or others in its place.
//
// # Answers
//
// An offer is of a leaf, by its address. It is taken by a session that has acquired the leaf's lock
// word, found the leaf to be the truth for the key, and open, and is not late (acquire). So it is
// made where its own session would have made it, after that began and before it is answered. Each
// answer comes after the CAS of 4, which fails where the lane is not this client's any more. Then
// holder and all others have no answer (ErrUnknown). So also an answer that changes nothing is not
// older than its operation.
//
// Where a client dies after it acquired the word, all of these sessions die with it, and none of
// them was answered. The lane says REPAIR then, and the next holder finds the leaf shut.
//
// A change goes back to the queue where its key is not the leaf's, the leaf has no room, or the old
// or the new value lies in a block. The queue is in order of arrival, and a list makes MaxTaken
// changes besides its own, so a session that waits is overtaken by so many a list.

// place is where a key of a group is, or will be.
type place struct {
	found found
	// what its new record takes, with its value; 0 = it gets none
	needs int
}

type keyAt = combine.KeyAt[place]

// group is the changes that are made together. It implements combine.Leaf.
type group struct {
	combine.Group[place]
	s     *Session
	needs int // of all new records
}

// errAnswered is what acquire ends with where another session has made the change that was offered.
var errAnswered = errors.New("another session made the change")

// offered is the change that the session offers to whoever has the lock word; nil if it makes that
// itself.
func (s *Session) offered(m combine.Mode, key, value []byte) *combine.Change {
	if !s.t.with.writeCombining || s.lay.InBlock(len(value)) {
		return nil
	}
	s.offer = combine.Change{Mode: m, Key: key, Value: value}
	return &s.offer
}

// acquireWord acquires the lock word of a leaf, and READs spans. errAnswered: another session has
// made the change c, which can be nil, and no lock is held.
func (s *Session) acquireWord(w pool.Word, c *combine.Change, span pool.Span) error {
	if c == nil {
		_, err := s.PS.Acquire(w, span)
		return op.Failure(err, false)
	}
	_, answered, err := s.PS.AcquireOr(w, c, span)
	if answered && err == nil {
		return errAnswered
	}
	return op.Failure(err, answered)
}

// combine makes the session's change c of the locked leaf, which can be nil, together with those of
// others that wait for the lock word, and gives that up. done is false if nobody waits, or c is not
// such a change: then nothing has changed, and the lock is still held.
func (s *Session) combine(c *combine.Change) (done bool, err error) {
	if c == nil || s.inPlace != nil || !s.PS.Waited() {
		return false, nil
	}
	g := &s.group
	g.Reset()
	g.s, g.needs = s, 0
	if !g.AddTo(g, c) {
		return false, nil
	}
	back := uint32(0)
	for i := range s.PS.Take(s.leaf.at) {
		if !g.AddTo(g, s.PS.TakenChange(i).(*combine.Change)) {
			back |= 1 << i
		}
	}
	s.PS.PutBack(back)
	if g.queue() {
		err = s.publish()
	} else {
		err = s.Unlock(nil)
	}
	if err != nil {
		return true, err
	}
	if c.Mode == combine.Upsert {
		s.there = g.Keys()[0].Was
	}
	if g.Removes() {
		s.mergeIfSmall()
	}
	return true, c.Answer
}

// Find implements combine.Leaf.
func (g *group) Find(key []byte) (at place, is, ok bool) {
	l := &g.s.leaf
	if l.below(key, false) || l.above(key, false) {
		return at, false, false
	}
	f, damaged := l.find(key, g.s.lay.tagOf(key))
	if damaged || f.again {
		return at, false, false
	}
	if f.is {
		if _, long, _ := l.value(f.cursor, f.w); long {
			return at, false, false
		}
	}
	return place{found: f}, f.is, true
}

// Fit implements combine.Leaf.
func (g *group) Fit(k *keyAt, value []byte) bool {
	lay, needs := g.s.lay, 0
	if !k.Was || !g.s.canOverwrite(&k.At.found, len(value)) {
		needs = lay.recordSize(len(k.Key), len(value))
	}
	if needs > k.At.needs {
		all := g.needs - k.At.needs + needs
		if !g.s.leaf.hasRoom(k.At.found.end, all) {
			return false
		}
		k.At.needs, g.needs = needs, all
	}
	return true
}

// queue makes the changes in the image of the leaf, and queues their WRITEs. It reports whether
// there are any.
func (g *group) queue() (changed bool) {
	s, l, keys := g.s, &g.s.leaf, g.Keys()
	first := keys[0].At.found.end
	end := first
	for i := range keys {
		if k := &keys[i]; k.Is && k.Put && !(k.Was && s.canOverwrite(&k.At.found, len(k.Value))) {
			_, end = l.put(end, k.Key, s.lay.tagOf(k.Key), k.Value, false)
		}
	}
	s.writeRecords(first, end)
	for i := range keys {
		k := &keys[i]
		f := &k.At.found
		switch {
		case k.Was && !k.Is:
			s.setState(f, dead)
		case !k.Is || !k.Put:
			continue
		case k.Was && s.canOverwrite(f, len(k.Value)):
			s.putInPlace(f, k.Value, false)
		case k.Was:
			s.setState(f, moved)
		}
		changed = true
	}
	return changed
}
