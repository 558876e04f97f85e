package memserver

import (
	"context"
	"testing"

	"github.com/dmindex/dmindex/memserver/internal/core"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/env"
)

// TestWaitsForMaps: calls wait within a bound. Where more do, one ends of the index that has most:
// calls of an index that has few go on.
func TestWaitsForMaps(t *testing.T) {
	a, err := core.NewAccounts(env.Real(), nil, ledger.Shape{Chunks: 64, ChunkBytes: 1 << 20, Locks: 1 << 16, Slots: 3})
	if err != nil {
		t.Fatal(err)
	}
	for _, index := range []string{"a", "b", "few"} {
		err := a.Change(core.Grow, func(l *ledger.Ledger) error {
			_, err := l.Admit(index, 1, 0)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	w := newWaits()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan string, 3*maxMapWaiters)
	begun, waiting := map[string]int{}, func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.calls
	}
	wait := func(index string) {
		begun[index]++
		go func() {
			if _, _, err := w.partitionMap(ctx, a, index, 1); err != nil {
				t.Errorf("a wait for index %s: %v", index, err)
			}
			ended <- index
		}()
	}
	wait("few")
	for range maxMapWaiters - 1 {
		wait("a")
	}
	until(func() bool { return waiting() == maxMapWaiters })
	for range maxMapWaiters {
		wait("b")
	}
	for range maxMapWaiters {
		index := <-ended
		if begun[index]--; index == "few" {
			t.Fatal("the wait of the index with one call ended")
		}
	}
	until(func() bool { return waiting() == maxMapWaiters })
	if a, b := begun["a"], begun["b"]; a-b > 1 || b-a > 1 {
		t.Errorf("%d calls of the one index wait and %d of the other", a, b)
	}
	cancel()
	for range maxMapWaiters {
		<-ended
	}
	if w.calls != 0 || len(w.waiting) != 0 || len(w.news) != 0 {
		t.Errorf("%d calls of %d indexes stay, and channels of %d", w.calls, len(w.waiting), len(w.news))
	}
}
