package chime

import (
	"errors"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/combine"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Insert implements index.Session.
func (s *session) Insert(key, value []byte) error {
	return s.write(key, value, combine.Insert, "insert")
}

// Update implements index.Session.
func (s *session) Update(key, value []byte) error {
	return s.write(key, value, combine.Update, "update")
}

// Upsert implements index.Session.
func (s *session) Upsert(key, value []byte) error {
	return s.write(key, value, combine.Upsert, "upsert")
}

// write is two round trips when the inner nodes are in the cache, nobody else holds the word and
// the neighbourhood has an empty slot: the word with the neighbourhood, then the slots with the
// release. An insertion that has to hop READs the range in between: three.
func (s *session) write(key, value []byte, m combine.Mode, what string) error {
	s.Begin()
	defer s.End()
	if err := s.Lay.CheckPair(key, value); err != nil {
		return explain(what, err)
	}
	for {
		err := s.writeOnce(key, value, m)
		switch {
		case err == nil || err == index.ErrExists || err == index.ErrNotFound:
			return err
		case err == errSplit, errors.Is(err, index.ErrPoolFull) && s.AwaitMemory():
			continue
		}
		return explain(what, err)
	}
}

// errSplit is returned where the leaf was divided, and the key has still to come into a half.
var errSplit = errors.New("leaf was divided")

// writeOnce is write, but waits for no memory, and divides one leaf at most.
func (s *session) writeOnce(key, value []byte, m combine.Mode) error {
	if m == combine.Delete {
		return s.deleteOnce(key)
	}
	c := s.offered(m, key, value)
	t, answered, err := s.acquireOr(key, c)
	switch {
	case err != nil:
		return err
	case answered:
		return s.Answered(c)
	}
	if done, err := s.combine(t, c); done {
		return err
	}
	slot, e, _, o, err := s.match(&t.leaf, key, t.key, t.home, t.version)
	switch {
	case err != nil:
		return s.Unlock(err)
	case o == torn:
		return s.damaged(t)
	case o == present && m == combine.Insert:
		return s.Unlock(index.ErrExists)
	case o == absent && m == combine.Update:
		return s.Unlock(index.ErrNotFound)
	case o == absent:
		return s.insertLocked(t, key, value)
	}
	return s.replaceLocked(t, slot, e, key, value)
}

// replaceLocked puts value in the place of entry e, of slot i of the locked leaf, and releases the
// word.
//
// An entry is more than a word, and the slot has the only copy of the old value. Where a WRITE
// takes effect as a whole, or not at all, also when its client dies, one WRITE does it. Else it is
// a Rewrite of the slot (pool.Session.Rewrite): who repairs after this client makes it whole.
// Readers see the old entry, the new one, or one that does not verify.
func (s *session) replaceLocked(t *target, i int, e, key, value []byte) error {
	s.Blocks.Replace(e)
	whole := s.slotWriteIsWhole(t)
	if !whole {
		if err := s.PS.ReserveRewrite(t.addr, s.Lay.NodeBytes); err != nil {
			return s.Unlock(op.Failure(err, false))
		}
	}
	made, err := s.Blocks.PutEntry(s.scratch, t.key, s.leafValue(key, value), t.addr)
	if err != nil {
		return s.Unlock(err)
	}
	t.put(i, t.version, made)
	if whole {
		s.writeSlot(t, i)
	} else {
		at := t.slotAt(i)
		s.PS.Rewrite(t.addr+pool.Addr(at), t.b[at:at+slotHead+len(made)])
	}
	return s.publish()
}

// publish posts what is queued with the release of the word.
func (s *session) publish() error {
	if err := s.Publish(); err != nil {
		s.Blocks.Discard()
		return err
	}
	return s.ConnectMet()
}

// insertLocked puts a key that is not there into the locked leaf, and releases the word.
func (s *session) insertLocked(t *target, key, value []byte) error {
	p := &s.plan
	ok, err := s.makeRoom(t, p)
	if err != nil {
		return err
	}
	if !ok {
		return s.split(t, key, value)
	}
	e, err := s.Blocks.PutEntry(s.scratch, t.key, s.leafValue(key, value), t.addr)
	if err != nil {
		return s.Unlock(err)
	}
	s.queueInsert(t, p, e)
	return s.publish()
}

// plan is how a key gets a slot.
type plan struct {
	empty int    // the slot that was empty
	slot  int    // the slot for the key
	moves []move // that make it empty
}

// makeRoom finds a slot for a key of the locked leaf's home, by hops if need be, and READs what
// that takes: the range up to the first slot that may be empty, as the vacancy map says; or the
// whole leaf, if that does not say, or says wrong. ok is false if there is no room in the leaf,
// which was READ as a whole then. With an error no lock is held, or the session is dead.
func (s *session) makeRoom(t *target, p *plan) (ok bool, err error) {
	if i := t.emptySlot(); i >= 0 {
		p.empty, p.slot, p.moves = i, i, p.moves[:0]
		return true, nil
	}
	if !t.whole && s.t.with.vacancyBitmap && t.hints.isKnown() {
		if count := t.hopRange(); count > 0 {
			if err := s.readSlots(t, count); err != nil {
				return false, s.Unlock(err)
			}
			if p.hop(t, s.table(t)) {
				return true, nil
			}
		}
	}
	if !t.whole {
		h, err := s.readWhole(t)
		if err != nil {
			return false, err
		}
		if h == nil || !t.whole {
			return false, s.damaged(t)
		}
	}
	return p.hop(t, s.table(t)), nil
}

// hop plans the hops for the leaf's home in tab.
func (p *plan) hop(t *target, tab *table) (ok bool) {
	p.empty, p.slot, p.moves, ok = tab.place(t.home, p.moves[:0])
	return ok
}

// emptySlot is the empty slot of the neighbourhood with the nearest other ones before and behind
// it: of those the nearest to the home; -1 if there is none. The first one would make runs of full
// slots longer, and a neighbourhood within such a run is full. TestSpread shows what that saves.
func (t *target) emptySlot() int {
	best, least := -1, 0
	for j := range t.hood {
		i := t.next(t.home, j)
		if !t.vacant(i) {
			continue
		}
		if n := t.distance(i, 1) + t.distance(i, t.n-1); best < 0 || n < least {
			best, least = i, n
		}
	}
	return best
}

// distance is how far the next slot from slot i on, in steps of so many, may be that is empty; a
// neighbourhood at most. What was not READ is as the vacancy map says, if that says anything.
func (t *target) distance(i, step int) int {
	for d := 1; d < t.hood; d++ {
		switch i = t.next(i, step); {
		case t.wasRead(i):
			if t.vacant(i) {
				return d
			}
		case !t.hints.isKnown() || t.hints.mayBeEmpty(t.bitOf(i)):
			return d
		}
	}
	return t.hood
}

// vacant reports whether slot i, which was READ, is empty.
func (t *target) vacant(i int) bool {
	e, v, ok := t.entry(i)
	return ok && v == t.version && e == nil
}

// hopRange is how many slots from the home on the hop range has: up to the first one behind the
// neighbourhood that may be empty, with those that share its bit of the vacancy map. 0: none may
// be.
func (t *target) hopRange() int {
	for d := t.hood; d < t.n; d++ {
		i := t.next(t.home, d)
		if !t.hints.mayBeEmpty(t.bitOf(i)) {
			continue
		}
		_, last := t.groupOf(i)
		if count := t.ahead(t.home, last) + 1; count > d {
			return count
		}
		return t.n // they reach the home
	}
	return 0
}

// queueInsert makes the hops of p in the image of the locked leaf, puts entry e of the new key into
// the slot that is empty then, and queues the WRITEs, and what the release makes of the own bits.
// The requests, in one list:
//
//  1. for each hop, in their order, WRITE of the slot that gets the key: an empty one, or one whose
//     key was copied by the WRITE before;
//  2. WRITE of the slot with the new key;
//  3. WRITE of the home word of each home whose keys changed, unless its slot is among these;
//  4. the release of the word, with the new own bits.
//
// Without hops 2 and 3 may be one WRITE (writeBoth); with hops, several of 1 to 3 (runs.go).
//
// By G1 each takes effect before the next. So at every moment each key but the new one is in one
// slot at least, whole, and if it is in two, with one value; a reader that finds it has its value.
// One that does not, since it looked at the one slot before the hop and at the other one after it,
// finds that the home word is not what it saw, whether it read the old one or the new.
//
// A client that dies within one of the WRITEs leaves one slot that does not verify, whose key is in
// another one, or was not there yet. RebuildWord puts that right.
func (s *session) queueInsert(t *target, p *plan, e []byte) {
	var homes [maxHops + 1]int16
	changed := homes[:0]
	for _, m := range p.moves {
		from, to := int(m.from), int(m.to)
		moved, _, _ := t.entry(from)
		k := t.codec.KeyOf(moved)
		home := t.shape.home(k)
		t.put(to, t.version, moved)
		t.removeFromHome(home, from, t.version, k)
		t.addToHome(home, to, t.version, k)
		changed = append(changed, int16(home))
	}
	t.put(p.slot, t.version, e)
	t.addToHome(t.home, p.slot, t.version, t.key)
	changed = append(changed, int16(t.home))
	if len(p.moves) == 0 {
		s.writeBoth(t, p.slot)
	} else {
		s.writeHops(t, p, changed)
	}
	switch {
	case t.whole:
		t.hints = t.hintsOf(s.table(t))
	case t.hints.isKnown():
		t.hints = t.hintsWith(p.empty).withCount(t.hints.count() + 1)
	}
	if invariants.Enabled {
		for _, home := range changed {
			if t.whole || t.ahead(t.home, int(home))+t.hood <= t.known {
				d, m, ok := t.digest(int(home), t.version)
				have, bitmap := t.homeWord(int(home))
				invariants.Check(ok && d == have && m == bitmap, "home word %d of leaf %v after an insertion", home, t.addr)
			}
		}
	}
	s.PS.SetOwn(hintBits, uint64(t.hints))
}

// writes reports whether the plan writes slot i as a whole.
func (p *plan) writes(i int) bool {
	for _, m := range p.moves {
		if int(m.to) == i {
			return true
		}
	}
	return p.slot == i
}

// hintsWith is the own bits when slot i, that was empty, is no more.
func (t *target) hintsWith(i int) vacancyHints {
	first, last := t.groupOf(i)
	for j := first; j <= last; j++ {
		if j != i && (!t.wasRead(j) || t.vacant(j)) {
			return t.hints // another one may be empty
		}
	}
	return t.hints &^ (1 << t.bitOf(i))
}

// writeSlot queues the WRITE of slot i: home word and entry.
func (s *session) writeSlot(t *target, i int) {
	at := t.slotAt(i)
	s.PS.Write(pool.Shared, t.addr+pool.Addr(at), t.b[at:at+t.used(i)])
}

// writeHome queues the WRITE of the home word of slot i, one aligned word.
func (s *session) writeHome(t *target, i int) {
	at := t.slotAt(i) + atDigest
	s.PS.Write(pool.Shared, t.addr+pool.Addr(at), t.b[at:at+homeWord])
}

// writeBoth queues the WRITEs of slot i, whose key came, and of the target's home word. Where the
// slot lies a little behind its home, one WRITE has both, and what lies between. That is what the
// memory holds there, so no reader, and no repair of a WRITE that was cut short, finds it changed.
// In which order the words of the slot and of the home change is no matter: each is of one key that
// comes, and a reader that sees one of them without the other finds that they do not match, or that
// the key is not there yet.
func (s *session) writeBoth(t *target, i int) {
	from, to := t.slotAt(t.home)+atDigest, t.slotAt(i)+t.used(i)
	if i <= t.home || !joinIsFaster(to-from, t.used(i), homeWord) {
		s.writeSlot(t, i)
		if i != t.home {
			s.writeHome(t, t.home)
		}
		return
	}
	s.PS.Write(pool.Shared, t.addr+pool.Addr(from), t.b[from:to])
}

// used is how many bytes of slot i say something.
func (l *leaf) used(i int) int {
	if e, _, _ := l.entry(i); e != nil {
		return slotHead + len(e)
	}
	return slotHead
}
