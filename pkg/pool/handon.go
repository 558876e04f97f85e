package pool

import (
	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/pool/internal/lock"
)

// A lock that is handed over between sessions of one client (Sherman, section 4.3) costs the next
// holder a READ of its node. But the last holder knows what the node holds: it READ the node under
// the lock, or got its image in the same way, and nobody but the holder changes a node. So it may
// hand its image on with the lock, and the next holder READs nothing.
//
// The steps, of a holder H and the session W that has waited longest:
//
//  1. H changes its image, queues WRITEs of exactly these bytes, and calls HandOn.
//  2. H posts them in PostUnlock, and awaits the completion. From then on the memory holds what the
//     image does (G3). After an error nobody knows what it holds: no image is handed on, and the
//     client is given up.
//  3. Under the mutex of its shard of the local lock table H copies the image to the room of W, if
//     W wants that very node, and grants it the lock. Different nodes share a lock, so W may want
//     another one: then it READs that.
//
// Whose memory it is: the image stays in H's buffer and W's room in W's. The copy is made while W
// stands in the queue. W has nothing queued then, so its room belongs to nobody else; and W leaves
// the queue only under the same mutex, also when its limit is over. So H uses the room of nobody
// who does not wait for it. W has no room to offer if it died before: its queue pair might still
// write there.
//
// Between 2 and the use of the image by W the lock is this client's all the time. So the node
// cannot be retired, merged, split or used again in between: each of that is done under its lock,
// or, of a node that is dead, after its lock was acquired once more. If a client is fenced in
// between, that is different: the lock is turned to Repair, others have it repaired, and change the
// node. W does not know, as it asked nothing of the memory server. What it writes fails, as every
// request of a fenced client does. But it may want to write nothing, since the image says that a
// key exists, or does not. Its answer would be too old. So who was given the image proves that the
// lock was this client's, by a request to the lock's server that succeeds after it got the lock,
// before it answers: its WRITEs, or else the release of the global lock, which it then does not
// hand over (proves). A client that dies with the lock, or between any two of these steps, leaves
// what one leaves that READ the node.
//
// Handovers in a row are limited as before (MaxHandovers). Then the next holder acquires the global
// lock and READs the node.

// HandOn says that the node at a, whose lock the session holds, holds image, all of it, as soon as
// what is queued has taken effect. PostUnlock comes next. Until it returns the image stays as it
// is.
func (s *Session) HandOn(a Addr, image []byte) {
	if invariants.Enabled {
		l, err := s.pool.lockOf(a)
		invariants.Check(err == nil && s.lock.held && l.server == s.lock.server && l.index == s.lock.index && s.queued > 0,
			"the image of node %v is handed on, of which the session has changed nothing under its lock", a)
	}
	s.handOn = lock.Image{Node: uint64(a), Bytes: image}
}

// awaitLocal waits for local lock l, to read the node at a under it. l.given says that the node
// came with the lock.
func (s *Session) awaitLocal(l *tableLock, a Addr, node []byte) (global, ok bool) {
	if s.broken == nil {
		s.wait.Wants(uint64(a), node)
	} else {
		s.wait.Wants(0, nil)
	}
	global, ok = s.pool.servers()[l.server].local.acquire(l.index, s.wait, s.remaining())
	l.given = (global || l.own) && s.wait.Given()
	return global, ok
}

// proves reports whether what is queued proves that lock l, which the session is about to give up,
// was this client's while it had it, or a READ under it did before. For those whose changes it
// carries out no READ does: their operations may have begun after it.
func (s *Session) proves(l *tableLock) bool {
	return !l.given && len(s.taken) == 0 || len(s.lists[l.server]) > 0
}
