package dolphin

import (
	"errors"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/index/internal/combine"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Changes of one pair. Whoever changes a leaf holds its lock word, and no other lock; but for
// updates that are shared (share.go). Two round trips:
//
//  1. CAS of the word's lane, READ of the leaf, or of its keys;
//  2. the WRITEs of the change, and the CAS that gives the lane up.
//
// The WRITEs, in this order:
//
//	insert             value word, if values are words; the record
//	a value in place   value word, or cell
//	another value      as insert; then the state word of the record before, which is moved
//	delete             the state word: dead
//
// record.go has which values are WRITTEN in place, and combine.go the changes of several sessions
// in one list.
//
// By G1 whoever sees the state word of a record, and READs once more, finds all of it, and its
// value. Whoever sees a record moved, and READs once more, finds the later one. A record that was
// seen in part has another tag than its key's, or a cell without its sum.
//
// # A client dies
//
// It leaves some of its list, and the lane in REPAIR. Whoever acquires the lane next finds the leaf
// shut (shutAfterDeath): it is the truth, with the record that is there as a whole, or without, and
// with the value before or the one behind in a cell or word. Other leaves take its place before it
// gets another record, so what is there in part stays behind with its memory.

// Insert implements index.Session.
func (s *Session) Insert(key, value []byte) error {
	return s.write(key, value, combine.Insert, "insert")
}

// Update implements index.Session.
func (s *Session) Update(key, value []byte) error {
	return s.write(key, value, combine.Update, "update")
}

// Upsert implements index.Session.
func (s *Session) Upsert(key, value []byte) error {
	return s.write(key, value, combine.Upsert, "upsert")
}

// Delete implements index.Session.
func (s *Session) Delete(key []byte) error {
	return s.write(key, nil, combine.Delete, "delete")
}

func (s *Session) write(key, value []byte, m combine.Mode, what string) error {
	s.Begin()
	defer s.End()
	if err := s.lay.CheckPair(key, value); err != nil {
		return explain(what, err)
	}
	if m == combine.Update || m == combine.Upsert && s.there {
		switch done, err := s.updateShared(key, value); {
		case err == index.ErrNotFound && m == combine.Upsert:
		case err == nil && !done:
		case err == nil || err == index.ErrNotFound:
			return err
		default:
			return explain(what, err)
		}
	}
	for {
		err := s.writeOnce(key, value, m)
		switch {
		case err == nil || err == index.ErrExists || err == index.ErrNotFound:
			return err
		case !errors.Is(err, index.ErrPoolFull) || !s.awaitMemory():
			return explain(what, err)
		}
	}
}

// writeOnce is write, but waits for no memory.
func (s *Session) writeOnce(key, value []byte, m combine.Mode) error {
	tag := s.lay.tagOf(key)
	for {
		c := s.offered(m, key, value)
		there, err := s.lockFor(key, false, c)
		switch {
		case err == errAnswered:
			return c.Answer
		case err != nil:
			return err
		}
		if !there {
			if m == combine.Update || m == combine.Delete {
				return index.ErrNotFound
			}
			if err := s.firstLeaf(); err != nil {
				return err
			}
			continue
		}
		if done, err := s.combine(c); done {
			return err
		}
		l := &s.leaf
		f, damaged := l.find(key, tag)
		if m == combine.Upsert {
			s.there = f.is
		}
		switch {
		case damaged || f.again:
			return s.Unlock(damagedRecord(l.at))
		case m == combine.Insert && f.is:
			return s.Unlock(index.ErrExists)
		case (m == combine.Update || m == combine.Delete) && !f.is:
			return s.Unlock(index.ErrNotFound)
		case m == combine.Delete:
			if err := s.remove(&f); err != nil {
				return err
			}
			s.mergeIfSmall()
			return nil
		}
		if done, err := s.put(key, value, tag, &f); done || err != nil {
			return err
		}
	}
}

// lock is lockOr without an offer.
func (s *Session) lock(key []byte, whole bool) (bool, error) { return s.lockOr(key, whole, nil) }

// lockOr finds the leaf of key, and acquires its lock word. The leaf is in s.leaf, all of it if
// whole, and takes changes. false: there is no leaf at all, and no lock is held. errAnswered:
// another session made the change c, and no lock is held.
//
// What others began with the leaf is brought to its end first (complete), so who changes a leaf, or
// puts others in its place, has come to it by its slot.
func (s *Session) lockOr(key []byte, whole bool, c *combine.Change) (bool, error) {
	for fresh := false; ; fresh = true {
		found, err := s.SeekBound(key, fresh)
		for found && err == nil {
			var r reach
			if r, err = s.lockAt(s.Last().Word.Addr(), key, whole, c); err != nil || r == right || r == none && fresh {
				return err == nil && r == right, err
			}
			if r == changed {
				fresh = false
				found, err = s.SeekBound(key, fresh)
				continue
			}
			if r != above {
				break
			}
			found, err = s.SeekBefore(key, fresh)
		}
		switch {
		case err != nil:
			return false, err
		case !fresh:
			continue
		case !found:
			return false, nil
		}
		if err := s.strayed(s.Last().Word.Addr()); err != nil {
			return false, err
		}
	}
}

// lockAt acquires the lock word of the leaf at a, and READs the leaf. Unless it is the right one
// for key the word is given up.
func (s *Session) lockAt(a pool.Addr, key []byte, whole bool, c *combine.Change) (reach, error) {
	if err := s.acquire(a, whole, c); err != nil {
		return astray, err
	}
	l := &s.leaf
	switch {
	case !l.open(s.room, a):
		return astray, s.Unlock(nil)
	case l.below(key, false):
		return above, s.Unlock(nil)
	}
	// The leaf that has taken this one's place may have keys behind its range, and this leaf their
	// only slot.
	fw, err := s.t.forwardOf(l)
	switch {
	case err != nil:
		return astray, s.Unlock(err)
	case fw > merging:
		return changed, s.finish(fw, key)
	case l.above(key, false):
		return astray, s.Unlock(nil)
	case fw == gone:
		return none, s.Unlock(nil)
	case fw == shut || fw == merging:
		return changed, s.finish(fw, key)
	}
	return right, nil
}

// acquire acquires the lock word of the leaf at a, and READs the leaf, or its keys, to s.room.
// errAnswered: another session made the change c.
func (s *Session) acquire(a pool.Addr, whole bool, c *combine.Change) error {
	s.Pause()
	at, err := s.t.strips.WordOf(a)
	if err != nil {
		return damagedLeaf(a, "no place for a lock word")
	}
	n := s.lay.keysEnd
	if whole || !s.t.with.keysOnlyRead {
		n = s.lay.size
	}
	w := pool.Word{At: at, Node: a, InStrip: true}
	if err := s.acquireWord(w, c, pool.Span{At: a, Local: s.room[:n]}); err != nil {
		return err
	}
	return s.Late()
}

// finish goes on with what others began with the locked leaf, which has the forward word fw, and
// releases the lock. It has a reserve of its own, and so none of the change that comes to it.
func (s *Session) finish(fw uint64, key []byte) (err error) {
	defer s.EndReserve(s.BeginReserve())
	if fw == shut {
		_, err = s.replace(key, 0, nil)
		return err
	}
	if err = s.Unlock(nil); err != nil {
		return err
	}
	if fw == merging {
		return s.mergeOn()
	}
	return s.complete(pool.Addr(fw))
}

// coming implements art.Newcomer: a leaf that gets a slot.
type coming struct {
	s     *Session
	place []byte
	at    pool.Addr // Nil: it is the first leaf, which is made
}

func (c *coming) Place() []byte { return c.place }

func (c *coming) Allot(near pool.Addr) (art.Slot, error) {
	if c.at == pool.Nil {
		a, _, err := c.s.Allocate(c.s.lay.size, near)
		if err != nil {
			return 0, err
		}
		c.s.halves[0].build(c.s.images[0], a, unit.NewVersion(c.s.Env), c.s.Env.Uint64(), nil, nil, pool.Nil, pool.Nil)
		return slotOf(a), nil
	}
	return slotOf(c.at), nil
}

func (c *coming) Queue(pool.Addr) error {
	if c.at == pool.Nil {
		c.s.PS.Write(pool.Sole, c.s.halves[0].at, c.s.halves[0].b)
	}
	return nil
}

// slotOf is the slot of the leaf at a, without what art puts into it.
func slotOf(a pool.Addr) art.Slot {
	at, _ := art.Pack(a)
	return art.LeafFlag | at
}

// firstLeaf makes the first leaf of an index, for all keys, unless somebody else does. An index
// begins without: else a bulk load, which puts a root in the place of an empty one, could not tell
// that nobody inserts into a leaf of that.
func (s *Session) firstLeaf() error {
	out, err := s.Seek(nil)
	if err != nil {
		return err
	}
	s.coming = coming{s: s}
	if out != art.Leafed {
		_, err = s.Link(&s.coming, out)
		return err
	}
	st := s.Last()
	if err := s.Read(st.Word.Addr(), s.besideRoom); err != nil {
		return err
	}
	if !s.beside.open(s.besideRoom, st.Word.Addr()) { // it is out, and the copy is old
		return s.renew(st)
	}
	switch fw, err := s.t.forwardOf(&s.beside); {
	case err != nil || fw != gone:
		return err
	case st.Word.Frozen():
		return s.Replace(s.Level)
	}
	_, err = s.LinkAt(&s.coming, st)
	return err
}

// isGone reports whether the leaf of slot w, which is left in a root, has nothing, and never will.
// If it is the only leaf, and empty, this makes it so: the forward word is WRITTEN under the lock
// word. Who comes to it by a slot that this operation READ finds an index without leaves; by an old
// copy, that there is something else to be found. A bulk load puts another root in the place of
// that one afterwards, or somebody who inserts a leaf in the place of this one.
func (s *Session) isGone(w art.Slot) (bool, error) {
	a := w.Addr()
	at, err := s.t.strips.WordOf(a)
	if err != nil {
		return false, damagedLeaf(a, "no place for a lock word")
	}
	if _, err := s.PS.Acquire(pool.Word{At: at, Node: a, InStrip: true}, pool.Span{At: a, Local: s.room}); err != nil {
		return false, op.Failure(err, false)
	}
	l := &s.leaf
	if !l.open(s.room, a) || len(l.low) > 0 || !l.endless || l.forward() > gone {
		return false, s.Unlock(nil)
	}
	if s.aliveLocked(l) || len(s.pairs) > 0 {
		return false, s.Unlock(nil)
	}
	s.setForward(gone)
	return true, s.publish()
}
