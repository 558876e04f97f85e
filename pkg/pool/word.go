package pool

import (
	"encoding/binary"
	"fmt"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/pool/internal/lock"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Lock words are locks that lie in the data region: 8 aligned bytes of a node, or of a strip of
// such words. The holder lane, bits 0 to 15, has the client that holds the lock (0 = free, or
// Repair); the other 48 bits are the design's own. package lock has the layouts.
//
// # The protocol
//
// A session has an intent slot on a memory server (wordslot.go) once it has rewritten a node there,
// or acquired a word that is of no strip. W is the word, N a node on the same server. Each line is
// one list, posted and awaited before the next:
//
//	Acquire      1. if W is of no strip: WRITE of the slot's name: W and N
//	                CAS of W's holder lane, from free to this client
//	                the caller's READs
//	PostRelease  2. the caller's WRITEs; for a Rewrite: WRITE of the image to a place that nobody
//	                knows, WRITE of the slot's change, behind the name where that is not there,
//	                WRITE of the node, WRITE of zero over the change's checksum; only that of the
//	                node, where it takes effect as a whole whoever dies (Pool.WholeAlways)
//	                CAS of W's holder lane to free, and of the own bits that change
//
// Where there are no masked atomics, 1 has a CAS of the whole word and 2 a FetchAdd. 1 is tried
// again while somebody else holds W, without the WRITE. The requests of a line take effect in order
// (G1): a WRITE before all that follows it, an atomic before later READs and atomics. What goes to
// other servers is posted and awaited before 2.
//
// Who may see what after each request:
//
//   - After the name: only a fence reads it. W does not have this client in its lane, so a fence
//     does nothing about it.
//   - After the CAS of 1: W is this client's, and a fence finds it: in its strip, or by the slot's
//     name. Own bits were returned by the
//     CAS, and nobody else changes those that holders change. READs behind it saw what W guards
//     under the lock. If the CAS failed, what they brought is thrown away.
//   - After the image and the change: the change can be made by whoever acquires W from Repair.
//     Nothing of the node has changed. A change that is cut short does not verify, nor one whose
//     name is.
//   - Within the WRITE of the node: readers, which acquire no lock, see parts of it; that is up to
//     the design. After a crash the image is written over it.
//   - After the zero: the node is whole, and the slot says that nothing is owed. A slot must never
//     say otherwise when its session does not hold W, since another session of the same client may
//     hold it then.
//   - After the CAS of 2: W is anybody's. The next holder finds all WRITEs before it. The slot
//     still names W. That is harmless while W is a lock word, as only the lane says who holds it;
//     forget (wordslot.go) ends it before W's memory gets another use.
//
// A client that dies leaves all of its lists cut short somewhere. Its fence (lock.Sweep) comes when
// nothing of it takes effect any more, also none of its CAS that was late (G3). It looks at all
// words of the strips in the index's chunks, and at those that the client's slots name. If W's lane
// has this client, 1 took effect, so if W is of no strip its slot has the whole name: the sweep
// finds W. It turns the lane to Repair, never to free, and leaves the own bits. Until then W stays
// with the dead client. If the lane has another client, or Repair, the dead client's slot says
// nothing about W: it is given back. If W is free and its slot names it, likewise.
//
// The other way around, a client that was fenced and does not know it: nothing of it takes effect.
// Where it holds W and goes on, 2 fails, and the client answers nothing (Condemn).
//
// # Repair
//
// Whoever finds Repair in W's lane acquires it from there, as in 1 with Repair in the place of
// free; its own name is in its slot before. Then, line by line:
//
//  3. READ of all slots: those which are owed and name W;
//  4. READ of the image, in parts; if it matches its checksum, WRITE of it to its target;
//  5. the design's hook (SetRebuild) makes W's own bits from the data, with requests of its own;
//  6. CAS of W's own bits, with this client in the lane; after it CAS of each slot of 3 to
//     nobody's;
//  7. the caller's READs.
//
//   - Two repairers: the lane lets one of them in. The other finds its client there, and waits.
//   - A repairer dies before 6 is complete: the fence turns W to Repair again. The owed slot is as
//     it was, and image and target too, as nobody else had W: the next repairer does 3 to 6 again,
//     with the same result. That its own bits may have been set is no matter.
//   - It dies after that: W says Repair, nothing of the first client is owed, and the node is
//     whole. What is owed of the repairer is a change of its own, made after 6: the two are never
//     owed at the same time. The hook makes the own bits anew.
//   - A repairer that is fenced while it stands still: nothing of it takes effect later, so none of
//     its WRITEs of 4 meets the next holder, and none of its CAS of 6 a slot that has got another
//     client since.
//   - After the CAS of a slot in 6 the slot is anybody's, with a name and change which do not
//     verify for another client: nor does the change under a name of the next one that is the same
//     (internal/lock/slot.go). Before, nobody claims it: its owner says so.
//   - A change that cannot be made (its image is another one, it lies outside the region) is
//     damage. Its repairer does none of 4 to 7, gives the word back as Repair, and fails with
//     ErrFormat. So nobody gets the word, and the damage ends no client.
//   - All of it is at one memory server, so a fence that is complete on one server and not on
//     another makes no difference.
//
// A word that is acquired from Repair always goes through 3 to 6, also where nothing is owed: its
// holder may have died after it changed the data and before it changed the own bits.

// Word is a lock word.
type Word struct {
	At   Addr // of its 8 bytes, a multiple of 8; in a chunk
	Node Addr // what it guards, on the same memory server
	// it is of a strip (DeclareStrip), where a fence finds it without being told
	InStrip bool
	// what its own bits probably are: without masked atomics, a right guess saves a round trip
	Own uint64
}

// Span is bytes of the pool and where to read them to, in a buffer of the session.
type Span struct {
	At    Addr
	Local []byte
}

// wordLock is a lock word that a session holds.
type wordLock struct {
	held   bool
	server int // dense number
	word   Word
	own    uint64
	// the intent slot that the session uses with it; nil = none yet, for a word of a strip
	slot *wordSlot
	// the slot names the word; else it says what it said before, in state was
	named bool
	was   uint32
	// what PostUnlock changes of the own bits
	mask, change uint64
}

// SetOwn says what PostUnlock makes of the own bits of the lock word that the session holds: those
// in mask become own's. Without it they stay.
func (s *Session) SetOwn(mask, own uint64) { s.lockWord.mask, s.lockWord.change = mask, own }

// Acquire acquires a lock word, and reads spans, which must be on its server, under the lock: one
// round trip if nobody else holds it and where there are masked atomics. It returns the word's own
// bits. What a holder that died left half done is brought to its end first. ErrTimeout: somebody
// held it for longer than the operation may take; the message names the client. The session must
// hold no lock, and nothing may be queued. An operation must be under way (Begin).
func (s *Session) Acquire(w Word, spans ...Span) (own uint64, err error) {
	l, err := s.checkWord(w, spans)
	if err != nil {
		return 0, err
	}
	queues := s.pool.words
	s.wait.Wants(uint64(w.Node), nil)
	if !queues.Try(uint64(w.At)) && !queues.Acquire(uint64(w.At), s.wait, s.remaining()) {
		if s.wait.Answered() {
			return 0, errAnswered
		}
		late := s.Overdue()
		if late == nil { // its clock and that of the wait are not quite the same
			late = ErrTimeout
		}
		return 0, fmt.Errorf("acquire lock word %v, which another session of this client (%d) holds: %w", w.At, s.pool.client, late)
	}
	_, err = s.acquire(&l, spans, false)
	return l.own, err
}

// TryAcquire is Acquire if nobody holds the lock and there is nothing to repair; else it returns
// false, after at most one round trip where there are masked atomics. A session that holds no lock
// may use it while its goroutine holds another session's lock, as it does not wait for a lock. If
// the word's address is of another session's operation, BeginIn comes before it.
func (s *Session) TryAcquire(w Word, spans ...Span) (own uint64, ok bool, err error) {
	l, err := s.checkWord(w, spans)
	if err != nil {
		return 0, false, err
	}
	if !s.pool.words.Try(uint64(w.At)) {
		return 0, false, nil
	}
	ok, err = s.acquire(&l, spans, true)
	return l.own, ok, err
}

// checkWord checks what a caller asks for.
func (s *Session) checkWord(w Word, spans []Span) (l wordLock, err error) {
	if s.broken != nil {
		return l, s.broken
	}
	if s.busy() {
		panic("pool: a lock word is acquired with a lock held, requests queued, or in a node that was entered")
	}
	if invariants.Enabled {
		invariants.Check(s.active.Load() != 0, "lock word %v is acquired outside of an operation", w.At)
	}
	i, ok := s.pool.serverOf(w.At)
	if !ok {
		return l, fmt.Errorf("lock word %v is of no memory server of this index", w.At)
	}
	if w.At%8 != 0 || w.Node.Server() != w.At.Server() {
		panic(fmt.Sprintf("pool: lock word %v of node %v", w.At, w.Node))
	}
	for _, span := range spans {
		if span.At.Server() != w.At.Server() {
			panic(fmt.Sprintf("pool: %v is read under lock word %v of another server", span.At, w.At))
		}
	}
	return wordLock{server: i, word: w}, nil
}

// acquire is lines 1 and 3 to 7 of the protocol, for the session that is the word's among those of
// this client. Where it does not get the lock, it gives up that place.
func (s *Session) acquire(l *wordLock, spans []Span, try bool) (ok bool, err error) {
	s.locking = true
	defer func() { s.locking = false }()
	if !l.word.InStrip || !s.pool.servers()[l.server].grant.SweepsStrips {
		err = s.useSlot(l)
	}
	if err == nil {
		ok, err = s.acquireFree(l, spans, try)
		// else the word may be this client's, so the slot goes on naming it
		if !ok && s.broken == nil {
			l.release(s.active.Load())
		}
	}
	if ok {
		l.held = true
		s.lockWord = *l
		return true, nil
	}
	s.pool.words.Release(uint64(l.word.At))
	if s.broken != nil { // the word may be this client's for ever
		return false, s.markDead(err)
	}
	return false, err
}

func (s *Session) acquireFree(l *wordLock, spans []Span, try bool) (ok bool, err error) {
	me, masked := s.pool.client, s.pool.servers()[l.server].caps.MaskedAtomics
	at := l.word.At
	known, from := l.word.Own<<lock.HolderBits, uint16(0)
	if l.slot != nil {
		l.slot.since.Store(s.active.Load())
		s.clearStale(l)
		s.write(s.slotAddr(l.server, l.slot, lock.NameAt), s.nameIn(l))
		l.named = true
	}
	for n := 0; ; n++ {
		s.queueTo(l.server, s.claim(l, known, from))
		for _, span := range spans {
			s.Read(span.At, span.Local)
		}
		if err := s.Post(); err != nil {
			return false, err
		}
		old := binary.NativeEndian.Uint64(s.old)
		holder := lock.Holder(old)
		switch {
		case holder == from && (masked || old == known):
			l.own = lock.Own(old)
			if from == Repair {
				err := s.repairAcquiredWord(l, spans)
				return err == nil, err
			}
			return true, nil
		case holder == 0, holder == Repair && !try: // or only the own bits are others than known
			known, from = old, holder
			if late := s.Overdue(); late != nil {
				return false, fmt.Errorf("acquire lock word %v, which does not come to rest: %w", at, late)
			}
			continue
		case try:
			return false, nil
		case holder == me:
			// Sessions of this client that want the word stand in the queue, so it is one's that
			// died.
			return false, s.markDead(fmt.Errorf("acquire lock word %v: %w: the lock is that of a session which died", at, ErrFenced))
		}
		known, from = old&^lock.HolderMask, 0
		s.conflicts.Add(1)
		if late := s.Overdue(); late != nil {
			return false, fmt.Errorf("acquire lock word %v, which client %d holds: %w", at, holder, late)
		}
		s.backOff(n)
	}
}

// claim is the request that turns the lane of a word from free or Repair to this client, if the
// word is known where there are no masked atomics.
func (s *Session) claim(l *wordLock, known uint64, from uint16) verbs.Request {
	me := uint64(s.pool.client)
	r := verbs.Request{Op: verbs.CompareSwap, Remote: l.word.At.Offset(), Local: s.old, Compare: known, Swap: known&^lock.HolderMask | me}
	if s.pool.servers()[l.server].caps.MaskedAtomics {
		r.Op, r.Compare, r.Swap = verbs.MaskedCompareSwap, uint64(from), me
		r.CompareMask, r.SwapMask = lock.HolderMask, lock.HolderMask
	}
	return r
}

// turnLane is the request that turns the lane of a word, which is this client's, to another holder,
// and those of its own bits that are in mask to own's. It finds this client in the lane; if not,
// the client is fenced and the request never took effect, or the lock was lost.
func (s *Session) turnLane(l *wordLock, to uint16, mask, own uint64) verbs.Request {
	me := uint64(s.pool.client)
	if s.pool.servers()[l.server].caps.MaskedAtomics {
		return verbs.Request{Op: verbs.MaskedCompareSwap, Remote: l.word.At.Offset(), Local: s.old,
			Compare: me, Swap: own<<lock.HolderBits | uint64(to), CompareMask: lock.HolderMask, SwapMask: mask<<lock.HolderBits | lock.HolderMask}
	}
	// Bits outside the mask may change meanwhile, those in it do not: the sum changes nothing else.
	return verbs.Request{Op: verbs.FetchAdd, Remote: l.word.At.Offset(), Local: s.old,
		Add: (own&mask-l.own&mask)<<lock.HolderBits + uint64(to) - me}
}

// PostRelease posts what is queued and gives up the lock word that the session holds, in one round
// trip if all of it goes to its server; see PostUnlock. Those of the word's own bits that are in
// mask become own's. Nobody but holders may change these.
//
// An error kills the session, and its client is given up (Condemn). ErrFenced: the lock was not
// this client's any more.
func (s *Session) PostRelease(mask, own uint64) error {
	if !s.lockWord.held {
		panic("pool: PostRelease without a lock word")
	}
	l := s.lockWord
	s.lockWord = wordLock{}
	s.locking = true
	err := s.postRelease(&l, mask, own)
	s.locking = false
	if len(s.taken) > 0 {
		s.answerTakenWord(&l, err)
	}
	return err
}

// postRelease is PostRelease of word l, which the session holds no more to all others of its
// methods.
func (s *Session) postRelease(l *wordLock, mask, own uint64) error {
	err := s.postOthers(l.server)
	if err == nil {
		s.queueTo(l.server, s.turnLane(l, 0, mask&ownMask, own))
		err = s.postHeld(l)
	}
	s.pool.words.Release(uint64(l.word.At))
	if err != nil {
		s.image = Nil // its place may still be needed for repair
		return s.markDead(err)
	}
	l.release(s.active.Load())
	s.doneRewriting()
	return nil
}

// ownMask has the own bits of a word, shifted down.
const ownMask = 1<<(64-lock.HolderBits) - 1

// postHeld posts what is queued, the last of which is an atomic that finds this client in the lane
// of the word.
func (s *Session) postHeld(l *wordLock) error {
	if err := s.Post(); err != nil {
		return err
	}
	if holder := lock.Holder(binary.NativeEndian.Uint64(s.old)); holder != s.pool.client {
		s.broken = fmt.Errorf("change lock word %v, which client %d holds: %w", l.word.At, holder, ErrFenced)
		return s.broken
	}
	return nil
}

// checkRewrite panics if a rewrite under the lock word that the session holds is none.
func (s *Session) checkRewrite(a Addr, image []byte) {
	l := &s.lockWord
	if a.Server() != l.word.At.Server() || a < l.word.At+8 && l.word.At < a+Addr(len(image)) {
		panic(fmt.Sprintf("pool: rewrite of %d bytes at %v under lock word %v", len(image), a, l.word.At))
	}
}

// rewriteWord is Rewrite under a lock word.
func (s *Session) rewriteWord(a Addr, image []byte) {
	s.checkRewrite(a, image)
	l := &s.lockWord
	// The adopter of a dead client's chunk takes places that begin with zeros for unused.
	if invariants.Enabled {
		zero := allZero(image[:min(len(image), HeadBytes)])
		invariants.Check(!zero, "an image of %d bytes for %v begins with zeros", len(image), a)
	}
	c := lock.Change{Image: s.image.Offset(), Target: a.Offset(), Length: len(image), Sum: lock.Sum(image)}
	change, sum, named := s.slotAddr(l.server, l.slot, lock.ChangeAt), s.slotAddr(l.server, l.slot, lock.ChangeSumAt), l.named
	if !named {
		s.nameIn(l)
		l.named = true
	}
	c.Encode(s.change, s.name, s.pool.number)
	s.write(s.image, image)
	if named {
		s.write(change, s.change)
	} else {
		s.write(s.slotAddr(l.server, l.slot, lock.NameAt), s.intent)
	}
	s.write(a, image)
	s.write(sum, s.zero)
	s.clearStale(l)
}
