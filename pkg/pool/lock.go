package pool

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/pool/internal/lock"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Locks are Sherman's hierarchical locks (HOCL, section 4.3). A node's lock is the entry of its
// memory server's global lock table that its address hashes to: 16 bits, four to an 8-byte word,
// holding the incarnation of the client that has it, 0 if free. Different nodes can share a lock,
// so a session holds one lock at a time: nobody who holds a lock waits for another one.
//
// Lock words are touched by atomics only (G2), with one exception (writesRelease). With masked
// atomics one request tests and sets 16 bits; without, plain compare-and-swap does it on the whole
// word, and both kinds of client can share a table.
//
// Why the release may ride behind the last WRITE in one list: G1 makes a WRITE take effect before
// the atomic after it, so whoever finds the lock free finds the WRITE. Why the node's READ may ride
// behind the lock's atomic: an atomic takes effect before a later READ, so if the atomic got the
// lock, the READ saw the node under it; if not, what was read is thrown away.

// Repair is what stands in a lock whose holder was fenced: whoever acquires it repairs first what
// the holder may have left half done.
const Repair = 1<<16 - 1

// lockBits is the width of a lock, locksPerWord how many share a word.
const (
	lockBits     = 16
	lockMask     = 1<<lockBits - 1
	locksPerWord = 64 / lockBits
)

// tableLock is a lock of the global table, held or not.
type tableLock struct {
	held   bool
	server int    // dense number
	index  uint32 // in the slice of the table
	remote uint64 // offset of the word in the lock region
	shift  uint   // of the lock's bits in the word
	given  bool   // its node was handed on with it, and not READ
	own    bool   // only its place in the local table; see LockOwn
}

// lockOf finds the lock of the node at a.
func (p *Pool) lockOf(a Addr) (tableLock, error) {
	i, ok := p.serverOf(a)
	if !ok {
		return tableLock{}, fmt.Errorf("address %v is of no memory server of this index", a)
	}
	g := &p.servers()[i].grant
	// Nodes are at least 64 bytes apart; multiplying by an odd constant spreads neighbours over the
	// table.
	h := (a.Offset() >> 6) * 0x9E3779B97F4A7C15
	index := uint32((h >> 32) % g.Locks)
	return tableLock{
		server: i,
		index:  index,
		remote: g.LockOffset + uint64(index/locksPerWord)*8,
		shift:  uint(index%locksPerWord) * lockBits,
	}, nil
}

// Lock acquires the lock of the node at a and reads the node into node, under the lock: one round
// trip if nobody else holds it. If its last holder was fenced, Lock first brings to an end what
// that may have left half done (see Rewrite). ErrTimeout: somebody held it for longer than the
// operation may take; the message names the client. The session must hold no lock, and nothing may
// be queued.
func (s *Session) Lock(a Addr, node []byte) error { return s.lockTable(a, node, false) }

// lockTable is Lock; own: LockOwn.
func (s *Session) lockTable(a Addr, node []byte, own bool) error {
	if s.broken != nil { // it posts nothing any more, so no lock is in doubt
		return s.broken
	}
	if s.busy() {
		panic("pool: Lock with a lock held, requests queued, or in a node that was entered")
	}
	l, err := s.pool.lockOf(a)
	if err != nil {
		return err
	}
	s.resolved = foundMember{} // an earlier Lock may have failed when it had resolved one
	defer func() { s.locking = false }()
	for mains, waits := 0, 0; mains < maxMains; {
		s.locking, l.own = true, own // repairMain ends it
		main, err := s.lockOnce(&l, a, node)
		if err != nil && s.broken == nil {
			if held := heldIn(err); held != nil {
				if late := s.Overdue(); late != nil {
					return fmt.Errorf("lock node %v: %w: %w", a, held, late)
				}
				s.backOff(waits)
				waits++
				continue
			}
		}
		if err != nil {
			return err
		}
		if main == Nil {
			l.held = true
			s.lock = l
			return nil
		}
		if err := s.repairMain(&l, main, node); err != nil {
			return err
		}
		mains++
	}
	return fmt.Errorf("lock node %v: its holders died %d times meanwhile: %w", a, maxMains, ErrTimeout)
}

// maxMains is how often Lock finds that it has to repair another lock first.
const maxMains = 16

// TryLock is Lock if nobody holds the lock and there is nothing to repair; else it returns false,
// after at most one round trip. A session that holds no lock may use it while its goroutine holds
// another session's lock, as it never waits.
func (s *Session) TryLock(a Addr, node []byte) (bool, error) {
	if s.broken != nil {
		return false, s.broken
	}
	if s.busy() {
		panic("pool: TryLock with a lock held, requests queued, or in a node that was entered")
	}
	l, err := s.pool.lockOf(a)
	if err != nil {
		return false, err
	}
	srv := s.pool.servers()[l.server]
	if !s.without.Flat && !srv.local.try(l.index) {
		return false, nil
	}
	s.queueTo(l.server, s.claimLock(&l, 0, 0))
	s.Read(a, node)
	s.locking = true
	err = s.Post()
	s.locking = false
	if err != nil {
		s.leaveLocal(&l)
		return false, s.markDead(err)
	}
	old := binary.NativeEndian.Uint64(s.old)
	got := old>>l.shift&lockMask == 0 && (srv.caps.MaskedAtomics || old == 0)
	if !got {
		s.leaveLocal(&l)
		return false, nil
	}
	l.held = true
	s.lock = l
	return true, nil
}

// lockOnce is Lock, but returns a node whose lock has to be repaired first, if there is one; lock l
// is then this client's, and locally this session's. heldError: what is under the lock cannot be
// repaired yet, and the lock was given back.
func (s *Session) lockOnce(l *tableLock, a Addr, node []byte) (main Addr, err error) {
	srv := s.pool.servers()[l.server]
	global, ok := false, s.without.Flat || srv.local.try(l.index)
	if l.given = false; !ok {
		global, ok = s.awaitLocal(l, a, node)
	}
	if !ok && s.wait.Answered() {
		return Nil, errAnswered
	}
	if !ok {
		late := s.Overdue()
		if late == nil { // its clock and that of the wait are not quite the same
			late = ErrTimeout
		}
		return Nil, fmt.Errorf("lock node %v, which another session of this client holds: %w", a, late)
	}
	l.own = l.own && !global
	if global || l.own {
		if !l.given {
			s.Read(a, node)
		}
		err = s.Post()
	} else {
		main, err = s.lockGlobal(l, a, node)
	}
	// the request failed on the way: the global lock may be this client's for ever
	if s.broken != nil {
		s.leaveLocal(l)
		return Nil, s.markDead(err)
	}
	if err != nil {
		s.leaveLocal(l)
	}
	return main, err
}

// claimLock is the request that turns lock l from free or Repair to this client's, if the word is
// known where there are no masked atomics.
func (s *Session) claimLock(l *tableLock, known, from uint64) verbs.Request {
	const mask = uint64(lockMask)
	me := uint64(s.pool.client)
	r := verbs.Request{Op: verbs.CompareSwap, Region: verbs.RegionLocks, Remote: l.remote, Local: s.old,
		Compare: known, Swap: known&^(mask<<l.shift) | me<<l.shift}
	if s.pool.servers()[l.server].caps.MaskedAtomics {
		r.Op, r.Compare, r.Swap = verbs.MaskedCompareSwap, from<<l.shift, me<<l.shift
		r.CompareMask, r.SwapMask = mask<<l.shift, mask<<l.shift
	}
	return r
}

// lockGlobal gets the global lock and the node in the same round trip; two or more if the lock has
// to be repaired.
func (s *Session) lockGlobal(l *tableLock, a Addr, node []byte) (main Addr, err error) {
	const mask = uint64(lockMask)
	me := uint64(s.pool.client)
	masked := s.pool.servers()[l.server].caps.MaskedAtomics
	var known uint64  // the word as last seen
	from := uint64(0) // the lock in it: free or Repair
	for try := 0; ; try++ {
		s.queueTo(l.server, s.claimLock(l, known, from))
		if !s.without.Apart {
			s.Read(a, node)
		}
		if err := s.Post(); err != nil {
			return Nil, err
		}
		old := binary.NativeEndian.Uint64(s.old)
		holder := old >> l.shift & mask
		switch {
		case holder == from && (masked || old == known):
			if from == Repair {
				return s.repairAcquired(l, a, node)
			}
			if s.without.Apart {
				s.Read(a, node)
				return Nil, s.Post()
			}
			return Nil, nil
		case holder == 0 || holder == Repair: // or only the neighbours in the word changed
			known, from = old, holder
			if late := s.Overdue(); late != nil {
				return Nil, fmt.Errorf("lock node %v, whose lock word does not come to rest: %w", a, late)
			}
			continue
		case holder == me && !s.pool.mayShare():
			// Sessions of this client that want the lock stand in the local queue, so it is one's
			// that died.
			return Nil, s.markDead(fmt.Errorf("lock node %v: %w: the lock is that of a session which died", a, ErrFenced))
		}
		known, from = old&^(mask<<l.shift), 0
		s.conflicts.Add(1)
		if late := s.Overdue(); late != nil {
			return Nil, fmt.Errorf("lock node %v, which client %d holds: %w", a, holder, late)
		}
		s.backOff(try)
	}
}

// repairAcquired repairs what is under lock l, which was acquired from a fenced client, and reads
// the node.
func (s *Session) repairAcquired(l *tableLock, a Addr, node []byte) (main Addr, err error) {
	main, err = s.repair(l, node)
	if err != nil && s.broken == nil && heldIn(err) != nil {
		s.queueTo(l.server, s.turnLock(l, Repair)) // nobody waits with a lock
		if e := s.Post(); e != nil {
			return Nil, e
		}
		return Nil, err
	}
	if err == nil && main == Nil {
		s.Read(a, node)
		err = s.Post()
	}
	if err != nil && s.broken == nil {
		s.broken = err // the lock is this client's, and what is under it is damaged
	}
	return main, err
}

// backOff waits a little: at first it only lets others run, then it sleeps ever longer, up to a
// millisecond.
func (s *Session) backOff(try int) {
	spins := 32
	if s.without.Flat {
		spins = flatSpins
	}
	if try < spins {
		s.pool.env.Yield()
		return
	}
	s.pool.env.Sleep(min(time.Millisecond, 10*time.Microsecond<<min(try-spins, 10)))
}

// PostUnlock posts what is queued and gives up the lock, in one round trip if all of it goes to the
// server of the locked node (command combination: Sherman, section 4.2). What goes to other servers
// is posted and awaited first, since nothing orders it before the release. With waiters in this
// client the global lock is kept and handed to the first of them, with the node's image if HandOn
// said what that is (handon.go). Those whose changes are in the list are answered when it has ended
// (combine.go).
//
// An error kills the session, and its client is given up (Condemn). ErrFenced: the lock was not
// this client's any more, so what was written under it may have met the changes of its next holder;
// the client must not answer anything.
//
// Of a lock word it is PostRelease with what SetOwn said.
func (s *Session) PostUnlock() error {
	if s.lockWord.held {
		return s.PostRelease(s.lockWord.mask, s.lockWord.change)
	}
	if !s.lock.held {
		panic("pool: PostUnlock without a lock")
	}
	l, image := s.lock, s.handOn
	s.lock, s.handOn = tableLock{}, lock.Image{}
	s.locking = true
	err := s.postUnlock(&l, image)
	s.locking = false
	if len(s.taken) > 0 {
		s.answerTaken(&l, err)
	}
	return err
}

// postUnlock is PostUnlock of lock l, which the session holds no more to all others of its methods.
func (s *Session) postUnlock(l *tableLock, image lock.Image) error {
	if l.own {
		return s.postOwn(l, image)
	}
	keeps := !s.without.Flat && s.proves(l)
	local := s.pool.servers()[l.server].local
	err := s.postOthers(l.server)
	if err == nil && s.without.Apart {
		err = s.Post()
	}
	if err == nil && keeps && local.handover(l.index) {
		if err = s.Post(); err == nil && local.releaseTo(l.index, true, image) {
			s.handovers.Add(1)
			s.doneRewriting()
			return nil
		}
		// Else everybody who waited has given up meanwhile.
	}
	if err == nil {
		err = s.releaseGlobal(l)
	}
	s.leaveLocal(l)
	if err != nil {
		s.image = Nil // its place may still be needed for repair
		return s.markDead(err)
	}
	s.doneRewriting()
	return nil
}

// postOthers posts what is queued for servers other than keep.
func (s *Session) postOthers(keep int) error {
	if s.queued == len(s.lists[keep]) {
		return s.broken
	}
	kept := s.lists[keep]
	s.lists[keep] = s.spare[:0]
	s.queued -= len(kept)
	err := s.Post()
	s.lists[keep] = kept
	s.queued = len(kept)
	if err != nil {
		s.clear()
	}
	return err
}

// turnLock is the request that turns lock l, which is this client's, to free or Repair.
func (s *Session) turnLock(l *tableLock, to uint64) verbs.Request {
	me := uint64(s.pool.client)
	if !s.pool.servers()[l.server].caps.MaskedAtomics {
		return verbs.Request{Op: verbs.FetchAdd, Region: verbs.RegionLocks, Remote: l.remote, Local: s.old, Add: (to - me) << l.shift}
	}
	return verbs.Request{Op: verbs.MaskedCompareSwap, Region: verbs.RegionLocks, Remote: l.remote, Local: s.old,
		Compare: me << l.shift, Swap: to << l.shift, CompareMask: lockMask << l.shift, SwapMask: lockMask << l.shift}
}

// releaseGlobal posts what is queued and, behind it, the release.
func (s *Session) releaseGlobal(l *tableLock) error {
	byWrite := s.writesRelease(l)
	if byWrite {
		s.queueTo(l.server, s.clearLock(l))
	} else {
		s.queueTo(l.server, s.turnLock(l, 0))
	}
	if err := s.Post(); err != nil || byWrite {
		return err
	}
	if holder := uint16(binary.NativeEndian.Uint64(s.old) >> l.shift); holder != s.pool.client {
		s.broken = fmt.Errorf("release a lock that client %d holds: %w", holder, ErrFenced)
		return s.broken
	}
	return nil
}
