package redo_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/pool/redo"
)

func opened(t testing.TB, o pooltest.Options) *pool.Pool { return pooltest.New(t, o).Open(t) }

func create(t testing.TB, p *pool.Pool, bytes int) *redo.Log {
	t.Helper()
	l, err := redo.Create(p, bytes)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestProviders appends from several goroutines on each transport and reads the log again. Of four
// waits three may be too short, so a batch is taken over from the one that posted it.
func TestProviders(t *testing.T) {
	for _, provider := range pooltest.Providers() {
		t.Run(provider, func(t *testing.T) {
			p := opened(t, pooltest.Options{Provider: provider})
			l := create(t, p, 512<<10)
			const goroutines, each = 4, 500
			var g sync.WaitGroup
			for id := range goroutines {
				a := l.Appender()
				g.Go(func() {
					for n := range each {
						at, err := a.Append(fmt.Appendf(nil, "%d %d", id, n))
						if err == nil && n%4 < 3 {
							err = a.Wait(at, time.Duration(n%100)*time.Microsecond)
						}
						if errors.Is(err, pool.ErrTimeout) {
							err = nil
						}
						if err == nil && n%4 == 3 {
							err = a.Wait(at, time.Minute)
						}
						if err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			g.Wait()
			var next [goroutines]int
			err := redo.Replay(p, l.Ref(), func(_ uint64, record []byte) error {
				var id, n int
				if _, err := fmt.Sscanf(string(record), "%d %d", &id, &n); err != nil || n != next[id] {
					return fmt.Errorf("record %q, want number %d", record, next[id])
				}
				next[id]++
				return nil
			})
			if err != nil || next != [goroutines]int{each, each, each, each} {
				t.Errorf("replayed %v, %v", next, err)
			}
			if c := l.Counts(); c.Records != goroutines*each || c.Batches > c.Records {
				t.Errorf("counts %+v", c)
			}
			if err := l.Close(true); err != nil {
				t.Error(err)
			}
			if err := redo.Replay(p, l.Ref(), nil); !errors.Is(err, pool.ErrFormat) {
				t.Errorf("replay of a log that was given back: %v", err)
			}
		})
	}
}

func TestFullAndTruncated(t *testing.T) {
	p := opened(t, pooltest.Options{})
	l := create(t, p, redo.MinBytes)
	a := l.Appender()
	record := bytes.Repeat([]byte("r"), 100)
	var positions []uint64
	for {
		at, err := a.Append(record)
		if errors.Is(err, redo.ErrFull) {
			break
		}
		must(t, err)
		must(t, a.Wait(at, time.Minute))
		positions = append(positions, at)
	}
	if n := redo.MinBytes / (16 + 4 + 100); len(positions) != n {
		t.Fatalf("%d records of 100 bytes fit, want %d", len(positions), n)
	}
	if got := l.Used(); got < redo.MinBytes*9/10 || got > redo.MinBytes+64 {
		t.Errorf("%d bytes in use", got)
	}
	l.Truncate(positions[2])
	for range 3 {
		_, err := a.Append(record)
		must(t, err)
	}
	last, err := a.Append(record[:30])
	if err == nil {
		must(t, a.Wait(last, time.Minute))
	}
	count := 0
	must(t, redo.Replay(p, l.Ref(), func(at uint64, _ []byte) error {
		if count++; at <= positions[2] {
			t.Errorf("a record at %d, though those up to %d are truncated", at, positions[2])
		}
		return nil
	}))
	if count == 0 {
		t.Error("nothing was replayed")
	}
	l.Truncate(1 << 62) // no more than what is durable
	if got := l.Used(); got > 600 {
		t.Errorf("%d bytes in use after all was truncated", got)
	}
	stop := errors.New("stop")
	if err := redo.Replay(p, l.Ref(), func(uint64, []byte) error { return stop }); err != nil && !errors.Is(err, stop) {
		t.Error(err)
	}
}

func TestBadInput(t *testing.T) {
	p := opened(t, pooltest.Options{})
	for _, bytes := range []int{0, redo.MinBytes - 8, redo.MinBytes + 4, redo.MaxBytes + 8} {
		if _, err := redo.Create(p, bytes); err == nil || !strings.Contains(err.Error(), "multiple of 8") {
			t.Errorf("a ring of %d bytes: %v", bytes, err)
		}
	}
	if _, err := redo.Create(p, 64<<20); err == nil || !strings.Contains(err.Error(), "chunk") {
		t.Errorf("a ring larger than a chunk: %v", err)
	}
	l := create(t, p, redo.MinBytes)
	if _, err := l.Appender().Append(make([]byte, redo.MinBytes/2)); err == nil {
		t.Error("a record of half the ring was taken")
	}
	ref, err := redo.DecodeRef(l.Ref().Encode(nil))
	if err != nil || ref != l.Ref() {
		t.Errorf("%+v, %v", ref, err)
	}
	for _, b := range [][]byte{nil, make([]byte, redo.RefBytes), make([]byte, redo.RefBytes+1)} {
		if _, err := redo.DecodeRef(b); err == nil {
			t.Errorf("%d zero bytes are a reference", len(b))
		}
	}
	other := l.Ref()
	other.Nonce++
	if err := redo.Replay(p, other, nil); !errors.Is(err, pool.ErrFormat) {
		t.Errorf("a log of another nonce: %v", err)
	}
}

// TestRingsOfOtherReleases: logs are found among the nodes in use, whichever size a release has
// made them with.
func TestRingsOfOtherReleases(t *testing.T) {
	p := opened(t, pooltest.Options{})
	small, large := create(t, p, redo.MinBytes), create(t, p, 64*redo.MinBytes)
	for _, c := range []struct {
		rings []int
		want  []pool.Addr
	}{
		{[]int{redo.MinBytes}, []pool.Addr{small.Ref().Addr}},
		{[]int{64 * redo.MinBytes, redo.MinBytes}, []pool.Addr{large.Ref().Addr, small.Ref().Addr}},
	} {
		if found := redo.Nodes(p, c.rings...); !slices.Equal(found, c.want) {
			t.Errorf("logs with rings of %v: found %v, not %v", c.rings, found, c.want)
		}
	}
}

// TestBroken loses the log's connection: everybody who waits is told, and so is everybody
// afterwards.
func TestBroken(t *testing.T) {
	p := opened(t, pooltest.Options{Provider: "tcp"})
	l := create(t, p, 64<<10)
	a, b := l.Appender(), l.Appender()
	at, err := a.Append([]byte("record"))
	must(t, err)
	must(t, a.Wait(at, time.Minute))
	cause := errors.New("given up")
	p.Condemn(cause)
	at, err = a.Append([]byte("record"))
	if err == nil {
		err = a.Wait(at, time.Minute)
	}
	if !errors.Is(err, cause) {
		t.Errorf("Wait: %v", err)
	}
	if _, err := b.Append([]byte("another")); !errors.Is(err, cause) {
		t.Errorf("Append: %v", err)
	}
	if err := b.Wait(at+1, time.Minute); !errors.Is(err, cause) {
		t.Errorf("Wait: %v", err)
	}
}

func TestCommitAllocatesNothing(t *testing.T) {
	l := create(t, opened(t, pooltest.Options{}), 512<<10)
	a, record := l.Appender(), make([]byte, 40)
	if n := testing.AllocsPerRun(2000, func() {
		at, err := a.Append(record)
		must(t, err)
		must(t, a.Wait(at, time.Minute))
	}); n != 0 {
		t.Errorf("%v allocations a record", n)
	}
}

// BenchmarkCommit appends a record of 40 bytes and waits for it, on shared memory.
func BenchmarkCommit(b *testing.B) {
	for _, goroutines := range []int{1, 2, 8} {
		b.Run(fmt.Sprint("goroutines=", goroutines), func(b *testing.B) {
			l := create(b, opened(b, pooltest.Options{ChunkBytes: 8 << 20}), 4<<20)
			record := make([]byte, 40)
			b.ReportAllocs()
			b.ResetTimer()
			var g sync.WaitGroup
			for range goroutines {
				a := l.Appender()
				g.Go(func() {
					for range b.N / goroutines {
						at, err := a.Append(record)
						for errors.Is(err, redo.ErrFull) {
							l.Truncate(l.Durable())
							at, err = a.Append(record)
						}
						if err == nil {
							err = a.Wait(at, time.Minute)
						}
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			g.Wait()
			c := l.Counts()
			b.ReportMetric(float64(c.Records)/float64(max(1, c.Batches)), "records/batch")
		})
	}
}
