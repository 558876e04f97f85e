package core

import (
	"container/heap"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// Bounds of the attempts to finish a fence.
const (
	firstRetry   = 50 * time.Millisecond
	longestRetry = 5 * time.Second
	retryLimit   = 100 * time.Millisecond // of one attempt
	maxTogether  = 64                     // clients of one attempt
)

// fences are the clients that are fenced and not finished: their requests may still take effect, or
// locks may name them. The lease loop retries these. The indexes take turns, so an index with many
// such clients delays those of another one by one attempt for each of its own. All methods are
// called under the lock of the accounts.
type fences struct {
	turns []*fenceQueue // of the indexes with unfinished fences, the next one first
	at    map[verbs.Peer]*unfinished
	held  map[verbs.Peer]int // how many calls are finishing the fence of a client
}

// fenceQueue is a heap of the unfinished fences of one index, by the time when they are due.
type fenceQueue struct {
	index string
	list  []*unfinished
}

type unfinished struct {
	peer   verbs.Peer
	client uint32
	next   time.Duration // when it is tried again
	wait   time.Duration // the pause after that, if it fails
	place  int           // in the queue
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (q *fenceQueue) Len() int           { return len(q.list) }
func (q *fenceQueue) Less(i, j int) bool { return q.list[i].next < q.list[j].next }

func (q *fenceQueue) Swap(i, j int) {
	q.list[i], q.list[j] = q.list[j], q.list[i]
	q.list[i].place, q.list[j].place = i, j
}

func (q *fenceQueue) Push(u any) {
	u.(*unfinished).place = len(q.list)
	q.list = append(q.list, u.(*unfinished))
}

func (q *fenceQueue) Pop() any {
	last := len(q.list) - 1
	u := q.list[last]
	q.list[last] = nil
	q.list = q.list[:last]
	return u
}

// len returns how many fences are not finished.
func (s *fences) len() int { return len(s.at) }

func (s *fences) queue(index string) (at int) {
	for i, q := range s.turns {
		if q.index == index {
			return i
		}
	}
	return -1
}

// begin adds a client, to be retried from now on. It takes the place of an earlier one with its id.
func (s *fences) begin(index string, client uint32, now time.Duration) {
	peer := peerOf(index, client)
	if u := s.at[peer]; u != nil {
		u.client = client
		return
	}
	if s.at == nil {
		s.at = map[verbs.Peer]*unfinished{}
	}
	i := s.queue(peer.Index)
	if i < 0 {
		i = len(s.turns)
		s.turns = append(s.turns, &fenceQueue{index: peer.Index})
	}
	u := &unfinished{peer: peer, client: client, next: now, wait: firstRetry}
	s.at[peer] = u
	heap.Push(s.turns[i], u)
}

// nextDue returns the due clients of the index whose turn it is, if any. It sets the next attempt
// of each later, and moves the index behind all others. A client whose attempt failed before is
// tried alone, so that one which is not quiet delays no other.
func (s *fences) nextDue(now time.Duration) (index string, clients []uint32) {
	for i, q := range s.turns {
		if now < q.list[0].next {
			continue
		}
		for len(clients) < maxTogether && now >= q.list[0].next {
			u := q.list[0]
			again := u.wait > firstRetry
			if again && len(clients) > 0 {
				break
			}
			clients = append(clients, u.client)
			u.next = now + u.wait
			u.wait = min(2*u.wait, longestRetry)
			heap.Fix(q, 0)
			if again {
				break
			}
		}
		s.turns = append(append(s.turns[:i], s.turns[i+1:]...), q)
		return q.index, clients
	}
	return "", nil
}

// end removes a client, unless a later one with its id has its place.
func (s *fences) end(index string, client uint32) {
	peer := peerOf(index, client)
	u := s.at[peer]
	if u == nil || u.client != client {
		return
	}
	delete(s.at, peer)
	i := s.queue(peer.Index)
	if heap.Remove(s.turns[i], u.place); len(s.turns[i].list) == 0 {
		s.turns = append(s.turns[:i], s.turns[i+1:]...)
	}
}

// countFinishing counts n calls more that are finishing the fences of clients.
func (s *fences) countFinishing(index string, clients []uint32, n int) {
	if s.held == nil {
		s.held = map[verbs.Peer]int{}
	}
	for _, client := range clients {
		peer := peerOf(index, client)
		if s.held[peer] += n; s.held[peer] == 0 {
			delete(s.held, peer)
		}
	}
}

// isHeld reports whether a call is finishing the fence of a client.
func (s *fences) isHeld(peer verbs.Peer) bool { return s.held[peer] > 0 }

// endIndex removes the clients of an index.
func (s *fences) endIndex(index string) {
	if i := s.queue(index); i >= 0 {
		for _, u := range s.turns[i].list {
			delete(s.at, u.peer)
		}
		s.turns = append(s.turns[:i], s.turns[i+1:]...)
	}
}
