package redo_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/pool/redo"
)

// TestRoomIsKept appends records of random lengths, some of which keep room for a later one, ends
// batches at random moments, and truncates now and then, also what kept room. However full the log
// is, a record for which there is room is appended. When nothing is kept the ring is all there.
func TestRoomIsKept(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 4))
	p := opened(t, pooltest.Options{})
	l := create(t, p, redo.MinBytes)
	a := l.Appender()
	var later []int
	full, kept, last := 0, 0, uint64(0)
	appended := func(at uint64, err error) bool {
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
		switch n := r.IntN(len(record)); {
		case r.IntN(3) == 0 && len(later) < 20:
			if keeps := 1 + r.IntN(60); appended(a.AppendKeeping(record[:n], keeps)) {
				later = append(later, keeps)
			}
		case r.IntN(3) == 0 && len(later) > 0:
			i := r.IntN(len(later))
			if r.IntN(3) == 0 {
				l.Release(later[i])
			} else if kept++; !appended(a.AppendKept(record[:later[i]])) {
				t.Fatalf("seed %d: a record of %d bytes, for which room was kept, has none; %d bytes are in use", seed, later[i], l.Used())
			}
			later = append(later[:i], later[i+1:]...)
		case !appended(a.Append(record[:n/10])):
			if full++; r.IntN(4) == 0 {
				must(t, a.Wait(last, time.Minute))
				l.Truncate(last - uint64(r.IntN(1000)))
			}
		}
	}
	if full < 100 || kept < 100 {
		t.Errorf("seed %d: full %d times, %d records in kept room: this tests nothing", seed, full, kept)
	}
	for _, n := range later {
		l.Release(n)
	}
	must(t, a.Wait(last, time.Minute))
	l.Truncate(last)
	if at, err := a.Append(make([]byte, redo.MinBytes/2-4)); err != nil {
		t.Fatalf("seed %d: half of an empty ring: %v", seed, err)
	} else {
		must(t, a.Wait(at, time.Minute))
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
			if _, err := a.TryAppend(record, 0); err == redo.ErrBusy {
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
	position, err := a.TryAppend(record, 0)
	must(t, err)
	must(t, a.Wait(position, time.Minute))

	var lanes []*redo.Appender
	for before := l.Counts().Batches; ; before++ {
		b := l.Appender()
		position, err := b.TryAppend(record, 0)
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
		b.Finish()
	}
	must(t, a.Room(len(record), time.Minute))

	small := create(t, p, redo.MinBytes)
	a = small.Appender()
	for err == nil {
		if _, err = a.TryAppend(record, 0); err == redo.ErrBusy {
			err = a.Room(len(record), time.Minute)
		}
	}
	if !errors.Is(err, redo.ErrFull) {
		t.Fatal(err)
	}
	must(t, a.Room(len(record), 0))
}
