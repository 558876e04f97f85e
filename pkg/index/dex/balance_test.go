package dex

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
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
		for i := range x.cache.shards {
			n += x.cache.shards[i].live
		}
		return n
	}
	within := func() {
		t.Helper()
		if n := x.Stats().CacheBytes; n > bound {
			t.Fatalf("the cache has %d bytes, %d at most", n, bound)
		}
		if n := x.cache.bytes.Load() + x.balance.inner + x.balance.spare; n > bound {
			t.Fatalf("%d bytes are given away, %d at most", n, bound)
		}
	}
	key := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n<<40) }
	all, first := frames(), x.balance.inner
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
	few, grown := frames(), x.balance.inner
	t.Logf("%d frames, then %d; inner nodes may have %d bytes, then %d", all, few, first, grown)
	if few >= all || grown < first+10*x.balance.step {
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
	t.Logf("in the end %d frames; inner nodes may have %d bytes and have %d", frames(), x.balance.inner, x.tree.CacheBytes())
	if frames() <= few || x.balance.inner >= grown {
		t.Errorf("%d frames in the end, %d before; inner nodes may have %d bytes, %d before", frames(), few, x.balance.inner, grown)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestRetiredFrames: what is retired was written back, is not found any more, and is not used until
// it is revived.
func TestRetiredFrames(t *testing.T) {
	with, err := techniquesOf(nil)
	if err != nil {
		t.Fatal(err)
	}
	const node = 256
	c, _ := cachesOf(env.Real(), with, 100_000, node)
	c.revive(1 << 40) // those for which entries would have to give bytes
	n, h := len(c.frames), &c.shards[0]
	address := func(i int) pool.Addr { return pool.NewAddr(1, uint64(i+1)*node) }
	for i := range n {
		f, fresh, err := c.reserve(address(i), true, nil)
		if err != nil || !fresh {
			t.Fatal(err, fresh)
		}
		f.SetRecLSN(uint64(i + 1)) // as if it were changed
		f.Unlock()
	}
	flushed := 0
	flush := func(f *frame.Frame) error { flushed++; f.SetRecLSN(0); return nil }
	bytes := c.bytes.Load()
	each := int64(8 * c.stride)
	got, err := c.retire(20*each-1, flush)
	if err != nil || got != 20*each || flushed != 20 || h.live != n-20 || c.bytes.Load() != bytes-got {
		t.Fatalf("%d bytes of %d, %d flushed, %d of %d left, %v", got, 20*each, flushed, h.live, n, err)
	}
	if !h.frames[h.live-1].TryLock() {
		t.Fatal("the last frame is locked")
	}
	if got, err := c.retire(each, flush); got != 0 || err != nil {
		t.Fatalf("%d bytes of a frame that somebody has, %v", got, err)
	}
	h.frames[h.live-1].Unlock()
	for i := range 4 * n {
		f, fresh, err := c.reserve(address(n+i), true, flush)
		if err != nil {
			t.Fatal(err)
		}
		if fresh {
			if int(h.at(f)) >= h.live {
				t.Fatalf("frame %d is used, of %d", h.at(f), h.live)
			}
			f.Unlock()
		}
	}
	if left := c.revive(5*each + 1); left != 1 || h.live != n-15 || len(h.free) != 5 {
		t.Fatalf("%d bytes are left, %d frames, %d of them free", left, h.live, len(h.free))
	}
	got, err = c.retire(1<<40, flush)
	if err != nil || h.live != h.least() || got != int64(n-15-h.live)*each {
		t.Fatalf("%d bytes, %d frames are left, %v", got, h.live, err)
	}
	if left := c.revive(1 << 40); h.live != n || left != 1<<40-int64(n-h.least())*each {
		t.Fatalf("%d bytes are left, %d frames", left, h.live)
	}
	// what came before one that cannot be written back is not counted any more
	failed := errors.New("cannot be written back")
	h.frames[n-3].SetRecLSN(1)
	bytes = c.bytes.Load()
	got, err = c.retire(10*each, func(*frame.Frame) error { return failed })
	if err != failed || got != 2*each || c.bytes.Load() != bytes-got {
		t.Fatalf("%d bytes before an error, %d of %d are left, %v", got, c.bytes.Load(), bytes, err)
	}
}
