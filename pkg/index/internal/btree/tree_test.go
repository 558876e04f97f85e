package btree

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

func fatal(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestOtherLeaves changes, looks up, scans and checks a tree whose leaves are no design's, by two
// clients.
func TestOtherLeaves(t *testing.T) {
	const keys, changes = 3000, 12_000
	c := pooltest.New(t, pooltest.Options{Servers: 2, Chunks: 40, ChunkBytes: 1 << 20})
	var trees [2]*toyTree
	var sessions [2]*toySession
	for i := range trees {
		var err error
		trees[i], err = openToy(c.Open(t), nil)
		fatal(t, err)
		sessions[i], err = trees[i].session()
		fatal(t, err)
	}
	r, want := rand.New(rand.NewPCG(1, 2)), map[uint64]bool{}
	fatal(t, trees[0].load(func(yield func(key, value []byte) bool) error {
		for n := range uint64(keys / 2) {
			yield(number(2*n), number(2*n))
			want[2*n] = true
		}
		return nil
	}))
	if err := trees[1].load(func(func(key, value []byte) bool) error { return nil }); err == nil {
		t.Error("a second load is not refused")
	}
	for n := range changes {
		s, key := sessions[n%2], r.Uint64N(keys)
		value := number(key)
		if n/3000%2 == 1 && key%16 != 0 { // shrinks
			value = nil
		}
		fatal(t, s.change(number(key), value))
		want[key] = value != nil
		found, err := sessions[r.IntN(2)].lookup(number(key))
		fatal(t, err)
		if (found != nil) != want[key] {
			t.Fatalf("key %d: found %x, want %v", key, found, want[key])
		}
	}
	var all []uint64
	for key, in := range want {
		if in {
			all = append(all, key)
		}
	}
	slices.Sort(all)
	for _, reverse := range []bool{false, true} {
		got, err := sessions[0].scan(nil, keys, reverse)
		fatal(t, err)
		if !slices.Equal(got, all) {
			t.Errorf("reverse %v: a scan finds %d keys, want %d", reverse, len(got), len(all))
		}
		slices.Reverse(all)
	}
	found, err := trees[1].check()
	fatal(t, err)
	if found.Pairs != uint64(len(all)) || found.Unlinked > 0 {
		t.Errorf("the tree is %+v, want %d pairs", found, len(all))
	}
	var merges uint64
	for i := range trees {
		merges += trees[i].Stats().Merges
		fatal(t, sessions[i].Close())
		fatal(t, trees[i].Close())
	}
	if merges == 0 {
		t.Error("nothing was merged")
	}
}
