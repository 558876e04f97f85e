package smart_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/indextest"
	"github.com/dmindex/dmindex/pkg/index/smart"
)

// TestStructureOnThreads: see indextest.Threads. Some values are in blocks.
func TestStructureOnThreads(t *testing.T) {
	indextest.Threads(t, smart.Open, index.Options{MaxKeyBytes: 40, MaxValueBytes: 60, InlineBytes: 30})
}

// TestMergesBesideInserts: one client splits the head of a node and merges it again, by one key
// that comes and goes, while others insert and delete below. Nobody loses a pair.
func TestMergesBesideInserts(t *testing.T) {
	all, x := clients(t, 3, index.Options{MaxKeyBytes: 40, MaxValueBytes: 8})
	const rounds = 4000
	var wg sync.WaitGroup
	if err := all[0].Insert([]byte("stem of all 0"), nil); err != nil {
		t.Fatal(err)
	}
	if err := all[0].Insert([]byte("stem of all 1"), nil); err != nil {
		t.Fatal(err)
	}
	for n, s := range all {
		wg.Go(func() {
			for i := range rounds {
				key := []byte("stem of all others")[:5+i%4]
				key = append(key, byte(0x80+n))
				if n > 0 {
					key = fmt.Appendf(nil, "stem of all %c", 0x40+byte(n)+byte(2*(i%3)))
				}
				for _, op := range []struct {
					do    func() error
					there error
				}{{func() error { return s.Insert(key, nil) }, nil}, {func() error { return s.Delete(key) }, index.ErrNotFound}} {
					if err := op.do(); err != nil {
						t.Errorf("client %d, round %d, key %q: %v", n, i, key, err)
						return
					}
					if _, err := s.Lookup(key, nil); err != op.there {
						t.Errorf("client %d, round %d, lookup of %q: %v, want %v", n, i, key, err, op.there)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	if found := check(t, x); found.Pairs != 2 || found.Nodes > 6 {
		t.Errorf("%d pairs in %d nodes", found.Pairs, found.Nodes)
	}
}
