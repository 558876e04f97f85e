package dex

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// TestBytesMove: inner nodes get what they need at the cost of frames, which come back when there
// are fewer inner nodes; at no time does the cache have more bytes than it was given, and frames
// with changes that were not written back lose nothing when they go.
func TestBytesMove(t *testing.T) {
	const bound, keys = 96 << 10, 6000
	c := pooltest.New(t, pooltest.Options{Provider: "shm", Chunks: 64, ChunkBytes: 1 << 20})
	o, err := Open(c.Open(t), index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 256, CacheBytes: bound})
	if err != nil {
		t.Fatal(err)
	}
	x := o.(*dex)
	if err := x.Take(pool.Holding{Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	s, err := x.Session()
	if err != nil {
		t.Fatal(err)
	}
	frames := func() (n int) {
		n, _ = x.cache.Live()
		return n
	}
	within := func() {
		t.Helper()
		if n := x.Stats().CacheBytes; n > bound {
			t.Fatalf("the cache has %d bytes, %d at most", n, bound)
		}
		if n := x.cache.Bytes() + x.budget.State().Inner + x.budget.State().Spare; n > bound {
			t.Fatalf("%d bytes are given away, %d at most", n, bound)
		}
	}
	key := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n<<40) }
	all, first := frames(), x.budget.State().Inner
	for n := range uint64(keys) {
		if err := s.Insert(key(n), key(n)); err != nil {
			t.Fatal(err)
		}
		within()
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 4 * keys {
		n := r.Uint64N(keys)
		if r.IntN(2) == 0 {
			if err := s.Update(key(n), key(n)); err != nil {
				t.Fatal(err)
			}
		}
		if v, err := s.Lookup(key(n), nil); err != nil || binary.BigEndian.Uint64(v) != n<<40 {
			t.Fatalf("key %d: %x, %v", n, v, err)
		}
		within()
	}
	few, grown := frames(), x.budget.State().Inner
	t.Logf("%d frames, then %d; inner nodes may have %d bytes, then %d", all, few, first, grown)
	if few >= all || grown < first+10*x.budget.State().Step {
		t.Errorf("%d frames, %d at first; inner nodes may have %d bytes, %d at first", few, all, grown, first)
	}
	for n := range uint64(keys) {
		if n%600 != 0 {
			if err := s.Delete(key(n)); err != nil {
				t.Fatal(err)
			}
		}
		within()
	}
	for n := range uint64(keys) { // reads leaves, so bytes move
		_, _ = s.Lookup(key(n), nil)
	}
	if err := x.flushAll(true); err != nil {
		t.Fatal(err)
	}
	for n := range uint64(keys) {
		if _, err := s.Lookup(key(n), nil); (err == nil) != (n%600 == 0) {
			t.Fatalf("key %d: %v", n, err)
		}
		within()
	}
	t.Logf("in the end %d frames; inner nodes may have %d bytes and have %d", frames(), x.budget.State().Inner, x.tree.CacheBytes())
	if frames() <= few || x.budget.State().Inner >= grown {
		t.Errorf("%d frames in the end, %d before; inner nodes may have %d bytes, %d before", frames(), few, x.budget.State().Inner, grown)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
