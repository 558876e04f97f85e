package pool

import (
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/pool/internal/lock"
)

// MaxHandovers is how many times in a row a global lock stays with one client while its sessions
// pass it on among themselves; then other clients get their turn (Sherman, section 4.3).
const MaxHandovers = 4

// lockTable is the local lock table (LLT) of one memory server: one entry for each lock of the
// slice of the global table (GLT), so that sessions of one client queue here, first come first
// served, and only one of them asks the memory server (Sherman, section 4.3).
//
// Mostly nobody waits. Then two bits say all there is about a lock, and those of all locks fit a
// processor's cache: acquiring and releasing it is a compare-and-swap of them. Who has to wait sets
// the slow bit, under the shard's mutex, and from then on until the queue is empty the lock is
// released under that mutex too. The slow bit is set only while the lock is held.
type lockTable struct {
	states    []atomic.Uint32 // two bits for each lock
	shards    [64]env.Mutex   // entry i is guarded by shards[i%64]
	locks     []localLock
	cancelled [64]bool // by shard: nobody waits any more
}

// The bits of a lock, and how many locks share a word of states.
const (
	stateHeld  = 1 << 0
	stateSlow  = 1 << 1 // there may be more in locks
	stateBits  = 2
	stateLocks = 32 / stateBits
)

type localLock struct {
	waiters   lock.WaitQueue
	handovers uint8 // how many times in a row the holder got the global lock by handover
}

func newLockTable(e env.Env, n int) *lockTable {
	t := &lockTable{states: make([]atomic.Uint32, (n+stateLocks-1)/stateLocks), locks: make([]localLock, n)}
	for i := range t.shards {
		t.shards[i] = e.NewMutex()
	}
	return t
}

func (t *lockTable) shard(i uint32) env.Mutex { return t.shards[i%uint32(len(t.shards))] }

// try acquires local lock i if nobody has it.
func (t *lockTable) try(i uint32) bool {
	w, shift := t.state(i)
	for {
		old := w.Load()
		if old>>shift&stateHeld != 0 {
			return false
		}
		if w.CompareAndSwap(old, old|stateHeld<<shift) {
			return true
		}
	}
}

// state is where the bits of lock i are.
func (t *lockTable) state(i uint32) (w *atomic.Uint32, shift uint32) {
	return &t.states[i/stateLocks], i % stateLocks * stateBits
}

// hasMore reports whether there may be more about lock i than its bits.
func (t *lockTable) hasMore(i uint32) bool {
	w, shift := t.state(i)
	return w.Load()>>shift&stateSlow != 0
}

// tryOrSlow acquires lock i if nobody has it, else it sets the slow bit. Called under the shard's
// mutex.
func (t *lockTable) tryOrSlow(i uint32) (acquired bool) {
	for !t.try(i) {
		w, shift := t.state(i)
		if old := w.Load(); old>>shift&stateHeld != 0 && w.CompareAndSwap(old, old|stateSlow<<shift) {
			return false
		}
	}
	return true
}

// giveUp clears the bits of lock i, which its holder calls. Without force it does so only if the
// slow bit is not set.
func (t *lockTable) giveUp(i uint32, force bool) bool {
	w, shift := t.state(i)
	for {
		old := w.Load()
		if !force && old>>shift&stateSlow != 0 {
			return false
		}
		if w.CompareAndSwap(old, old&^((stateHeld|stateSlow)<<shift)) {
			return true
		}
	}
}

// acquire acquires local lock i, waiting at most limit. global says that the global lock was handed
// over with it. If it fails, the change that w offered may have been answered.
func (t *lockTable) acquire(i uint32, w *lock.Waiter, limit time.Duration) (global, ok bool) {
	mu := t.shard(i)
	mu.Lock()
	l := &t.locks[i]
	if t.tryOrSlow(i) {
		mu.Unlock()
		return false, true
	}
	if t.cancelled[i%uint32(len(t.shards))] {
		mu.Unlock()
		return false, false
	}
	defer mu.Unlock()
	l.waiters.Push(w)
	if global, ok = w.Wait(mu, limit); !ok && !w.Answered() {
		l.waiters.Remove(w)
	}
	return global, ok
}

// takeChanges takes changes of a node out of the queue for lock i, whose holder calls it.
func (t *lockTable) takeChanges(i uint32, node uint64, list []*lock.Waiter) []*lock.Waiter {
	if !t.hasMore(i) {
		return list
	}
	mu := t.shard(i)
	mu.Lock()
	defer mu.Unlock()
	return t.locks[i].waiters.Take(node, list)
}

// putBack puts those back that were taken and not carried out. The caller still holds lock i.
func (t *lockTable) putBack(i uint32, list []*lock.Waiter) {
	mu := t.shard(i)
	mu.Lock()
	defer mu.Unlock()
	t.locks[i].waiters.PutBack(list, t.cancelled[i%uint32(len(t.shards))])
}

// answer answers those that were taken. The caller may have released lock i.
func (t *lockTable) answer(i uint32, list []*lock.Waiter, failure error) {
	mu := t.shard(i)
	mu.Lock()
	defer mu.Unlock()
	lock.Answer(list, failure)
}

// cancel ends all waiting, now and later.
func (t *lockTable) cancel() {
	for shard, mu := range t.shards {
		mu.Lock()
		t.cancelled[shard] = true
		for i := shard; i < len(t.locks); i += len(t.shards) {
			t.locks[i].waiters.Cancel()
		}
		mu.Unlock()
	}
}

// handover reports whether the holder should keep the global lock for the next waiter instead of
// releasing it.
func (t *lockTable) handover(i uint32) bool {
	if !t.hasMore(i) {
		return false
	}
	mu := t.shard(i)
	mu.Lock()
	defer mu.Unlock()
	l := &t.locks[i]
	return !l.waiters.Empty() && l.handovers < MaxHandovers
}

// release passes local lock i to the next waiter. global says that the global lock is still held,
// for handover; if there is nobody left to acquire it, release changes nothing and returns false:
// release the global lock and call again.
func (t *lockTable) release(i uint32, global bool) bool { return t.releaseTo(i, global, lock.Image{}) }

// releaseTo is release, and hands the image of a node on with the global lock.
func (t *lockTable) releaseTo(i uint32, global bool, image lock.Image) bool {
	if global && !t.hasMore(i) {
		return false
	}
	if !global && t.giveUp(i, false) {
		return true
	}
	mu := t.shard(i)
	mu.Lock()
	defer mu.Unlock()
	l := &t.locks[i]
	if !l.waiters.Grant(global, image) {
		if global {
			return false
		}
		l.handovers = 0
		return t.giveUp(i, true)
	}
	if global {
		l.handovers++
	} else {
		l.handovers = 0
	}
	return true
}
