package redo_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/pool/redo"
)

// TestReserve appends records of random lengths, some of which are taken back later by a record of
// the reserve, ends batches at random moments, and truncates now and then. However full the log is,
// a record of the reserve is appended. When nothing is reserved the ring is all there.
func TestReserve(t *testing.T) {
	const owners, longest = 10, 60
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 4))
	p := opened(t, pooltest.Options{})
	l := create(t, p, redo.MinBytes)
	var all [owners]*redo.Appender
	var owes [owners]bool
	for i := range all {
		if all[i] = l.Appender(); !l.Reserve(longest) {
			t.Fatalf("there is no room for the reserve of appender %d", i)
		}
	}
	full, reserved, last := 0, 0, uint64(0)
	appended := func(a *redo.Appender, at uint64, err error) bool {
		if err == nil {
			last = at
			if r.IntN(2) == 0 {
				must(t, a.Wait(at, time.Minute))
			}
		} else if !errors.Is(err, redo.ErrFull) {
			t.Fatalf("seed %d: %v", seed, err)
		}
		return err == nil
	}
	record := make([]byte, 300)
	for range 20_000 {
		i, n := r.IntN(owners), r.IntN(len(record))
		a := all[i]
		switch {
		case owes[i] && r.IntN(2) == 0:
			at, err := a.AppendReserved(record[:r.IntN(longest+1)])
			if reserved++; !appended(a, at, err) {
				t.Fatalf("seed %d: a record of the reserve has no room; %d bytes are in use", seed, l.Used())
			}
			owes[i] = false
		default:
			if r.IntN(2) == 0 {
				n /= 10
			}
			at, err := a.Append(record[:n])
			if appended(a, at, err) {
				owes[i] = owes[i] || r.IntN(3) > 0
			} else if full++; r.IntN(4) == 0 {
				must(t, a.Wait(last, time.Minute))
				l.Truncate(last - uint64(r.IntN(1000)))
			}
		}
	}
	if full < 100 || reserved < 100 {
		t.Errorf("seed %d: full %d times, %d records of the reserve: this tests nothing", seed, full, reserved)
	}
	for range owners {
		l.Unreserve(longest)
	}
	a := all[0]
	must(t, a.Wait(last, time.Minute))
	l.Truncate(last)
	if at, err := a.Append(make([]byte, redo.MinBytes/2-4)); err != nil {
		t.Fatalf("seed %d: half of an empty ring: %v", seed, err)
	} else {
		must(t, a.Wait(at, time.Minute))
	}
}

// TestReserveOnThreads: a record of the reserve finds room whatever other threads append to a log
// that is full.
func TestReserveOnThreads(t *testing.T) {
	p := opened(t, pooltest.Options{})
	l := create(t, p, redo.MinBytes)
	var stop atomic.Bool
	var others sync.WaitGroup
	for range 2 {
		a := l.Appender()
		others.Go(func() {
			last := uint64(0)
			for record := make([]byte, 8); !stop.Load(); {
				at, err := a.Append(record)
				switch {
				case err == nil:
					last = at
				case errors.Is(err, redo.ErrFull): // nobody else posts what it has appended
					err = a.Wait(last, time.Minute)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	a := l.Appender()
	if !l.Reserve(40) {
		t.Fatal("there is no room for a reserve")
	}
	for first, taken := make([]byte, 20), 0; taken < 5000 && !t.Failed(); {
		if _, err := a.Append(first); err == nil {
			taken++
			at, err := a.AppendReserved(make([]byte, 40))
			if err != nil {
				t.Errorf("after %d records that were taken back: %v", taken, err)
				break
			}
			must(t, a.Wait(at, time.Minute))
		} else if !errors.Is(err, redo.ErrFull) {
			t.Error(err)
		}
		l.Truncate(l.Durable())
	}
	stop.Store(true)
	others.Wait()
}

// TestReserveIsBounded: a quarter of the ring is set aside at most, and comes back.
func TestReserveIsBounded(t *testing.T) {
	l := create(t, opened(t, pooltest.Options{}), redo.MinBytes)
	n := 0
	for ; l.Reserve(100); n++ {
		if n > redo.MinBytes/4/100 {
			t.Fatal("more than a quarter of the ring is set aside")
		}
	}
	l.Unreserve(100)
	if n == 0 || !l.Reserve(100) {
		t.Errorf("what %d appenders had does not come back", n)
	}
}

// TestTryAppend: it posts nothing and waits for nothing. Room posts what it needs, waits where too
// many batches are under way, and no longer than its limit. A full ring is told, not waited for.
func TestTryAppend(t *testing.T) {
	p := opened(t, pooltest.Options{})
	l := create(t, p, 512<<10)
	a := l.Appender()
	record := make([]byte, 400)
	fill := func() {
		t.Helper()
		before := l.Counts().Batches
		for n := 0; ; n++ {
			if _, err := a.TryAppend(record); err == redo.ErrBusy {
				break
			} else if err != nil || n > 1000 {
				t.Fatalf("after %d records: %v", n, err)
			}
		}
		if n := l.Counts().Batches; n != before {
			t.Fatalf("%d batches were posted by who does not wait", n-before)
		}
	}
	fill()
	must(t, a.Room(len(record), time.Minute))
	if n := l.Counts().Batches; n != 1 {
		t.Fatalf("%d batches were posted to make room", n)
	}
	position, err := a.TryAppend(record)
	must(t, err)
	must(t, a.Wait(position, time.Minute))

	var lanes []*redo.Appender
	for before := l.Counts().Batches; ; before++ {
		b := l.Appender()
		position, err := b.TryAppend(record)
		must(t, err)
		if b.Start(position); l.Counts().Batches == before {
			break
		}
		lanes = append(lanes, b)
	}
	fill()
	if err := a.Room(len(record), time.Millisecond); !errors.Is(err, pool.ErrTimeout) {
		t.Fatalf("with %d batches under way: %v", len(lanes), err)
	}
	for _, b := range lanes {
		b.Finish(nil)
	}
	must(t, a.Room(len(record), time.Minute))

	small := create(t, p, redo.MinBytes)
	a = small.Appender()
	for err == nil {
		if _, err = a.TryAppend(record); err == redo.ErrBusy {
			err = a.Room(len(record), time.Minute)
		}
	}
	if !errors.Is(err, redo.ErrFull) {
		t.Fatal(err)
	}
	must(t, a.Room(len(record), 0))
}
