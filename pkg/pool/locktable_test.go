package pool

import (
	"sync"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/pool/internal/lock"
)

// held reports whether somebody has lock i.
func held(t *lockTable, i uint32) bool {
	w, shift := t.state(i)
	return w.Load()>>shift&stateHeld != 0
}

func TestLocalLocksAreFair(t *testing.T) {
	e := env.Real()
	table := newLockTable(e, 8)
	first := lock.NewWaiter(e)
	if global, ok := table.acquire(3, first, 0); global || !ok {
		t.Fatalf("a free lock: global %v, ok %v", global, ok)
	}
	const n = 5
	var mu sync.Mutex
	var order []int
	var wg sync.WaitGroup
	for i := range n {
		wg.Add(1)
		w := lock.NewWaiter(e)
		go func() {
			defer wg.Done()
			global, ok := table.acquire(3, w, time.Minute)
			if !ok || !global {
				t.Errorf("waiter %d: global %v, ok %v", i, global, ok)
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			handed := table.handover(3)
			if !table.release(3, handed) {
				t.Errorf("waiter %d: nobody to hand over to", i)
			}
		}()
		waitFor(t, func() bool { // until it stands in the queue, so that the order is known
			table.shard(3).Lock()
			defer table.shard(3).Unlock()
			return table.locks[3].waiters.Len() == i+1
		})
		if i == n-2 {
			break // MaxHandovers waiters; one more would have to ask for the global lock again
		}
	}
	if !table.handover(3) || !table.release(3, true) {
		t.Fatal("no handover with waiters")
	}
	wg.Wait()
	for i, got := range order {
		if got != i {
			t.Fatalf("order of service is %v", order)
		}
	}
	if held(table, 3) || table.locks[3].handovers != 0 {
		t.Errorf("after all: %+v", table.locks[3])
	}
}

func TestHandoverIsLimited(t *testing.T) {
	e := env.Real()
	table := newLockTable(e, 1)
	table.acquire(0, lock.NewWaiter(e), 0)
	got := make(chan bool, MaxHandovers+1)
	for i := range MaxHandovers + 1 {
		go func() {
			global, _ := table.acquire(0, lock.NewWaiter(e), time.Minute)
			got <- global
		}()
		waitFor(t, func() bool {
			table.shard(0).Lock()
			defer table.shard(0).Unlock()
			return table.locks[0].waiters.Len() == i+1
		})
	}
	for i := range MaxHandovers + 1 {
		keep := table.handover(0)
		if want := i < MaxHandovers; keep != want {
			t.Errorf("handover %d: keep is %v, want %v", i, keep, want)
		}
		table.release(0, keep)
		if global := <-got; global != keep {
			t.Errorf("waiter %d: global is %v, want %v", i, global, keep)
		}
	}
}

func TestWaiterThatGivesUpLeavesTheQueue(t *testing.T) {
	e := env.Real()
	table := newLockTable(e, 1)
	table.acquire(0, lock.NewWaiter(e), 0)
	w := lock.NewWaiter(e)
	if _, ok := table.acquire(0, w, time.Millisecond); ok {
		t.Fatal("got a lock that is held")
	}
	if table.release(0, true) {
		t.Error("handed over to nobody")
	}
	if !table.release(0, false) || held(table, 0) {
		t.Error("not released")
	}
	if _, ok := table.acquire(0, w, 0); !ok {
		t.Error("a free lock is not to be had")
	}
}

// TestLocalLockExcludes runs a counter without atomics under a lock, beside waiters that give up at
// once.
func TestLocalLockExcludes(t *testing.T) {
	e := env.Real()
	table := newLockTable(e, 4)
	counter, got := 0, 0
	var mu sync.Mutex
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			w := lock.NewWaiter(e)
			mine := 0
			for i := range 2000 {
				limit := time.Minute
				if (i+g)%7 == 0 {
					limit = time.Microsecond
				}
				if _, ok := table.acquire(1, w, limit); !ok {
					continue
				}
				counter++
				mine++
				if !table.release(1, table.handover(1)) {
					table.release(1, false)
				}
			}
			mu.Lock()
			got += mine
			mu.Unlock()
		})
	}
	wg.Wait()
	if counter != got || got == 0 {
		t.Errorf("%d increments of %d holders", counter, got)
	}
}

// waitFor polls a condition that another goroutine brings about.
func waitFor(t *testing.T, cond func() bool) {
	t.Helper()
	e := env.Real()
	deadline := e.Now() + 30*time.Second
	for !cond() {
		if e.Now() > deadline {
			t.Fatal("the condition did not come about")
		}
		e.Yield()
	}
}
