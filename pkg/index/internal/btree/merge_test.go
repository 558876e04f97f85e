package btree

import (
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/index"
)

// TestAwaitMerges: as long as a session of the client merges, another one waits, up to its limit;
// afterwards it does not, also if a third one merges by then.
func TestAwaitMerges(t *testing.T) {
	tree, s := placed(t, nil)
	await := func() error {
		s.Begin()
		defer s.End()
		return s.AwaitMerges()
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(await())
	m, err := tree.acquireMerger(index.DefaultLimit)
	must(err)
	s.SetLimit(time.Millisecond)
	if await() == nil {
		t.Error("it did not wait for the merge that is under way")
	}
	tree.releaseMerger(m)
	must(await())
	s.SetLimit(index.DefaultLimit)
	tree.mu.Lock() // it sees the second merge, not the first one
	ended := make(chan error, 1)
	m.busy = true
	tree.mu.Unlock()
	go func() { ended <- await() }()
	for again := true; again; {
		tree.mu.Lock()
		m.turns++ // one merge ends and the next begins
		tree.mu.Unlock()
		select {
		case err := <-ended:
			must(err)
			again = false
		default:
		}
	}
	tree.releaseMerger(m)
}
