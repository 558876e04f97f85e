package dex_test

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// small opens an index with a cache in which inner nodes have no room, on memory servers that
// answer calls, and takes all keys.
func small(t testing.TB, provider string, e verbs.Executor, switches map[string]bool) index.Index {
	t.Helper()
	c := pooltest.New(t, pooltest.Options{Provider: provider, Chunks: 64, ChunkBytes: 1 << 20, Executor: e})
	x, err := dex.Open(c.Open(t), index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 256, CacheBytes: 6 << 10, Switches: switches})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.(index.Partitioned).Take(pool.Holding{Start: nil, Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	return x
}

// TestOffloadedReadsAreCurrent: sessions write ascending numbers under keys of their own and read
// all keys, while leaves come and go and memory servers look for keys. No session sees less than
// was acknowledged before it asked, or less than it saw before.
func TestOffloadedReadsAreCurrent(t *testing.T) {
	const keys, sessions, rounds = 2000, 4, 4000
	x := small(t, "tcp", index.Executor(), map[string]bool{"costAware": false})
	var acked [keys]atomic.Uint64
	var calls atomic.Uint64
	var all sync.WaitGroup
	for k := range uint64(sessions) {
		all.Go(func() {
			s, err := x.Session()
			if err != nil {
				t.Error(err)
				return
			}
			r := rand.New(rand.NewPCG(k, 5))
			var seen [keys]uint64
			key, value := make([]byte, 8), make([]byte, 8)
			for range rounds {
				n := r.Uint64N(keys)
				binary.BigEndian.PutUint64(key, n<<40)
				if n%sessions == k && r.IntN(2) == 0 {
					next := acked[n].Load() + 1
					binary.LittleEndian.PutUint64(value, next)
					if err := s.Upsert(key, value); err != nil {
						t.Error(err)
						return
					}
					acked[n].Store(next)
					continue
				}
				least := max(acked[n].Load(), seen[n])
				got, err := s.Lookup(key, nil)
				if err != nil && (err != index.ErrNotFound || least > 0) {
					t.Errorf("key %d, %d was acknowledged or seen: %v", n, least, err)
					return
				}
				if err == nil {
					seen[n] = binary.LittleEndian.Uint64(got)
				}
				if seen[n] < least {
					t.Errorf("key %d is %d, %d was acknowledged or seen before", n, seen[n], least)
					return
				}
			}
			c := s.Counters()
			calls.Add(c.Requests[verbs.Call])
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	t.Logf("%d operations, %d calls", sessions*rounds, calls.Load())
	if calls.Load() < sessions*rounds/10 {
		t.Errorf("%d calls in %d operations", calls.Load(), sessions*rounds)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestOffloadingSavesRoundTrips: with a cache that is too small for the nodes above the leaves, a
// lookup takes a round trip where it takes two without.
func TestOffloadingSavesRoundTrips(t *testing.T) {
	const keys = 4000
	cost := func(provider string, e verbs.Executor, switches map[string]bool) (roundTrips, calls float64) {
		x := small(t, provider, e, switches)
		s, err := x.Session()
		if err != nil {
			t.Fatal(err)
		}
		key := make([]byte, 8)
		for n := range uint64(keys) {
			binary.BigEndian.PutUint64(key, n<<40)
			if err := s.Upsert(key, key); err != nil {
				t.Fatal(err)
			}
		}
		r := rand.New(rand.NewPCG(1, 5))
		before := s.Counters()
		for range keys {
			binary.BigEndian.PutUint64(key, r.Uint64N(keys)<<40)
			if _, err := s.Lookup(key, nil); err != nil {
				t.Fatal(err)
			}
		}
		after := s.Counters()
		c := after.Sub(&before)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
		return float64(c.RoundTrips) / keys, float64(c.Requests[verbs.Call]) / keys
	}
	off, none := cost("tcp", index.Executor(), map[string]bool{"offloading": false})
	always, made := cost("tcp", index.Executor(), map[string]bool{"costAware": false})
	t.Logf("round trips of a lookup: %.2f without, %.2f with %.2f calls", off, always, made)
	if none != 0 || made < 0.3 || always > 0.8*off {
		t.Errorf("round trips of a lookup: %.2f without, with %.2f calls; %.2f with %.2f calls", off, none, always, made)
	}
	for provider, e := range map[string]verbs.Executor{"tcp": nil, "shm": index.Executor()} {
		if _, made := cost(provider, e, nil); made != 0 {
			t.Errorf("%s: %.2f calls a lookup to memory servers that answer none", provider, made)
		}
	}
}
