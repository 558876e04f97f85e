package bench

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/workload"
	"github.com/dmindex/dmindex/pkg/index"
)

// nullSession answers at once: what is left is the driver's own time.
type nullSession struct {
	fakeSession
	bytes int
}

func (s *nullSession) Lookup(key, dst []byte) ([]byte, error) {
	return workload.AppendValue(dst, s.bytes, workload.Unscramble(binary.BigEndian.Uint64(key)), 0), nil
}
func (s *nullSession) Insert(_, _ []byte) error { return nil }
func (s *nullSession) Update(_, _ []byte) error { return nil }
func (s *nullSession) Upsert(_, _ []byte) error { return nil }
func (s *nullSession) Scan(start []byte, _ int, _ bool, visit func(key, value []byte) bool) error {
	visit(start, start)
	return nil
}

var _ index.Session = (*nullSession)(nil)

// nullClient drives a null session through a stream.
func nullClient(t testing.TB, workload string) (*client, *phase) {
	r := smallRun(t, workload, "shm")
	b := fakeBencher(t, r, &fakeCluster{began: time.Now()})
	p := newPhase(b, "test", b.stream.Ops, 0, uint64(len(b.stream.Ops)))
	p.report = newProgress(r.Progress, "test", false, 0, p.length)
	p.report.last = p.report.last.Add(time.Hour) // no line is due, however long it takes
	return newClient(p, &nullSession{bytes: r.ValueBytes}, 0), p
}

// TestDriverAllocatesNothing: whole phases, of every workload.
func TestDriverAllocatesNothing(t *testing.T) {
	for _, w := range workload.All {
		c, p := nullClient(t, w.Name)
		if n := testing.AllocsPerRun(3, func() { p.queues[0].next.Store(0); c.work() }); n > 0 {
			t.Errorf("%s: %.0f allocations in %d operations", w.Name, n, p.length)
		}
		if c.err != nil {
			t.Error(c.err)
		}
	}
}

// BenchmarkDriver is what the driver itself takes for an operation.
func BenchmarkDriver(b *testing.B) {
	for _, workload := range []string{"C", "A"} {
		b.Run(workload, func(b *testing.B) {
			c, p := nullClient(b, workload)
			b.ReportAllocs()
			for n := 0; n < b.N; n += int(p.length) {
				p.queues[0].next.Store(p.length - min(p.length, uint64(b.N-n)))
				c.work()
			}
		})
	}
}
