package dex

import (
	"runtime"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/internal/ranges"
	"github.com/dmindex/dmindex/pkg/pool"
)

// TestGiveWritesManyAtOnce: the leaves that are written back share round trips, those of other
// ranges stay as they are, and nothing is lost. All changes take less than half of the log, or its
// own goroutine would write leaves back.
func TestGiveWritesManyAtOnce(t *testing.T) {
	x, s := opened(t, index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 256, CacheBytes: 1 << 20})
	for n := range uint64(3 * scanned) {
		mustDo(t, s.Upsert(scanKey(n), []byte("first...")))
	}
	again(t, x, 2)
	change := func(value string) {
		for n := range uint64(3 * scanned) {
			if n%3 == 2 {
				if value == "second.." {
					mustDo(t, s.Delete(scanKey(n)))
				}
				continue
			}
			mustDo(t, s.Upsert(scanKey(n), []byte(value)))
		}
	}
	change("second..")
	middle := scanKey(2 * scanned)
	before := x.pool.Counters()
	written, err := x.Give(nil, middle)
	mustDo(t, err)
	after := x.pool.Counters()
	if trips := after.RoundTrips - before.RoundTrips; written < 50 || trips > uint64(written)/5 {
		t.Errorf("%d leaves were written back, in %d round trips", written, trips)
	}
	dirty := 0
	mustDo(t, x.cache.Each(func(f *frame.Frame) error {
		var v frame.View
		switch {
		case f.Addr() == pool.Nil:
		case f.Open(&v) && within(f, &v, ranges.Of(ranges.Span{End: middle})):
			t.Fatalf("the leaf at %x is kept, its range was given away", f.Addr())
		case f.RecLSN() != 0:
			dirty++
		}
		return nil
	}))
	if dirty == 0 {
		t.Error("leaves of the other range were written back, too")
	}
	written, err = x.Give(middle, nil)
	mustDo(t, err)
	if written != dirty {
		t.Errorf("%d leaves were dirty, %d were written back", dirty, written)
	}
	mustDo(t, x.Take(pool.Holding{Epoch: 3}))
	for n := range uint64(3 * scanned) {
		value, err := s.Lookup(scanKey(n), nil)
		if n%3 == 2 {
			if err != index.ErrNotFound {
				t.Fatalf("key %d was deleted, and is %q: %v", n, value, err)
			}
		} else if err != nil || string(value) != "second.." {
			t.Fatalf("key %d is %q: %v", n, value, err)
		}
	}
}

// TestGiveTakesEntriesThatAnEvictionLeft: who evicts a leaf of the range while it is given away
// leaves entries of it, and nothing of them is there afterwards.
func TestGiveTakesEntriesThatAnEvictionLeft(t *testing.T) {
	x, s := opened(t, index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 256, CacheBytes: 1 << 20})
	for n := range uint64(scanned) {
		mustDo(t, s.Upsert(scanKey(n), []byte("first...")))
	}
	var last *frame.Frame // of those that Give comes to
	mustDo(t, x.cache.Each(func(f *frame.Frame) error {
		if f.Addr() != pool.Nil {
			last = f
		}
		return nil
	}))
	if !last.TryLock() {
		t.Fatal("somebody has a leaf that nobody uses")
	}
	s.b.Begin()
	mustDo(t, s.back(last))
	s.b.End()
	ended := make(chan error, 1)
	go func() {
		_, err := x.Give(nil, nil)
		ended <- err
	}()
	for left := 2; left > 1; runtime.Gosched() { // until it is at the last one
		select {
		case err := <-ended:
			t.Fatal(err)
		default:
		}
		left = 0
		mustDo(t, x.cache.Each(func(f *frame.Frame) error {
			if f.Addr() != pool.Nil {
				left++
			}
			return nil
		}))
	}
	entries := func() (n int) {
		for i := range uint64(scanned) {
			if _, ok := x.rows.Get(scanKey(i), nil); ok {
				n++
			}
		}
		return n
	}
	s.demote(last)
	if entries() == 0 {
		t.Error("the leaf has left no entries")
	}
	x.cache.Drop(last)
	mustDo(t, <-ended)
	if n := entries(); n > 0 {
		t.Errorf("%d entries are there, their range was given away", n)
	}
}
