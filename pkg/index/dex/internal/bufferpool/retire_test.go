package bufferpool

import (
	"errors"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/pool"
)

// TestRetiredFrames: what is retired was written back, is not found any more, and is not used until
// it is revived.
func TestRetiredFrames(t *testing.T) {
	const node = 256
	c := New(env.Real(), testOptions(node, 240))
	n, h := len(c.frames), &c.shards[0]
	address := func(i int) pool.Addr { return pool.NewAddr(1, uint64(i+1)*node) }
	for i := range n {
		f, fresh, err := c.Reserve(address(i), true, nil)
		if err != nil || !fresh {
			t.Fatal(err, fresh)
		}
		f.SetRecLSN(uint64(i + 1)) // as if it were changed
		f.Unlock()
	}
	flushed := 0
	flush := func(f *frame.Frame) error { flushed++; f.SetRecLSN(0); return nil }
	bytes := c.Bytes()
	each := int64(8 * c.stride)
	got, err := c.Retire(20*each-1, flush)
	if err != nil || got != 20*each || flushed != 20 || h.live != n-20 || c.Bytes() != bytes-got {
		t.Fatalf("%d bytes of %d, %d flushed, %d of %d left, %v", got, 20*each, flushed, h.live, n, err)
	}
	if !h.frames[h.live-1].TryLock() {
		t.Fatal("the last frame is locked")
	}
	if got, err := c.Retire(each, flush); got != 0 || err != nil {
		t.Fatalf("%d bytes of a frame that somebody has, %v", got, err)
	}
	h.frames[h.live-1].Unlock()
	for i := range 4 * n {
		f, fresh, err := c.Reserve(address(n+i), true, flush)
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
	if left := c.Revive(5*each + 1); left != 1 || h.live != n-15 || len(h.free) != 5 {
		t.Fatalf("%d bytes are left, %d frames, %d of them free", left, h.live, len(h.free))
	}
	got, err = c.Retire(1<<40, flush)
	if err != nil || h.live != c.leastFrames(n) || got != int64(n-15-h.live)*each {
		t.Fatalf("%d bytes, %d frames are left, %v", got, h.live, err)
	}
	if left := c.Revive(1 << 40); h.live != n || left != 1<<40-int64(n-c.leastFrames(n))*each {
		t.Fatalf("%d bytes are left, %d frames", left, h.live)
	}
	// what came before one that cannot be written back is not counted any more
	failed := errors.New("cannot be written back")
	h.frames[n-3].SetRecLSN(1)
	bytes = c.Bytes()
	got, err = c.Retire(10*each, func(*frame.Frame) error { return failed })
	if err != failed || got != 2*each || c.Bytes() != bytes-got {
		t.Fatalf("%d bytes before an error, %d of %d are left, %v", got, c.Bytes(), bytes, err)
	}
}
