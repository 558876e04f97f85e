package dex

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/lfu"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/slottedtree"
	"github.com/dmindex/dmindex/pkg/pool"
)

// With caching off a change READs its leaf into a frame, changes it there and writes it back before
// it is answered. Sessions of one client that change the same leaf take turns, first come first
// served: they wait for an event, not by trying again. No lock of a memory server is needed,
// because the leaf belongs to this client.
//
//	the session that has the turn             the sessions behind it
//	1  finds the leaf's frame, or READs       wait for their turn
//	   the leaf into one
//	2  changes the frame, or finds its
//	   answer there
//	3  if another session waits for the       gets the turn, and with it the leaf as it
//	   same leaf: passes the turn on and      stands in the frame: no READ. Begins at 2
//	   waits for 4 of a later one
//	4  otherwise: writes the frame back       wait; come too late for this 4
//	   in one list, which has the changes
//	   of all sessions that passed the
//	   turn on since the last one
//	5  answers, as all of those do; drops     the first one begins at 1
//	   the frame, if nobody waits
//
// An answer that was found in a frame with changes that are not written back waits for 4 as well:
// otherwise a session could say that a key exists that a lookup, which READs the memory server,
// does not find. So everything that is answered is in the memory servers. A change that another one
// of the same key replaced in the frame before 4 was never there. It takes effect at 4, immediately
// before the other.
//
// The frame is unlocked between 2 and 4. Merges, divisions of leaves, Give and evictions do not
// take turns. They write a dirty frame back under its lock before they use the memory server's
// leaf, or drop the frame. So at 4 a frame that is gone, or clean, is written back, unless this
// client has been given up since. That is the case after every flush that failed, but for those of
// a session that died before: such a frame is as dirty as it was, and the changes in it, which
// somebody else writes back, are of unknown outcome.
//
// A session has one turn at a time. While it has the turn it waits for memory servers and for locks
// of frames, and no holder of such a lock waits for a turn. It does not wait for memory with it
// (write).

// turns are the queues of an index with caching off. There are as many as sessions at most, one for
// each leaf for which a session has the turn.
type turns struct{ shards []turnShard }

const (
	turnShards = 64
	// sessions that wait for one write-back: the first one waits for the changes of so many others
	mostJoined = 32
)

// turnShard has the queues of some leaves, by the hash of the address.
type turnShard struct {
	mu     env.Mutex // guards the queues, too
	queues *turnQueue
	unused *turnQueue
}

type turnQueue struct {
	leaf        pool.Addr
	next        *turnQueue
	first, last *turn // that wait for the turn
	joined      *turn // that wait for the write-back, the last one first
	n           int   // of joined
}

// turn is a session's place in a queue.
type turn struct {
	event env.Event
	next  *turn
	leaf  pool.Addr // that the session has the turn for, or waits for; Nil = none
	over  bool      // the wait is: the turn is granted, or the leaf written back
	err   error     // of the write-back
}

func (t *turns) start(e env.Env) {
	t.shards = make([]turnShard, turnShards)
	for i := range t.shards {
		t.shards[i].mu = e.NewMutex()
	}
}

func (t *turns) of(a pool.Addr) *turnShard { return &t.shards[lfu.Hash(a)>>32%turnShards] }

// queue returns the queue of the leaf at a; nil if nobody has the turn.
func (h *turnShard) queue(a pool.Addr) *turnQueue {
	q := h.queues
	for q != nil && q.leaf != a {
		q = q.next
	}
	return q
}

// begin makes a queue for the leaf at a.
func (h *turnShard) begin(a pool.Addr) {
	q := h.unused
	if q == nil {
		q = new(turnQueue)
	} else {
		h.unused = q.next
	}
	*q = turnQueue{leaf: a, next: h.queues}
	h.queues = q
}

// end ends a queue in which nobody waits.
func (h *turnShard) end(q *turnQueue) {
	for at := &h.queues; ; at = &(*at).next {
		if *at == q {
			*at = q.next
			break
		}
	}
	q.next, h.unused = h.unused, q
}

// enter waits until the session has the turn for the leaf at a. It ends another turn of the session
// first, in which the session changed nothing. again: the session has the turn, but has waited for
// it, and the leaf is not handed on: maybe it was divided. Then the key may be in another leaf by
// now, which inner nodes in the cache know.
func (s *session) enter(a pool.Addr) (again bool, err error) {
	t := s.turn
	if t == nil || t.leaf == a {
		return false, nil
	}
	if err := s.leave(); err != nil {
		return false, err
	}
	h := s.x.turns.of(a)
	h.mu.Lock()
	defer h.mu.Unlock()
	t.leaf = a
	q := h.queue(a)
	if q == nil {
		h.begin(a)
		return false, nil
	}
	t.next = nil
	if q.first == nil {
		q.first = t
	} else {
		q.last.next = t
	}
	q.last = t
	if s.await(h) {
		return s.x.cache.Find(a) == nil, nil
	}
	q.remove(t)
	t.leaf = pool.Nil
	return false, s.late(a)
}

// await gives up the shard's lock until the session's wait is over, and reports whether that came
// within the limit of its operation.
func (s *session) await(h *turnShard) bool {
	t := s.turn
	t.over, t.err = false, nil
	h.mu.Unlock()
	t.event.Wait(s.b.PS.Remaining())
	h.mu.Lock()
	t.event.Wait(0) // set by now if it will be: it must not end a later wait
	return t.over
}

func (s *session) late(a pool.Addr) error {
	err := s.b.PS.Overdue()
	if err == nil {
		err = pool.ErrTimeout
	}
	return fmt.Errorf("wait for leaf %v, which other sessions of this client change: %w", a, err)
}

// leave ends the turn of the session, if it has one: steps 3 to 5. When it returns nil, everything
// that the session did or found in the leaf is in the memory servers.
func (s *session) leave() error {
	t := s.turn
	if t == nil || t.leaf == pool.Nil {
		return nil
	}
	a := t.leaf
	h := s.x.turns.of(a)
	if s.x.unwritten(a) {
		h.mu.Lock()
		if q := h.queue(a); q.first != nil && q.n < mostJoined {
			defer h.mu.Unlock()
			q.grant()
			t.next, q.joined, q.n = q.joined, t, q.n+1
			done := s.await(h)
			t.leaf = pool.Nil
			if !done {
				q.joined = without(q.joined, t)
				q.n--
				return op.Failure(s.late(a), true)
			}
			return t.err
		}
		h.mu.Unlock()
	}
	err := s.writeThrough(a)
	h.mu.Lock()
	defer h.mu.Unlock()
	q := h.queue(a)
	for q.joined != nil {
		j := q.joined
		q.joined, j.over, j.err = j.next, true, err
		j.event.Set()
	}
	q.n = 0
	t.leaf = pool.Nil
	if q.first == nil {
		h.end(q)
	} else {
		q.grant()
	}
	return err
}

// grant passes the turn on to the first session that waits.
func (q *turnQueue) grant() {
	next := q.first
	if q.first = next.next; q.first == nil {
		q.last = nil
	}
	next.over = true
	next.event.Set()
}

// remove removes a session that waits for the turn.
func (q *turnQueue) remove(t *turn) {
	if q.first = without(q.first, t); q.first == nil {
		q.last = nil
		return
	}
	for q.last = q.first; q.last.next != nil; {
		q.last = q.last.next
	}
}

// without is a list of turns without t.
func without(list, t *turn) *turn {
	for at := &list; *at != nil; at = &(*at).next {
		if *at == t {
			*at = t.next
			break
		}
	}
	return list
}

// unwritten reports whether the leaf at a has a frame with changes that are not written back.
func (x *dex) unwritten(a pool.Addr) bool {
	f := x.cache.Find(a)
	return f != nil && f.RecLSN() != 0
}

// writeThrough is step 4 for the leaf at a. It drops the frame unless a session waits for it.
func (s *session) writeThrough(a pool.Addr) error {
	for {
		f := s.x.cache.Find(a)
		switch {
		case f == nil:
			return op.Failure(s.x.pool.Alive(), true)
		case f.TryLock():
			if f.Addr() != a {
				f.Unlock()
				continue
			}
			// If this session is dead, whoever comes next writes the frame back.
			err := op.Failure(s.back(f), true)
			if err == nil && !s.x.turns.wanted(a) {
				s.x.cache.Drop(f)
			} else {
				f.Unlock()
			}
			return err
		case f.RecLSN() == 0: // somebody else uses it, who may keep it
			return op.Failure(s.x.pool.Alive(), true)
		}
		if err := s.b.Retry(); err != nil {
			return op.Failure(err, true)
		}
	}
}

// wanted reports whether a session waits for the turn for the leaf at a, which another has.
func (t *turns) wanted(a pool.Addr) bool {
	h := t.of(a)
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.queue(a).first != nil
}

// answer waits until what was done, or read, is durable.
func (s *session) answer(o *outcome, key []byte, a pool.Addr) error {
	if err := s.leave(); err != nil {
		return err
	}
	if o.replaced != (blocks.Reference{}) {
		s.x.garbage.Add(o.replaced, o.lsn)
	}
	if err := s.seen(o.lsn); err != nil {
		return op.Failure(err, o.answer == nil)
	}
	if o.underfull {
		if err := patiently(s.b.PS, func() error { return s.b.Tidy(key, a, slottedtree.Load(o.count, o.bytes)) }); err != nil {
			return err
		}
	}
	return o.answer
}
