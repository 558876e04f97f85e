package pool

import (
	"time"

	"github.com/dmindex/dmindex/pkg/env"
)

// MaxHandovers is how many times in a row a global lock stays with one client while its sessions pass it on among themselves;
// then other clients get their turn (Sherman, section 4.3).
const MaxHandovers = 4

// lockTable is the local lock table (LLT) of one memory server: one entry for each lock of the slice of the global table
// (GLT), so that sessions of one client queue here, first come first served, and only one of them asks the memory server
// (Sherman, section 4.3).
type lockTable struct {
	shards    [64]env.Mutex // entry i is guarded by shards[i%64]
	locks     []localLock
	cancelled [64]bool // by shard: nobody waits any more
}

type localLock struct {
	head, tail *waiter // who waits, in order of arrival
	held       bool
	handovers  uint8 // how many times in a row the holder got the global lock by handover
}

// waiter is a session's place in a queue.
type waiter struct {
	next    *waiter
	event   env.Event
	granted bool // set, and the event with it, by who passes the lock on; guarded by the shard
	global  bool // the global lock comes with it
}

func newLockTable(e env.Env, n int) *lockTable {
	t := &lockTable{locks: make([]localLock, n)}
	for i := range t.shards {
		t.shards[i] = e.NewMutex()
	}
	return t
}

func (t *lockTable) shard(i uint32) env.Mutex { return t.shards[i%uint32(len(t.shards))] }

// try takes local lock i if nobody has it.
func (t *lockTable) try(i uint32) bool {
	mu := t.shard(i)
	mu.Lock()
	defer mu.Unlock()
	l := &t.locks[i]
	if l.held {
		return false
	}
	l.held = true
	return true
}

// acquire takes local lock i, waiting at most limit. global says that the global lock was handed over with it.
func (t *lockTable) acquire(i uint32, w *waiter, limit time.Duration) (global, ok bool) {
	mu := t.shard(i)
	mu.Lock()
	l := &t.locks[i]
	if !l.held {
		l.held = true
		mu.Unlock()
		return false, true
	}
	if t.cancelled[i%uint32(len(t.shards))] {
		mu.Unlock()
		return false, false
	}
	w.next, w.granted = nil, false
	if l.tail == nil {
		l.head = w
	} else {
		l.tail.next = w
	}
	l.tail = w
	mu.Unlock()

	w.event.Wait(limit)
	mu.Lock()
	defer mu.Unlock()
	w.event.Wait(0) // set by now if it will be: it must not wake a later wait for nothing
	if w.granted {
		return w.global, true
	}
	l.remove(w)
	return false, false
}

// cancel ends all waiting, now and later.
func (t *lockTable) cancel() {
	for shard, mu := range t.shards {
		mu.Lock()
		t.cancelled[shard] = true
		for i := shard; i < len(t.locks); i += len(t.shards) {
			for w := t.locks[i].head; w != nil; w = w.next {
				w.event.Set()
			}
		}
		mu.Unlock()
	}
}

func (l *localLock) remove(w *waiter) {
	var before *waiter
	for at := l.head; at != w; at = at.next {
		before = at
	}
	if before == nil {
		l.head = w.next
	} else {
		before.next = w.next
	}
	if l.tail == w {
		l.tail = before
	}
}

// handover says whether the holder should keep the global lock for the next waiter instead of releasing it.
func (t *lockTable) handover(i uint32) bool {
	mu := t.shard(i)
	mu.Lock()
	defer mu.Unlock()
	l := &t.locks[i]
	return l.head != nil && l.handovers < MaxHandovers
}

// release passes local lock i to the next waiter. global says that the global lock is still held, for handover; if there is
// nobody left to take it, release changes nothing and returns false: release the global lock and call again.
func (t *lockTable) release(i uint32, global bool) bool {
	mu := t.shard(i)
	mu.Lock()
	defer mu.Unlock()
	l := &t.locks[i]
	w := l.head
	if w == nil {
		if global {
			return false
		}
		l.held, l.handovers = false, 0
		return true
	}
	l.head = w.next
	if l.head == nil {
		l.tail = nil
	}
	if global {
		l.handovers++
	} else {
		l.handovers = 0
	}
	w.granted, w.global = true, global
	w.event.Set()
	return true
}
