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

	node  uint64 // that it wants to read under the lock; 0 = none
	room  []byte // for that node
	given bool   // room has the node: it was granted with the lock

	change   any   // of that node, that another session may carry out; see change.go
	taken    bool  // by a session that carries it out
	over     bool  // it woke while it was taken
	answered bool  // the change was carried out, or failed
	failure  error // then
}

// NewWaiter is a place for one session.
func NewWaiter(e env.Env) *Waiter { return &Waiter{event: e.NewEvent()} }

// Wants says which node the session of w reads under the lock, and where to. While w stands in a
// queue the room belongs to who grants the lock.
func (w *Waiter) Wants(node uint64, room []byte) {
	w.node, w.room, w.answered, w.given = node, room, false, false
}

// Given reports whether the node came with the lock that w was granted last.
func (w *Waiter) Given() bool { return w.given }

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
	w.next, w.granted, w.global, w.given = nil, false, false, false
	w.taken, w.over, w.answered, w.failure = false, false, false, nil
	if q.tail == nil {
		q.head = w
	} else {
		q.tail.next = w
	}
	q.tail = w
}

// takenWait is how long a waiter sleeps at once while another session carries its change out. That
// one wakes it.
const takenWait = time.Second

// Wait gives up mu until w is granted what it waits for, at most limit, or its waiting is ended, or
// its change is answered. If it was neither granted nor answered, w stands in its queue: Remove
// comes next. While the change is taken limit does not count.
func (w *Waiter) Wait(mu env.Mutex, limit time.Duration) (global, granted bool) {
	for {
		mu.Unlock()
		w.event.Wait(limit)
		mu.Lock()
		w.event.Wait(0) // set by now if it will be: it must not wake a later wait for nothing
		if !w.taken {
			return w.global, w.granted
		}
		w.over, limit = true, takenWait
	}
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

// Image is what a node holds when its lock is passed on. The zero value is of no node.
type Image struct {
	Node  uint64
	Bytes []byte
}

// Grant passes the lock on to the session that waits longest, and reports whether there is one. If
// that one wants the node of the image, it is copied to its room.
func (q *WaitQueue) Grant(global bool, image Image) bool {
	w := q.head
	if w == nil {
		return false
	}
	if q.head = w.next; q.head == nil {
		q.tail = nil
	}
	w.granted, w.global = true, global
	if image.Node != 0 && image.Node == w.node && len(w.room) <= len(image.Bytes) {
		copy(w.room, image.Bytes)
		w.given = true
	}
	w.event.Set()
	return true
}

// Cancel ends the waiting of all that wait now, without the lock.
func (q *WaitQueue) Cancel() {
	for w := q.head; w != nil; w = w.next {
		w.event.Set()
	}
}
