package bench

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/workload"
	"github.com/dmindex/dmindex/pkg/index"
)

// do does a run that must succeed.
func do(t *testing.T, r *Run) *Result {
	t.Helper()
	res, err := r.Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// TestEveryTransport does every kind of operation on each transport, checks included, and looks at
// what the fabric counted.
func TestEveryTransport(t *testing.T) {
	for _, transport := range []string{"sim", "shm", "tcp"} {
		t.Run(transport, func(t *testing.T) {
			for _, workload := range []string{"C", "F", "E", "write-only"} {
				r := smallRun(t, workload, transport)
				if transport == "tcp" {
					r.Records, r.Ops, r.Warmup = 500, 500, 100
				}
				res := do(t, r)
				s := res.Summary()
				if s.Throughput <= 0 || s.P50 <= 0 || s.P99 < s.P50 || s.P999 < s.P99 || s.MemoryBytesPerItem < 16 || s.CacheHitRate <= 0 || res.CPU <= 0 {
					t.Errorf("%s: %+v", workload, s)
				}
				if res.Latency.total != res.Ops || res.Stats.Operations < res.Ops {
					t.Errorf("%s: %d latencies and %d operations, want %d", workload, res.Latency.total, res.Stats.Operations, res.Ops)
				}
				delegated := float64(res.Stats.Delegated) / float64(res.Ops)
				if v, reads := s.Verbs, s.Verbs.Read+delegated; workload == "C" && (reads < 1 || reads > 1.1 || v.Write != 0 || v.Atomic != 0 || s.BytesPerOp < 1024*v.Read) {
					t.Errorf("lookups take %+v, %.0f bytes; %.3f READs are delegated", v, s.BytesPerOp, delegated)
				} else if workload == "write-only" && (v.Write < 1 || v.Atomic < 0.5) {
					t.Errorf("upserts take %+v", v)
				}
			}
		})
	}
}

// TestBulkLoad: records that were bulk loaded are there, in fewer nodes; long values too, and in
// text keys.
func TestBulkLoad(t *testing.T) {
	for _, transport := range []string{"sim", "shm"} {
		for _, w := range []string{"A", "F", "write-only"} {
			r := smallRun(t, w, transport)
			inserted := do(t, r)
			r = smallRun(t, w, transport)
			r.BulkLoad = true
			if res := do(t, r); w != "write-only" && res.ItemBytes >= inserted.ItemBytes {
				t.Errorf("%s over %s: %.1f bytes for each item that was bulk loaded, %.1f for those that were inserted", w, transport, res.ItemBytes, inserted.ItemBytes)
			}
			r = smallRun(t, w, transport)
			r.BulkLoad, r.Uint64, r.KeyBytes, r.ValueBytes = true, false, 40, 500
			do(t, r)
		}
	}
}

// TestSimulatedRunsReplay: a simulated run is a function of its seed.
func TestSimulatedRunsReplay(t *testing.T) {
	a, b := do(t, smallRun(t, "A", "sim")), do(t, smallRun(t, "A", "sim"))
	if a.Throughput != b.Throughput || a.Latency != b.Latency || a.Stats.Verbs != b.Stats.Verbs {
		t.Errorf("%v operations a second, then %v", a.Throughput, b.Throughput)
	}
}

// TestRunEndsEarly: a context that ends, ends the run.
func TestRunEndsEarly(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := smallRun(t, "C", "sim").Do(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
}

// TestCorruptedIndexIsCaught changes a loaded index behind the run's back.
func TestCorruptedIndexIsCaught(t *testing.T) {
	r := smallRun(t, "C", "sim")
	b := fakeBencher(t, r, nil)
	s, err := newSimulated(r, mustDesign(t, "sherman"))
	if err != nil {
		t.Fatal(err)
	}
	b.cluster = s
	err = s.run(func() error {
		if _, err := b.all(); err != nil {
			return err
		}
		m, err := s.open(0, r.options(0))
		if err != nil {
			return err
		}
		session, err := m.Session()
		if err != nil {
			return err
		}
		key := b.keys.Append(nil, 17)
		// the value of another item
		if err := session.Update(key, workload.AppendValue(nil, r.ValueBytes, 18, 0)); err != nil {
			return err
		}
		if _, err := b.checkScan(session); !errors.Is(err, workload.ErrForeign) {
			t.Errorf("another item's value: %v, want %v", err, workload.ErrForeign)
		}
		if err := errors.Join(session.Delete(key), session.Close()); err != nil {
			return err
		}
		b.members = []member{m}
		if _, err := b.check(); err == nil || !strings.Contains(err.Error(), "1000 were loaded") {
			t.Errorf("an item is gone, and the check says %v", err)
		}
		return m.close()
	})
	if err != nil {
		t.Fatal(err)
	}
}

func mustDesign(t *testing.T, name string) index.Design {
	t.Helper()
	d, err := index.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestBadRuns(t *testing.T) {
	for _, c := range []struct {
		change func(r *Run)
		want   string
	}{
		{func(r *Run) { r.Records = 0 }, "give --records 1 or more"},
		{func(r *Run) { r.Ops = 0 }, "give --ops 1 or more"},
		{func(r *Run) { r.Design = "btree" }, `unknown design "btree": there are [`},
		{func(r *Run) { r.Design, r.Records = "dex", 1<<33 }, "with owners of ranges at most 4294967295"},
		{func(r *Run) { r.Transport = "udp" }, `unknown transport "udp": there are sim, shm, tcp, ibv`},
		{func(r *Run) { r.Clients = 1 }, "each needs one at least"},
		{func(r *Run) { r.ValueBytes = 4 }, "at least 8 are needed"},
		{func(r *Run) { r.KeyBytes = 4 }, "at least 8 are needed"},
		{func(r *Run) { r.ScanFrom = 7; r.ScanTo = 3 }, "scans of 7 to 3 pairs"},
		{func(r *Run) { r.Records = 1 << 40 }, "give fewer --records or --ops"},
		{func(r *Run) { r.Switches = map[string]bool{"warp": true, "boost": false} }, "has no switch boost, warp: "},
	} {
		r := smallRun(t, "C", "sim")
		c.change(r)
		_, err := r.Do(t.Context())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
		if checked := r.Check(); err == nil || checked == nil {
			t.Errorf("Check says %v", checked)
		}
	}
}

// TestMessageRate: a message takes as long as the rate says, in each direction, and a run without
// one has the model's.
func TestMessageRate(t *testing.T) {
	latency := func(rate float64) time.Duration {
		r := smallRun(t, "C", "sim")
		r.Design, r.Records, r.Clients, r.ComputeServers, r.MemoryServers, r.MessageRate = "sherman", 2000, 1, 1, 1, rate
		return time.Duration(do(t, r).Latency.Quantile(0.5))
	}
	// two messages of 2 us in place of 1 us
	if took := latency(0.5) - latency(1); took < 1900*time.Nanosecond || took > 2100*time.Nanosecond {
		t.Errorf("half the rate takes %v more", took)
	}
	if model, same := latency(0), latency(77); model != same {
		t.Errorf("%v with the model's rate, %v with the same given", model, same)
	}
}
