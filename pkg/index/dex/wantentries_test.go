package dex

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
)

// TestOnlyLookupsWantEntries: a change READs its leaf whether there is an entry of its key or not.
// So it does not count for entries, and a lookup does.
func TestOnlyLookupsWantEntries(t *testing.T) {
	x, s := openedBy(t, "shm", index.Options{Uint64: true, MaxValueBytes: 16, NodeBytes: 256, CacheBytes: 16 << 10, Switches: map[string]bool{"offloading": false}})
	e := &x.rows
	const keys = 2000
	for n := range uint64(keys) {
		mustDo(t, s.Insert(scanKey(n), []byte("12345678")))
	}
	found := func(do func(key []byte) error) (n int64) {
		t.Helper()
		tried := 0
		for round := 0; round < 100 && tried < 20; round++ { // entries come and go
			for i := range uint64(keys) {
				_, err := s.Lookup(scanKey(i), nil)
				mustDo(t, err)
			}
			for i := range uint64(keys) {
				if _, kept := e.Get(scanKey(i), nil); kept || tried == 20 || !e.IsGhost(scanKey(i)) {
					continue
				}
				x.budget.ResetFound()
				mustDo(t, do(scanKey(i)))
				n += x.budget.EntriesFound()
				tried++
			}
		}
		if tried < 20 {
			t.Fatalf("%d ghosts: this tests nothing", tried)
		}
		return n
	}
	if n := found(func(key []byte) error { return s.Update(key, []byte("changed ")) }); n != 0 {
		t.Errorf("changes count for entries %d times", n)
	}
	if n := found(func(key []byte) error { _, err := s.Lookup(key, nil); return err }); n == 0 {
		t.Error("lookups do not count for entries")
	}
}
