// Package op is the operations of one session, as all designs need them: their beginning and end,
// their limit, what is tried again and how often, and what is counted.
//
// Between Begin and End memory whose address the operation got is not used again (package pool,
// reclaim.go). Stamps of cached copies below Floor may not be followed.
package op

import (
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/index/internal/combine"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Op is the operation under way of a session, or none. One goroutine uses it.
type Op struct {
	PS    *pool.Session
	Pool  *pool.Pool
	Env   env.Env
	Floor uint64 // of the stamps of cached copies
	Count Tallies
	// finds lock words of nodes that have some besides their locks of the table; nil = none have
	Words *pool.Strips

	reader    combine.Reader
	room      []byte // for a node that Reread locks
	reclaimed uint64 // nodes of this client when the operation began, or last waited for memory
	rereads   int
	waits     int
	shown     shownTallies
	sessions  *Sessions // of the index; see Sessions.Add
	closed    bool
}

// Open makes o the operations of ps. room holds one node, and nobody else uses it during Reread.
func (o *Op) Open(ps *pool.Session, e env.Env, room []byte) {
	o.PS, o.Pool, o.Env, o.room = ps, ps.Pool(), e, room
}

// Begin starts an operation and counts it. End ends it.
func (o *Op) Begin() {
	o.PS.Begin()
	o.Floor, o.reclaimed = o.Pool.Floor(), o.Pool.Reclaimed()
	o.rereads, o.waits = 0, 0
	o.Counted()
}

// End ends an operation: no address that it got is used any more.
func (o *Op) End() { o.PS.End() }

// Resume goes on with an operation after End. Its limit goes on, too.
func (o *Op) Resume() {
	o.PS.Resume()
	o.Floor, o.reclaimed = o.Pool.Floor(), o.Pool.Reclaimed()
}

// LockEvery is how many times an operation reads in vain before it takes the lock of the node. A
// node that is merely being written comes to rest after a few.
const LockEvery = 32

// Reread is called before the node at a is read again, which was torn or stale. It lets others run,
// and ends the operation with an error when its limit is over. A node may be torn for good because
// its writer died, and taking its lock repairs it: so Reread does that now and then. No lock may be
// held.
func (o *Op) Reread(a pool.Addr) error {
	o.Count.Retries++
	if late := o.PS.Overdue(); late != nil {
		return fmt.Errorf("node %v does not come to rest: %w", a, late)
	}
	if o.rereads++; o.rereads%LockEvery == 0 {
		return o.Settle(a)
	}
	o.Env.Yield()
	return nil
}

// Settle takes the lock of the node at a, which completes what a dead client left there, and
// releases it. The same with its lock word, if it has one. No lock may be held.
func (o *Op) Settle(a pool.Addr) error {
	if err := o.PS.Lock(a, o.room); err != nil {
		return Failure(err, false)
	}
	if err := o.Unlock(nil); err != nil || o.Words == nil {
		return err
	}
	at, err := o.Words.WordOf(a)
	if err == nil {
		_, err = o.PS.Acquire(pool.Word{At: at, Node: a, InStrip: true})
	}
	if err != nil {
		return Failure(err, false)
	}
	return o.Unlock(nil)
}

// How often Retry only lets others run, and how long it sleeps at most.
const (
	retrySpins  = 64
	retrySleeps = 500 * time.Microsecond
)

// Retry is called before something of this client is tried again that another session holds. It
// lets others run, and ends the operation with an error when its limit is over. That session may
// itself wait for a memory server: so an operation that retries often sleeps in between, ever
// longer.
func (o *Op) Retry() error {
	o.Count.Retries++
	if late := o.PS.Overdue(); late != nil {
		return late
	}
	if o.waits++; o.waits <= retrySpins {
		o.Env.Yield()
		return nil
	}
	o.Env.Sleep(min(retrySleeps, time.Microsecond<<min(o.waits-retrySpins, 20)))
	return nil
}

// Pause lets others run between two steps of an optimistic operation, in builds with invariants.
func (o *Op) Pause() { Pause(o.Env) }

// Pause is Op.Pause outside of an operation.
func Pause(e env.Env) {
	if invariants.Enabled && e.Uint64()%16 == 0 {
		e.Yield()
	}
}

// Unlock releases the lock without a change. It returns err if that succeeds.
func (o *Op) Unlock(err error) error {
	if e := o.PS.PostUnlock(); e != nil {
		return Failure(e, false)
	}
	return err
}

// Refuse is Unlock with an error. Sessions whose changes this one took wait on
// (pool.Session.PutBack).
func (o *Op) Refuse(err error) error {
	o.PS.PutBack(^uint32(0))
	return o.Unlock(err)
}

// Late is called under the lock of what the operation is about to change. If its limit is over, it
// releases the lock, and returns an error: its caller may have given up, and no change may come
// later than that.
func (o *Op) Late() error {
	late := o.PS.Late()
	if late == nil {
		return nil
	}
	return o.Unlock(Failure(late, false))
}

// memoryPause is how long a write that found no memory waits before it looks again.
const memoryPause = 5 * time.Millisecond

// AwaitMemory reports whether an allocation that failed is worth trying again: this client retired
// memory lately that comes back, or some came back since the operation began or last waited. It
// waits a little first. The wait has no part in the epochs, which would wait for it else: the
// operation holds no address any more afterwards, and begins anew.
func (o *Op) AwaitMemory() bool {
	if o.PS.Overdue() != nil || o.PS.Err() != nil || !o.Pool.Reclaiming(o.reclaimed) {
		return false
	}
	o.End()
	o.Env.Sleep(memoryPause)
	o.Resume()
	return true
}
