package pool

import "github.com/dmindex/dmindex/pkg/pool/internal/lock"

// A node that only this client changes needs no lock of its memory server: the place in the local
// lock table keeps the client's sessions apart. So LockOwn acquires that place alone. It saves the
// two atomics, and all else is as with a lock: the queue, the image that is handed on (handon.go),
// the changes that the holder carries out for others (combine.go). Nodes that share the lock of the
// table share the place, so sessions of this client that want the lock itself, for any of them,
// stand in the same queue.
//
//	the holder has   next in the queue   gets
//	the place        LockOwn             the place, with the image of its node
//	the place        Lock                the place; it acquires the lock and READs the node
//	the lock         either              the lock, or the place when the lock is released
//
// Why no other client is missed: that this client alone changes the node is what its caller knows,
// from the owners of ranges. It stays so until this client gives the node up, or is fenced.
//
//   - A fenced client's WRITEs take no effect, and its READs fail. Whoever takes its keys waits
//     until its lease is over as well. A session that was given an image and WRITEs nothing, or
//     took changes that need no WRITE, has asked no memory server. Its release looks at the leases
//     (Alive), where the release of a lock would prove that nobody else had it (proves).
//   - A client that dies with the place alone leaves no word that says so, and nothing to repair:
//     under it nothing is rewritten. A change that needs more than one aligned word to take effect
//     takes the lock (Rewrite).

// LockOwn is LockOr of a node that no other client changes. If the lock comes with it, it is held
// as after Lock. change can be nil.
func (s *Session) LockOwn(a Addr, node []byte, change any) (answered bool, err error) {
	if s.broken == nil {
		s.wait.Offer(change)
	}
	return s.offered(s.lockTable(a, node, true))
}

// Holds reports whether the session holds a lock, its place, or a lock word.
func (s *Session) Holds() bool { return s.lock.held || s.lockWord.held }

// busy reports whether the session must not acquire a lock, nor enter a node.
func (s *Session) busy() bool { return s.Holds() || s.queued != 0 || s.present.slot != nil }

// HoldsOwn reports whether the session has a lock's place without the lock.
func (s *Session) HoldsOwn() bool { return s.lock.held && s.lock.own }

// postOwn is postUnlock where the session has no more than the place.
func (s *Session) postOwn(l *tableLock, image lock.Image) error {
	proves := s.proves(l)
	err := s.postOthers(l.server)
	if err == nil {
		err = s.Post()
	}
	if err == nil && !proves {
		err = s.pool.Alive()
	}
	if err != nil {
		s.leaveLocal(l)
		return s.markDead(err)
	}
	s.pool.servers()[l.server].local.releaseTo(l.index, false, image)
	return nil
}
