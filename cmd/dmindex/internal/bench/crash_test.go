package bench

import (
	"testing"
	"time"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/workload"
	"github.com/dmindex/dmindex/pkg/index"
)

// TestCrash: a compute server dies under each design, and content and structure are whole
// afterwards. Where ranges have owners its keys wait until the heir has them, and then are served.
func TestCrash(t *testing.T) {
	for _, name := range index.Names() {
		r := smallRun(t, "A", "sim")
		r.Design, r.BulkLoad, r.Records, r.Ops, r.Warmup, r.Clients, r.ComputeServers, r.MemoryServers = name, true, 500, 600, 100, 12, 3, 2
		var res Crashed
		var kept int
		err := r.inCluster(t.Context(), func(b *bencher) (err error) {
			res, err = b.measureCrash(time.Millisecond)
			kept = len(b.members)
			return err
		})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if res.Settled < time.Millisecond || kept != 0 {
			t.Errorf("%s: fenced after %v; %d clients are open", name, res.Settled, kept)
		}
		// the dead server's four clients may each have had an operation that nobody answers
		if n := res.Ops + res.answered; n > 600 || n < 596 || res.answered == 0 {
			t.Errorf("%s: %d and %d of 600 operations were answered", name, res.Ops, res.answered)
		}
		if d, _ := index.Lookup(name); !d.SharesAll && (res.Latency.Above(time.Millisecond) != 4 || res.Latency.Quantile(1) < res.Settled) {
			t.Errorf("%s: %d operations waited, the longest for %v; want one of each of 4 clients, for %v", name, res.Latency.Above(time.Millisecond), res.Latency.Quantile(1), res.Settled)
		}
	}
}

// TestCrashDoubt: what a dead client had under way may be there or not. What a client that lives
// wrote and was answered must be.
func TestCrashDoubt(t *testing.T) {
	r := smallRun(t, "A", "sim")
	r.Records, r.Ops, r.Warmup = 1, 3, 0
	k, err := workload.NewKeys(r.KeyBytes)
	if err != nil {
		t.Fatal(err)
	}
	b := newBencher(t.Context(), r, k)
	b.stream.Ops = []workload.Operation{workload.NewOperation(workload.Update, 0, 0), workload.NewOperation(workload.Update, 0, 0), workload.NewOperation(workload.Update, 0, 0)}
	b.behind, b.doubt = []uint32{1, 0, 1}, map[uint64]bool{1: true}
	b.findLast()
	key := b.keys.Append(nil, 0)
	// by the number of the operation; 0 = the load
	for writer, want := range []bool{false, false, true, true} {
		if err := b.checkPair(key, workload.AppendValue(nil, r.ValueBytes, 0, uint64(writer))); (err == nil) != want {
			t.Errorf("the value of operation %d is there: %v", writer, err)
		}
	}
	b.doubt = nil
	if err := b.checkPair(key, workload.AppendValue(nil, r.ValueBytes, 0, 2)); err == nil {
		t.Error("the value of an operation that nobody made is there")
	}
}
