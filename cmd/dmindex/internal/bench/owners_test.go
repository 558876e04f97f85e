package bench

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/workload"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
)

// TestEqualWidths: each server's keys begin where they are said to, and the same rule finds the
// owner of an item and of its key.
func TestEqualWidths(t *testing.T) {
	for n := 1; n <= 7; n++ {
		for _, length := range []int{8, 12, 16, 40} {
			k, err := workload.NewKeys(length)
			if err != nil {
				t.Fatal(err)
			}
			o := &owners{keys: k, n: n}
			for s := range n {
				x := o.first(s)
				if have := o.ofNumber(x); have != s {
					t.Errorf("%d servers: keys of server %d begin with one of server %d", n, s, have)
				}
				if s > 0 && o.ofNumber(x-1) != s-1 {
					t.Errorf("%d servers: below the keys of server %d is one of server %d", n, s, o.ofNumber(x-1))
				}
				if s > 0 && (o.at(o.low(s)) != s || o.at(append(o.low(s), 0)) != s || !bytes.Equal(o.high(s-1), o.low(s))) {
					t.Errorf("%d servers: the keys of server %d begin elsewhere", n, s)
				}
			}
			var counts [8]int
			for item := range uint64(2000) {
				s := o.of(item)
				key := k.Append(nil, item)
				counts[s]++
				if o.at(key) != s || bytes.Compare(key, o.low(s)) < 0 || o.high(s) != nil && bytes.Compare(key, o.high(s)) >= 0 {
					t.Fatalf("%d servers: item %d is server %d's, its key %x is not", n, item, s, key)
				}
			}
			for s := range n {
				if want := 2000 / n; counts[s] < want*8/10 || counts[s] > want*12/10 {
					t.Errorf("server %d of %d has %d items of 2000", s, n, counts[s])
				}
			}
		}
	}
}

// ownersOf makes a bencher whose ranges have owners, on a fake cluster.
func ownersOf(t testing.TB, r *Run, f *fakeCluster) *bencher {
	b := fakeBencher(t, r, f)
	b.owners = &owners{keys: b.keys, n: r.ComputeServers}
	return b
}

// TestQueues: every operation stands in its owner's queue, in the order of the stream.
func TestQueues(t *testing.T) {
	r := smallRun(t, "A", "shm")
	r.ComputeServers = 3
	b := ownersOf(t, r, &fakeCluster{})
	p := newPhase(b, "test", b.stream.Ops[100:], 100, uint64(len(b.stream.Ops)-100))
	seen, most := make([]bool, p.length), 0.0
	for s, q := range p.queues {
		if !slices.IsSorted(q.of) || len(q.of) != int(q.length) {
			t.Errorf("queue %d is not in the order of the stream", s)
		}
		for _, place := range q.of {
			if o := p.ops[place]; b.owners.of(o.Item()) != s || seen[place] {
				t.Fatalf("operation %d is in queue %d", place, s)
			}
			seen[place] = true
		}
		most = max(most, float64(q.length))
	}
	if slices.Contains(seen, false) {
		t.Error("an operation is in no queue")
	}
	if have, want := skew(p.queues), most*3/float64(p.length); have != want || have <= 1 {
		t.Errorf("skew %f, want %f", have, want)
	}
}

// TestPhaseEndsWithItsLastQueue: as long as one server has something left, it counts.
func TestPhaseEndsWithItsLastQueue(t *testing.T) {
	b := ownersOf(t, smallRun(t, "A", "shm"), &fakeCluster{began: time.Now()})
	p := newPhase(b, "test", b.stream.Ops, 0, uint64(len(b.stream.Ops)))
	one, two := newClient(p, nil, 0), newClient(p, nil, 1)
	one.empty()
	one.empty() // another client of the same server
	if p.ended.Load() != 0 || p.queues[0].ended.Load() == 0 {
		t.Error("the phase ended with the first queue")
	}
	if two.empty(); p.ended.Load() == 0 || p.ended.Load() < p.queues[0].ended.Load() {
		t.Error("the phase did not end with the last queue")
	}
}

// TestRoutedScan: scans go on at the next owner, and end where they should.
func TestRoutedScan(t *testing.T) {
	r := smallRun(t, "C", "shm")
	r.ComputeServers, r.Clients = 5, 5
	b := ownersOf(t, r, &fakeCluster{})
	if err := errors.Join(b.prepare()); err != nil {
		t.Fatal(err)
	}
	var all [][]byte
	for item := range r.Records {
		all = append(all, b.keys.Append(nil, item))
	}
	slices.SortFunc(all, bytes.Compare)
	s, err := b.session(2)
	if err != nil {
		t.Fatal(err)
	}
	for from := 0; from < len(all); from += 37 {
		for _, limit := range []int{1, 100, 400, 5000} {
			for _, enough := range []int{1, 250, 1 << 30} {
				var got [][]byte
				err := s.Scan(all[from], limit, false, func(key, _ []byte) bool {
					got = append(got, bytes.Clone(key))
					return len(got) < enough
				})
				want := all[from:min(len(all), from+min(limit, enough))]
				if err != nil || !slices.EqualFunc(got, want, bytes.Equal) {
					t.Fatalf("scan of %d pairs from %d on, ended after %d: %d pairs, want %d: %v", limit, from, enough, len(got), len(want), err)
				}
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestRoutesAreKept: the fake refuses keys of others, so a run ends only if every operation went to
// the owner of its key. And a change that is lost is found where each server has operations of its
// own.
func TestRoutesAreKept(t *testing.T) {
	for _, w := range []string{"A", "E", "LOAD", "write-only"} {
		r := smallRun(t, w, "shm")
		r.ComputeServers = 3
		if _, err := ownersOf(t, r, &fakeCluster{}).all(); err != nil {
			t.Errorf("%s: %v", w, err)
		}
	}
	changes := map[string]int{}
	// of each item the load and one change are done, no more
	lost := &fakeCluster{fault: func(_ *fakeCluster, key, _ string) bool {
		changes[key]++
		return changes[key] > 2
	}}
	if _, err := ownersOf(t, smallRun(t, "A", "shm"), lost).all(); !errors.Is(err, workload.ErrLost) {
		t.Errorf("%v, want %v", err, workload.ErrLost)
	}
	// Nobody needs a session elsewhere, but the check: its scan, and its lookups on each of three
	// servers.
	f, r := &fakeCluster{}, smallRun(t, "A", "shm")
	r.ComputeServers = 3
	if _, err := ownersOf(t, r, f).all(); err != nil || f.sessions != 3*r.Clients+3+3*3 {
		t.Errorf("%d sessions: %v", f.sessions, err)
	}
}

// TestOwners runs the design whose ranges have owners, with checks, and looks at what the fabric
// counted.
func TestOwners(t *testing.T) {
	for _, transport := range []string{"sim", "shm", "tcp"} {
		for _, w := range []string{"C", "A", "E", "write-only"} {
			r := smallRun(t, w, transport)
			r.Design, r.BulkLoad, r.CacheBytes = "dex", w == "A", 1<<20
			if transport == "tcp" {
				r.Records, r.Ops, r.Warmup = 500, 500, 100
			}
			res := do(t, r)
			s := res.Summary()
			// Apart counts no operation that was under way when its queue was empty, of which each
			// client has one at most.
			least := s.Throughput * (1 - float64(r.Clients)/float64(r.Ops-r.Clients))
			if res.Latency.total != res.Ops || s.Throughput <= 0 || s.P50 <= 0 || s.Skew <= 1 || s.Skew > 1.5 || s.Apart < least {
				t.Errorf("%s over %s: %+v", w, transport, s)
			}
			switch v := s.Verbs; {
			case w == "C" && (v.Write != 0 || v.Log != 0 || s.LogBytesPerOp != 0 || v.Atomic != 0 || v.Read > 0.2):
				// all leaves fit
				t.Errorf("lookups take %+v", v)
			// Of few clients every upsert may have a batch of its own, and some batches bring the
			// log's tail, which is a WRITE more.
			case w == "write-only" && (v.Log < 0.2 || v.Log > 1.25 || v.Write > 0.5 || s.LogBytesPerOp < 20):
				t.Errorf("upserts take %+v, %.0f bytes of the log", v, s.LogBytesPerOp)
			}
		}
	}
}

// TestOwnersReplay: their simulated runs are functions of the seed, too.
func TestOwnersReplay(t *testing.T) {
	r := smallRun(t, "A", "sim")
	r.Design, r.CacheBytes = "dex", 1<<20
	a, b := do(t, r), do(t, r)
	if a.Throughput != b.Throughput || a.Latency != b.Latency || a.Stats.Verbs != b.Stats.Verbs {
		t.Errorf("%v operations a second, then %v", a.Throughput, b.Throughput)
	}
}

// TestCachePercent: the cache is a share of the leaves, of those that were loaded.
func TestCachePercent(t *testing.T) {
	for _, design := range []string{"dex", "sherman"} {
		r := smallRun(t, "C", "sim")
		r.Design, r.CachePercent, r.Records = design, 25, 4000
		res := do(t, r)
		leaves := res.ItemBytes * float64(r.Records)
		if share := float64(res.Stats.CacheBytes) / float64(r.ComputeServers) / leaves; share > 0.26 || design == "dex" && share < 0.15 {
			t.Errorf("%s: a cache of %.3f of the leaves", design, share)
		}
	}
}

// Take implements index.Partitioned.
func (x *fakeIndex) Take(h pool.Holding) error {
	if x.takes {
		return errors.New("taken twice")
	}
	for _, o := range x.f.takers {
		if o.takes && (o.high == "" || string(h.Start) < o.high) && (len(h.End) == 0 || o.low < string(h.End)) {
			return errors.New("taken by another one")
		}
	}
	x.f.takers = append(x.f.takers, x)
	x.takes, x.low, x.high = true, string(h.Start), string(h.End)
	return nil
}

// Give implements index.Partitioned. Of what was taken as a whole, parts may be given.
func (x *fakeIndex) Give(start, end []byte) (int, error) {
	if !x.takes || string(start) < x.low || x.high != "" && (len(end) == 0 || string(end) > x.high) {
		return 0, index.ErrNotOwner
	}
	x.takes = false
	return 0, nil
}

// Log implements index.Partitioned.
func (x *fakeIndex) Log() []byte { return nil }

// has reports whether a key was taken; without owners all were.
func (x *fakeIndex) has(key string) bool {
	return x.high == "" && x.low == "" || x.takes && strings.Compare(x.low, key) <= 0 && (x.high == "" || key < x.high)
}
