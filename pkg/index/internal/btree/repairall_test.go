package btree

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestRepairAllTogether: behind a memory server that another copy took the place of, all locks say
// Repair. Keys are served once all records were READ, so that takes few round trips.
func TestRepairAllTogether(t *testing.T) {
	const locks, most = 32 << 10, 8 // two for each 8,192
	c := pooltest.New(t, pooltest.Options{Servers: 1, Chunks: 40, Locks: locks})
	x, err := openToy(c.Open(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	s, err := x.session()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	table := c.Memory(1, verbs.RegionLocks)
	for i := range table {
		table[i] = 0xff
	}
	before := x.Pool.Counters().RoundTrips
	if err := s.RepairAll(); err != nil {
		t.Fatal(err)
	}
	if n := x.Pool.Counters().RoundTrips - before; n == 0 || n > most {
		t.Errorf("%d locks to repair take %d round trips, want 1 to %d", locks, n, most)
	}
}
