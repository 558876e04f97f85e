package dex

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/index"
)

// TestBesideAllocatesNothing: nor does a change whose record is posted beside a READ, made or
// refused.
func TestBesideAllocatesNothing(t *testing.T) {
	x, s := opened(t, index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 256, CacheBytes: 24 << 10, Switches: map[string]bool{"offloading": false}})
	for n := range uint64(2 * scanned) {
		mustDo(t, s.Upsert(scanKey(n), []byte("first...")))
	}
	next, value := 0, []byte("second..")
	var keys [2 * scanned][]byte
	for n := range keys {
		keys[n] = scanKey(uint64(n))
	}
	change := func() {
		next = (next + 101) % len(keys)
		mustDo(t, s.Update(keys[next], value))
		next = (next + 101) % len(keys)
		if err := s.Insert(keys[next], value); err != index.ErrExists {
			t.Fatal(err)
		}
	}
	for range keys { // the queue of dirty frames grows to its size
		change()
	}
	before := x.wal.Stats()
	if n := testing.AllocsPerRun(2000, change); n != 0 && !invariants.Enabled {
		t.Errorf("%v allocations for two changes", n)
	}
	after := x.wal.Stats()
	made, refused := after.Made-before.Made, after.Refused-before.Refused
	if made < 1000 || refused < 1000 {
		t.Errorf("of 2000 changes %d had their record beside a READ, and %d of 2000 that are refused", made, refused)
	}
}
