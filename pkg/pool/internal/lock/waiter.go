package lock

import (
	"time"

	"github.com/dmindex/dmindex/pkg/env"
)

// Waiter is the place of one session in a queue. A session waits in one queue at a time.
type Waiter struct {
	event   env.Event
	next    *Waiter
	granted bool // set, and the event with it, by Grant
	global  bool // what was granted has a lock of the memory server with it
}

// NewWaiter is a place for one session.
func NewWaiter(e env.Env) *Waiter { return &Waiter{event: e.NewEvent()} }

// WaitQueue is the sessions of one client that wait for one lock, first come first served. Its
// owner's mutex guards it, and all calls are made under that one.
type WaitQueue struct {
	head, tail *Waiter
}

// Empty reports whether nobody waits.
func (q *WaitQueue) Empty() bool { return q.head == nil }

// Len counts those who wait, one by one.
func (q *WaitQueue) Len() (n int) {
	for w := q.head; w != nil; w = w.next {
		n++
	}
	return n
}

// Push lets w wait. Wait comes next.
func (q *WaitQueue) Push(w *Waiter) {
	w.next, w.granted, w.global = nil, false, false
	if q.tail == nil {
		q.head = w
	} else {
		q.tail.next = w
	}
	q.tail = w
}

// Wait gives up mu until w is granted what it waits for, at most limit, or its waiting is ended. If
// it was not granted, w stands in its queue: Remove comes next.
func (w *Waiter) Wait(mu env.Mutex, limit time.Duration) (global, granted bool) {
	mu.Unlock()
	w.event.Wait(limit)
	mu.Lock()
	w.event.Wait(0) // set by now if it will be: it must not wake a later wait for nothing
	return w.global, w.granted
}

// Remove takes w out, which stands in the queue.
func (q *WaitQueue) Remove(w *Waiter) {
	var before *Waiter
	for at := q.head; at != w; at = at.next {
		before = at
	}
	if before == nil {
		q.head = w.next
	} else {
		before.next = w.next
	}
	if q.tail == w {
		q.tail = before
	}
}

// Grant passes the lock on to the session that waits longest, and reports whether there is one.
func (q *WaitQueue) Grant(global bool) bool {
	w := q.head
	if w == nil {
		return false
	}
	if q.head = w.next; q.head == nil {
		q.tail = nil
	}
	w.granted, w.global = true, global
	w.event.Set()
	return true
}

// Cancel ends the waiting of all that wait now, without the lock.
func (q *WaitQueue) Cancel() {
	for w := q.head; w != nil; w = w.next {
		w.event.Set()
	}
}
