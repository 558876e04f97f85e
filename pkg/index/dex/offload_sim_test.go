package dex_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// TestCostRule: what is left to the cost rule is nearly as fast as the better of always asking and
// never, on memory servers that have time and on one that has none.
func TestCostRule(t *testing.T) {
	for _, c := range []struct {
		name     string
		cores    int
		look     time.Duration
		sessions int
	}{
		{"servers with time", 8, time.Microsecond / 2, 8},
		{"a server without", 1, 6 * time.Microsecond, 24},
	} {
		m := sim.Paper()
		m.Cores, m.LookCost = c.cores, c.look
		never := lookups(t, m, c.sessions, map[string]bool{"offloading": false})
		always := lookups(t, m, c.sessions, map[string]bool{"costAware": false})
		rule := lookups(t, m, c.sessions, nil)
		t.Logf("%s: lookups in 1 ms: %d without calls, %d with as many as can be, %d by the rule", c.name, never, always, rule)
		if best := max(never, always); rule < best*9/10 {
			t.Errorf("%s: %d lookups by the rule, %d without calls, %d with as many as can be", c.name, rule, never, always)
		}
		if c.cores > 1 && always < never*5/4 || c.cores == 1 && always > never*4/5 {
			t.Errorf("%s: %d lookups without calls, %d with as many as can be: that was to be different", c.name, never, always)
		}
	}
}

// lookups is how many lookups sessions of one client make in a millisecond, with a cache of 2 KiB
// for inner nodes.
func lookups(t *testing.T, m sim.Model, sessions int, switches map[string]bool) (n int) {
	t.Helper()
	const keys = 3000
	w := simenv.New(simenv.Options{Seed: 1, MaxEvents: 50_000_000, Ordered: true})
	c, err := poolsim.New(w, poolsim.Options{Servers: 1, Chunks: 64, ChunkBytes: 256 << 10, Executor: executor, Fabric: sim.Options{Model: m}})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(func(p *simenv.Process) {
		fail := func(err error) {
			if err != nil {
				w.Fail(err)
			}
		}
		pl, err := c.Open(p)
		fail(err)
		x, err := dex.Open(pl, index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 256, CacheBytes: 6 << 10, Switches: switches})
		fail(err)
		fail(x.(index.Partitioned).Take(pool.Holding{Epoch: 1}))
		fail(x.BulkLoad(func(yield func(key, value []byte) bool) error {
			for k := range uint64(keys) {
				if b := binary.BigEndian.AppendUint64(nil, k<<40); !yield(b, b) {
					break
				}
			}
			return nil
		}, 1))
		g := env.NewWaitGroup(p)
		warm := p.Now() + 2*time.Millisecond
		end := warm + time.Millisecond
		for k := range sessions {
			g.Go(fmt.Sprint("reader-", k), func() {
				s, err := x.Session()
				fail(err)
				r := rand.New(rand.NewPCG(uint64(k), 3))
				key := make([]byte, 8)
				for p.Now() < end {
					binary.BigEndian.PutUint64(key, r.Uint64N(keys)<<40)
					_, err := s.Lookup(key, nil)
					fail(err)
					if p.Now() >= warm && p.Now() < end {
						n++
					}
				}
				fail(s.Close())
			})
		}
		g.Wait(env.Forever)
		fail(x.Close())
		fail(pl.Close())
	}); err != nil {
		t.Fatal(err)
	}
	return n
}
