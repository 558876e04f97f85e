package computeserver

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/computeserver/internal/memindex"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
)

// TestDyingSessionsReopenTheIndex: sessions can be made, but each dies at its first use, as over a connection that is gone.
func TestDyingSessionsReopenTheIndex(t *testing.T) {
	e := env.Real()
	store := memindex.New(e, 8, 8)
	var opened atomic.Int32
	g := newEngine(e, func() (index.Index, error) { opened.Add(1); return store.Open(), nil }, time.Second, 2, 2, t.Logf)
	e.Go("engine", g.run)
	t.Cleanup(func() { g.halt(10 * time.Second) })
	gone := errors.New("connection reset")
	use := func(err error) bool {
		s, failed := g.borrow(5 * time.Second)
		if failed != nil {
			return false
		}
		g.repay(s, err)
		return true
	}
	for i := range 2 * deathsTolerated { // answers in between say that the index is well
		if !use(gone) || !use(index.ErrNotFound) {
			t.Fatalf("no session at round %d", i)
		}
	}
	if n := opened.Load(); n != 1 {
		t.Fatalf("the index was opened %d times while it was well", n)
	}
	for range deathsTolerated {
		use(gone)
	}
	awaitTrue(t, "the index is opened anew and used", func() bool { return opened.Load() == 2 && use(nil) })
}
