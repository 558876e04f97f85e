package pool

import (
	"encoding/binary"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// Techniques are those of Sherman's (section 4) that a session may do without, so that what each is
// worth can be measured. The zero value has all of them. Sessions with and without them share locks
// and nodes: the global lock word alone says who holds a lock, and its release comes after the
// WRITEs under it either way.
type Techniques struct {
	// Apart turns command combination off (section 4.5): the lock's atomic is awaited before the
	// node is READ, and what was written before the lock is released.
	Apart bool
	// Flat turns the hierarchy of locks off (section 4.3): the session has no place in the local
	// lock table and neither gets nor hands over a lock there. It spins on the global lock, against
	// sessions of its own client too. It releases a lock as the paper does, by a WRITE, where the
	// provider can do that (writesRelease).
	Flat bool
}

// Use sets the techniques. Call it before the session's first Lock.
func (s *Session) Use(t Techniques) {
	s.without = t
	if t.Flat {
		s.pool.flat.Store(true)
	}
}

// flatSpins is how often a flat session tries for a lock without a pause. Then it sleeps between
// its tries like any other: the holder is likely not to come back before it is fenced.
const flatSpins = 1000

// mayShare reports whether a lock word with this client's own number may be a living session's that
// another one meets in lockGlobal. Sessions that stand in the local queue never meet each other
// there. So without flat ones the lock is that of a session which died; with them it may be either,
// and trying on is right in both cases: a session that dies with a lock gives its client up before
// anything else (markDead), and then every Post and Overdue of the others says so. A flat session
// sets the mark before its first lock, so whoever meets that finds it set.
func (p *Pool) mayShare() bool { return p.flat.Load() }

// writesRelease reports whether lock l is released by a WRITE of its 16 bits, which costs a memory
// server that holds its locks in host memory less than an atomic. That needs a provider whose
// WRITEs do not get lost between the halves of an atomic on the same word (ReleaseByWrite).
//
// A WRITE does not find out who holds the lock. It need not: the lock of a client is turned to
// Repair only after every memory server has cut its connections, and then none of its requests
// takes effect any more. So a WRITE that takes effect finds the lock as this client's. Sessions
// with a local lock table keep the atomic, which fails loudly if that is ever broken; a flat
// session exists to measure the paper's baselines.
func (s *Session) writesRelease(l *tableLock) bool {
	return s.without.Flat && s.pool.servers()[l.server].caps.ReleaseByWrite
}

// clearLock is the WRITE that frees lock l, which is this client's.
func (s *Session) clearLock(l *tableLock) verbs.Request {
	clear(s.old)
	from := l.shift / 8
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		from = (64 - lockBits - l.shift) / 8
	}
	// The fence keeps it behind READs of the list that are made under the lock.
	return verbs.Request{Op: verbs.Write, Region: verbs.RegionLocks, Remote: l.remote + uint64(from), Local: s.old[:lockBits/8], Fence: true}
}

// OnChip reports whether locks of this index lie in the NIC memory of any of its servers. That is
// the server's choice, made when it starts.
func (p *Pool) OnChip() bool {
	for _, s := range p.servers() {
		if uint64(s.caps.DeviceMemory) > s.grant.LockOffset {
			return true
		}
	}
	return false
}

// leaveLocal gives up the session's place at the head of the local queue.
func (s *Session) leaveLocal(l *tableLock) {
	if !s.without.Flat {
		s.pool.servers()[l.server].local.release(l.index, false)
	}
}
