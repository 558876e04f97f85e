package shm

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/internal/mapped"
)

// qp is a verbs.QP. Start executes the whole list, so Wait has nothing to wait for.
//
// Who ends a queue pair must know that no list executes any more: the mapping goes next. The owner
// sets busy, then looks at dead; who kills sets dead, then looks at busy. That takes a full barrier
// between store and load on both sides, or one of membarrier(2) by who kills and none by the owner:
// then a READ waits for nothing, and cache misses of one overlap with those of the next.
type qp struct {
	busy    uint32 // 1 while Start executes a list; atomic
	dead    atomic.Uint32
	cheap   bool                  // busy needs no barrier: mapped.Asymmetric
	short   bool                  // cheap, and verbs.CheckOne knows the rules
	reason  atomic.Pointer[error] // why dead; set before it
	arena   *verbs.Arena
	space   *mapped.Space
	started bool
	tally   verbs.Tally
	conn    *conn
}

// Start implements verbs.QP.
func (q *qp) Start(list []verbs.Request) error {
	if q.started {
		panic("shm: Start after Start without Wait")
	}
	if err := verbs.Check(list, q.arena, &q.conn.caps); err != nil {
		if dead := q.Err(); dead != nil {
			return dead
		}
		return err
	}
	if !q.enter() {
		return q.Err()
	}
	for i := range list {
		if !q.space.InRange(&list[i]) {
			q.leave()
			return q.outOfRange(list, i)
		}
		if i > 0 {
			q.space.Expect(&list[i])
		}
	}
	pending := false
	var old uint64
	for i := range list {
		r := &list[i]
		old, pending = q.space.Apply(r, pending)
		if r.Op.Atomic() {
			mapped.PutNative(r.Local, old)
		}
	}
	if pending {
		mapped.Barrier() // what Wait reports is seen by everybody (G3)
	}
	q.leave()
	q.started = true
	q.tally.Posted(list)
	return nil
}

// Post implements verbs.Poster.
func (q *qp) Post(list []verbs.Request) error {
	if len(list) == 1 && q.short && !q.started && q.one(&list[0]) {
		return nil
	}
	if err := q.Start(list); err != nil {
		return err
	}
	q.tally.RoundTrip()
	return q.Wait()
}

// one executes a list of r alone, as Start does; false = it did nothing, and Start will say why.
// short is set.
func (q *qp) one(r *verbs.Request) bool {
	if !verbs.CheckOne(r, q.arena) || !q.space.InRange(r) {
		return false
	}
	mapped.StoreRelease(&q.busy, 1)
	if q.dead.Load() != 0 {
		q.leave()
		return false
	}
	var old uint64
	var pending bool
	if r.Op == verbs.CompareSwap {
		old, pending = q.space.CompareSwap(r)
	} else {
		old, pending = q.space.Apply(r, false)
	}
	if r.Op.Atomic() {
		mapped.PutNative(r.Local, old)
	}
	if pending {
		mapped.Barrier() // as in Start
	}
	q.leave()
	q.tally.PostedOne(r)
	return true
}

// enter begins an execution: false = the queue pair is dead.
func (q *qp) enter() bool {
	if q.cheap {
		mapped.StoreRelease(&q.busy, 1)
	} else {
		atomic.StoreUint32(&q.busy, 1)
	}
	if q.dead.Load() != 0 {
		q.leave()
		return false
	}
	return true
}

// leave ends an execution.
func (q *qp) leave() { mapped.StoreRelease(&q.busy, 0) }

func (q *qp) outOfRange(list []verbs.Request, i int) error {
	r := &list[i]
	q.kill(fmt.Errorf("shm: request %d (%v of %d bytes at %d:%#x): %w",
		i, r.Op, len(r.Local), r.Region, r.Remote, verbs.ErrOutOfRange))
	return q.Err()
}

// Wait implements verbs.QP.
func (q *qp) Wait() error {
	if q.started {
		q.started = false
		return nil
	}
	if err := q.Err(); err != nil {
		return err
	}
	panic("shm: Wait without Start")
}

// Poll implements verbs.QP: Start has executed the list.
func (q *qp) Poll(time.Duration) bool { return true }

// SetLimit implements verbs.QP: no Wait takes any time.
func (q *qp) SetLimit(time.Duration) {}

func (q *qp) Tally() *verbs.Tally { return &q.tally }

// Err implements verbs.QP.
func (q *qp) Err() error {
	if r := q.reason.Load(); r != nil {
		return *r
	}
	return nil
}

// kill lets no list start any more; one that executes goes on. The first reason counts. Safe for
// concurrent use.
func (q *qp) kill(reason error) {
	q.reason.CompareAndSwap(nil, &reason)
	q.dead.Store(1)
}

// drain waits until no list executes. The queue pair must have been killed, and the process fenced
// since if cheap. A list ends by itself within milliseconds, so this waits by yielding.
func (q *qp) drain() {
	for atomic.LoadUint32(&q.busy) != 0 {
		runtime.Gosched()
	}
}

// Close implements verbs.QP.
func (q *qp) Close() error {
	q.kill(fmt.Errorf("shm: queue pair: %w", verbs.ErrClosed))
	q.started = false
	q.conn.mu.Lock()
	defer q.conn.mu.Unlock()
	delete(q.conn.qps, q)
	return nil
}
