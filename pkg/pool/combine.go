package pool

import (
	"errors"

	"github.com/dmindex/dmindex/pkg/pool/internal/lock"
)

// Sessions of one client that queue for a lock each want a small change of the same node. Without
// more they make them one after another, a round trip each, and other clients wait. So a session
// may offer its change when it asks for the lock (LockOr), and the holder, which has the node's
// image, may take offered changes out of the queue (Take), carry them out in its own image, and
// post the WRITEs of all of them in the one list that gives up its lock. This is ours. Sherman has
// only the handover of the lock.
//
// The steps, of a holder H and the waiters that it takes:
//
//  1. H has the lock of node a and its image, by a READ or by handover (handon.go). Under the mutex
//     of the shard it takes waiters out of the queue that want a and offer a change, in their
//     order, at most MaxTaken. From here on each of them waits for H, whatever its limit, as H
//     reads what it offers. A waiter withdraws its offer by leaving the queue under the same mutex.
//     So it is either taken or withdrawn, and nobody carries out a change that was withdrawn.
//  2. H changes its image, and writes each answer into the change. What it cannot do goes back to
//     the head of the queue (PutBack), before H gives up the lock: these wait on, with their old
//     limit.
//  3. H queues the WRITEs and calls PostUnlock, which awaits their completion. From then on the
//     changes are in the memory, and everybody sees them (G3).
//  4. Only then PostUnlock answers the waiters. So each change takes effect between the beginning
//     and the answer of its operation. If the list failed nobody knows what took effect of it: H
//     and all that it took get the same error, and the client is given up, as of any list under a
//     lock.
//
// An answer that changes nothing (the key exists, or does not) is true while H has the lock. But if
// the client was fenced after H has READ the node, others may have changed it before the operation
// of a waiter began. So when H has taken a change, it proves after that that the lock is this
// client's: by its WRITEs, or else by the release of the global lock, which it then does not hand
// over (proves).
//
// For how long others wait: H posts one list, as it would have done alone, with at most 1 +
// MaxTaken changes. The list is followed by a release or a handover, and there are at most
// MaxHandovers of these in a row. So other clients wait for as many round trips as before, and a
// waiter that is not taken is overtaken by MaxTaken changes a list at most: it keeps its place in
// the queue.
//
// If the client dies, all of these sessions die. What is in the memory then is any part of what one
// list does, in its order (G1). It is the design's matter that each part is a state which the
// operations might have left: see slottedtree/combine.go and chime/combine.go.

// MaxTaken is how many changes of waiting sessions one list carries out at most.
const MaxTaken = 16

// errAnswered is what Lock ends with where another session has carried out the change.
var errAnswered = errors.New("pool: the change was carried out by another session")

// LockOr is Lock, but where the session has to wait for another one of its client, that one may
// carry out change, a pointer, in its stead. Then answered is true, and the session has no lock.
// err is nil if the answer is in change; else the change failed, and its outcome is unknown. While
// LockOr runs, change and what it refers to belong to who took it.
func (s *Session) LockOr(a Addr, node []byte, change any) (answered bool, err error) {
	if s.broken == nil {
		s.wait.Offer(change)
	}
	err = s.Lock(a, node)
	return s.offered(err)
}

// AcquireOr is Acquire of a lock word, as LockOr is Lock: the change is one of w.Node.
func (s *Session) AcquireOr(w Word, change any, spans ...Span) (own uint64, answered bool, err error) {
	if s.broken == nil {
		s.wait.Offer(change)
	}
	own, err = s.Acquire(w, spans...)
	answered, err = s.offered(err)
	return own, answered, err
}

// offered ends an offer, when Lock or Acquire has returned err.
func (s *Session) offered(err error) (answered bool, failure error) {
	s.wait.Offer(nil)
	if err == errAnswered {
		return true, s.wait.Failure()
	}
	return false, err
}

// Waited reports whether sessions of this client may wait for the lock that the session holds.
func (s *Session) Waited() bool {
	if s.lockWord.held {
		return s.pool.words.Waited(uint64(s.lockWord.word.At))
	}
	return !s.without.Flat && s.pool.servers()[s.lock.server].local.hasMore(s.lock.index)
}

// Take takes offered changes of the node at a, whose lock the session holds, from sessions that
// wait for it, and returns how many. PutBack and PostUnlock, or PostRelease, come next.
func (s *Session) Take(a Addr) int {
	if s.lockWord.held {
		s.taken = s.pool.words.Take(uint64(s.lockWord.word.At), uint64(a), s.taken[:0])
		return len(s.taken)
	}
	if s.without.Flat {
		return 0
	}
	s.taken = s.pool.servers()[s.lock.server].local.takeChanges(s.lock.index, uint64(a), s.taken[:0])
	return len(s.taken)
}

// TakenChange is change i of those that Take took. It belongs to the session until PutBack or
// PostUnlock, or PostRelease.
func (s *Session) TakenChange(i int) any { return s.taken[i].Change() }

// PutBack lets those wait again of which back has the bit: they are not carried out.
func (s *Session) PutBack(back uint32) {
	if back == 0 || len(s.taken) == 0 {
		return
	}
	kept, list := s.taken[:0], s.back[:0]
	for i, w := range s.taken {
		if back>>i&1 != 0 {
			list = append(list, w)
		} else {
			kept = append(kept, w)
		}
	}
	s.taken = kept
	if s.lockWord.held {
		s.pool.words.PutBack(uint64(s.lockWord.word.At), list)
	} else {
		s.pool.servers()[s.lock.server].local.putBack(s.lock.index, list)
	}
}

// answerTaken answers those whose changes were in the list that ended with failure, under lock l.
func (s *Session) answerTaken(l *tableLock, failure error) {
	s.countTaken(failure)
	s.pool.servers()[l.server].local.answer(l.index, s.taken, failure)
	s.taken = s.taken[:0]
}

// answerTakenWord is answerTaken under lock word l.
func (s *Session) answerTakenWord(l *wordLock, failure error) {
	s.countTaken(failure)
	s.pool.words.Answer(uint64(l.word.At), s.taken, failure)
	s.taken = s.taken[:0]
}

func (s *Session) countTaken(failure error) {
	if failure == nil {
		s.combined.Add(uint64(len(s.taken)))
	}
}

// newTaken is room for those that a session takes.
func newTaken() []*lock.Waiter { return make([]*lock.Waiter, 0, MaxTaken) }
