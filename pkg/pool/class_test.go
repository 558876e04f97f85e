package pool_test

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestSharedNeedsALock: a WRITE to what others can reach is refused without the lock, and nothing
// is posted.
func TestSharedNeedsALock(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{})
	p := c.Open(t)
	a, err := p.Allocate(256, pool.Nil)
	must(t, err)
	s := session(t, p)
	node := buffer(t, s, 256)
	must(t, s.Lock(a, node))
	node[0] = 7
	s.Write(pool.Shared, a, node)
	must(t, s.PostUnlock())
	before := s.Counters()
	s.Write(pool.Sole, a, node)
	s.Write(pool.Shared, a, node)
	if err := s.Post(); err == nil || !strings.Contains(err.Error(), "lock") {
		t.Errorf("a shared WRITE without a lock: %v", err)
	}
	if d := s.Counters().Sub(&before); d.Lists != 0 {
		t.Errorf("%d lists were posted", d.Lists)
	}
	if s := session(t, p); s.Err() == nil {
		s.Write(pool.Swap, a, buffer(t, s, 8))
		if err := s.Post(); err == nil {
			t.Error("a WRITE of class Swap is posted")
		}
	}
}

// TestQueuedAtomics: atomics travel in lists with READs and WRITEs, in order.
func TestQueuedAtomics(t *testing.T) {
	onProviders(t, func(t *testing.T, o pooltest.Options) {
		c := pooltest.New(t, o)
		p := c.Open(t)
		a, err := p.Allocate(256, pool.Nil)
		must(t, err)
		s := session(t, p)
		zero, first, second, third, fourth, read := buffer(t, s, 256), buffer(t, s, 8), buffer(t, s, 8), buffer(t, s, 8), buffer(t, s, 8), buffer(t, s, 24)
		s.Write(pool.Sole, a, zero)
		s.CompareSwap(a, 0, 5, first)
		s.CompareSwap(a, 0, 6, second) // in vain
		s.FetchAdd(a+8, 9, third)
		s.Fence(a)
		s.Write(pool.Sole, a+16, append(buffer(t, s, 8)[:0], 1, 0, 0, 0, 0, 0, 0, 0))
		s.Read(a, read)
		before := s.Counters()
		must(t, s.Post())
		if d := s.Counters().Sub(&before); d.RoundTrips != 1 || d.Requests[verbs.CompareSwap] != 2 || d.Requests[verbs.FetchAdd] != 1 {
			t.Errorf("counted as %+v", d)
		}
		want := func(what string, b []byte, value uint64) {
			t.Helper()
			if got := binary.NativeEndian.Uint64(b); got != value {
				t.Errorf("%s: %d, want %d", what, got, value)
			}
		}
		want("the first swap found", first, 0)
		want("the second one found", second, 5)
		want("the addition found", third, 0)
		want("swapped word", read, 5)
		want("sum", read[8:], 9)
		if got := binary.LittleEndian.Uint64(read[16:]); got != 1 {
			t.Errorf("behind the fence: %d, want 1", got)
		}
		if !p.Masked(a) {
			return
		}
		s.MaskedCompareSwap(a, 1, 0xf0, 1, 0xf0, fourth) // 5 has bit 0
		s.Read(a, read)
		must(t, s.Post())
		want("the masked swap found", fourth, 5)
		want("masked", read, 0xf5)
	})
}
