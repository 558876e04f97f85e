package blink

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
)

// cached makes a copy of an inner node of uint64 keys.
func cached(tb testing.TB, l *layout, a pool.Addr, level uint8, children int, version uint32) *inner {
	tb.Helper()
	d := &draft{low: l.Bottom, high: l.NoHigh(), rightmost: true, level: level}
	for i := range children {
		d.children = append(d.children, pool.Addr(i))
		if i > 0 {
			d.seps = append(d.seps, binary.BigEndian.AppendUint64(nil, uint64(i)))
		}
	}
	b := make([]byte, l.nodeBytes)
	d.build(b, l, a, version)
	n := decodeInner(l, a, b)
	if n == nil {
		tb.Fatal("it does not decode")
	}
	return n
}

func testLayout(tb testing.TB, o index.Options) *layout {
	tb.Helper()
	l, err := newLayout(o)
	if err != nil {
		tb.Fatal(err)
	}
	return &l
}

// TestCacheHitRate looks up keys through a cache that is smaller than the inner nodes, and compares how often level 1 is found with the best
// that a fixed choice of nodes of the same bytes reaches, which knows how often each will be looked for. Levels above are always found.
func TestCacheHitRate(t *testing.T) {
	const (
		nodes  = 2000 // of level 1
		fanout = 48
		keys   = nodes * fanout * 32
		warm   = 300_000
		rounds = 300_000
	)
	l := testLayout(t, index.Options{Uint64: true, MaxValueBytes: 8})
	random := rand.New(rand.NewPCG(1, 2))
	addr := func(level, i int) pool.Addr { return pool.NewAddr(1, uint64(level*nodes+i+1)*1024) }
	// Zipfian ranks by the inverse of the continuous distribution; which node a rank's key is in is random.
	spread := uint64(0x9E3779B97F4A7C15)
	zipf := func(s float64) func() int {
		return func() int {
			rank := math.Pow(random.Float64()*(math.Pow(keys, 1-s)-1)+1, 1/(1-s))
			return int(uint64(rank) * spread >> 32 * nodes >> 32)
		}
	}
	parts := []float64{0.1, 0.25, 0.9} // of all nodes, which the cache has room for
	if testing.Short() {               // one goroutine: the race detector sees no more in the others
		parts = parts[1:2]
	}
	for _, c := range []struct {
		name  string
		draw  func() int
		shift bool // other keys are the popular ones after half of the warming up
	}{
		{"uniform", func() int { return random.IntN(nodes) }, false},
		{"zipf 0.9", zipf(0.9), false},
		{"zipf 0.99", zipf(0.99), false},
		{"zipf 0.99 that shifts", zipf(0.99), true},
	} {
		for _, part := range parts {
			t.Run(fmt.Sprintf("%s/%.2f", c.name, part), func(t *testing.T) {
				sizes := 0
				var all [3][]*inner
				for level, n := range []int{nodes, nodes / fanout, 1} {
					for i := range n {
						m := cached(t, l, addr(level, i), uint8(level+1), fanout-10+random.IntN(20), 1)
						all[level] = append(all[level], m)
						sizes += m.size()
					}
				}
				bound := int(part * float64(sizes))
				k := newCache(env.Real(), bound, l.nodeBytes)
				var seen [nodes]int
				hits, above := 0, 0
				for i := range warm + rounds {
					if c.shift && i == warm/2 {
						spread = 0xC2B2AE3D27D4EB4F
					}
					if i == warm {
						hits, above, seen = 0, 0, [nodes]int{}
					}
					x := c.draw()
					seen[x]++
					path := []*inner{all[2][0], all[1][min(x/fanout, len(all[1])-1)], all[0][x]}
					for j, n := range path {
						switch found := k.get(n.addr, 0); {
						case found == nil:
							k.put(n)
						case j == 2:
							hits++
						default:
							above++
						}
					}
					if b := k.bytes.Load(); b > int64(bound) {
						t.Fatalf("%d bytes, the bound is %d", b, bound)
					}
				}
				rest := bound - all[2][0].size()
				for _, n := range all[1] {
					rest -= n.size()
				}
				// The choice knows the distribution, not what was drawn of it.
				var often [nodes]int
				for range 2 * rounds {
					often[c.draw()]++
				}
				order := make([]int, nodes)
				for i := range order {
					order[i] = i
				}
				slices.SortFunc(order, func(a, b int) int { return often[b] - often[a] })
				best := 0
				for _, i := range order {
					if rest -= all[0][i].size(); rest < 0 {
						break
					}
					best += seen[i]
				}
				have, most := float64(hits)/rounds, float64(best)/rounds
				t.Logf("level 1 is found %.3f of the time, %.3f at best: %.3f of it; %.4f of levels above", have, most, have/most, float64(above)/(2*rounds))
				least := 0.9 * most
				if part < 0.2 {
					least = 0.82 * most
				}
				spread = 0x9E3779B97F4A7C15
				if have < least {
					t.Errorf("level 1 is found %.3f of the time, %.3f at best", have, most)
				}
				if above != 2*rounds {
					t.Errorf("nodes above level 1 are found %d times of %d", above, 2*rounds)
				}
			})
		}
	}
}

// TestCacheRenewsOldCopies: in a cache that is full of popular nodes, a node that nobody looked for is not worth a READ, and one whose copy is too old is: it takes its copy's place.
func TestCacheRenewsOldCopies(t *testing.T) {
	const nodes = 400
	l := testLayout(t, index.Options{Uint64: true, MaxValueBytes: 8})
	addr := func(i int) pool.Addr { return pool.NewAddr(1, uint64(i+1)*1024) }
	all := make([]*inner, nodes)
	for i := range all {
		all[i] = cached(t, l, addr(i), 1, 40, 1)
	}
	k := newCache(env.Real(), nodes/2*all[0].size(), l.nodeBytes)
	for _, n := range all {
		n.stamp = 1
		k.put(n)
		for range 5 {
			k.get(n.addr, 0)
		}
	}
	old, renewed, others := 0, 0, 0
	for _, n := range all {
		kept := k.get(n.addr, 0) != nil
		if k.get(n.addr, 2) != nil {
			t.Fatalf("%v is found, which is too old", n)
		}
		switch would := k.keeps(n.addr, 1, n.size()); {
		case kept && !would:
			t.Errorf("%v is too old, and would not be kept were it read", n)
		case kept:
			old++
			fresh := cached(t, l, n.addr, 1, 40, 1)
			fresh.stamp = 2
			k.put(fresh)
			if k.get(n.addr, 2) == fresh {
				renewed++
			}
		case would:
			others++
		}
	}
	if old < nodes/4 || renewed != old || others > nodes/10 {
		t.Errorf("%d of %d old copies were renewed; %d others would be kept", renewed, old, others)
	}
}

// TestCacheKeepsUpperLevels: no number of nodes of level 1 costs one above them, and where those leave no room, level 1 is not kept.
func TestCacheKeepsUpperLevels(t *testing.T) {
	l := testLayout(t, index.Options{Uint64: true, MaxValueBytes: 8})
	one := cached(t, l, 64, 2, 50, 1).size()
	for _, bound := range []int{6 * one, 40 * one} {
		k := newCache(env.Real(), bound, l.nodeBytes)
		var upper []pool.Addr
		for i := range 4 {
			a := pool.NewAddr(1, uint64(i+1)<<20)
			upper = append(upper, a)
			k.put(cached(t, l, a, uint8(2+i%2), 50, 1))
		}
		kept := 0
		for _, a := range upper {
			if k.get(a, 0) != nil {
				kept++
			}
		}
		for i := range 5000 {
			n := cached(t, l, pool.NewAddr(2, uint64(i+1)<<10), 1, 30+i%30, 1)
			k.put(n)
			for range i % 9 {
				k.get(n.addr, 0)
			}
			if b := k.bytes.Load(); b > int64(bound) {
				t.Fatalf("%d bytes, the bound is %d", b, bound)
			}
		}
		for _, a := range upper {
			if k.get(a, 0) != nil {
				kept--
			}
		}
		if kept != 0 {
			t.Errorf("%d nodes of upper levels had to go for level 1", kept)
		}
	}
}

// TestCacheVersions: a newer copy takes the place of an older one and not the other way round; dropping counts.
func TestCacheVersions(t *testing.T) {
	l := testLayout(t, index.Options{Uint64: true, MaxValueBytes: 8})
	k := newCache(env.Real(), 1<<20, l.nodeBytes)
	empty := k.bytes.Load()
	const a = pool.Addr(1 << 12)
	old, later := cached(t, l, a, 1, 10, math.MaxUint32), cached(t, l, a, 1, 60, 0)
	k.put(later)
	k.put(old)
	if k.get(a, 0) != later {
		t.Error("an older copy took the place of a newer one")
	}
	k.put(cached(t, l, a, 1, 20, 1))
	k.drop(later) // not there any more
	if n := k.get(a, 0); n == nil || n.version != 1 || k.bytes.Load() != empty+int64(n.size()) {
		t.Errorf("%v, %d bytes", n, k.bytes.Load()-empty)
	}
	k.drop(k.get(a, 0))
	if k.get(a, 0) != nil || k.bytes.Load() != empty || k.levels != [256]int{} {
		t.Errorf("%d bytes after all was dropped", k.bytes.Load()-empty)
	}
}

// TestCacheBytesAreReal compares what the cache says with what the heap says.
func TestCacheBytesAreReal(t *testing.T) {
	for i, o := range []index.Options{{Uint64: true, MaxValueBytes: 8}, {MaxKeyBytes: 100, MaxValueBytes: 8}, {Uint64: true, MaxValueBytes: 8}} {
		l := testLayout(t, o)
		l.hints = i == 0
		d := &draft{low: l.Bottom, high: l.NoHigh(), rightmost: true, level: uint8(1 + i/2), children: []pool.Addr{0}}
		for i := 1; ; i++ {
			sep := fmt.Appendf(nil, "%08d", i)
			if d.insert(i-1, sep, pool.Addr(i)); d.bytes(l) > l.nodeBytes*7/10 {
				break
			}
		}
		b := make([]byte, l.nodeBytes)
		d.build(b, l, 64, 1)
		const n = 20000
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		all := make([]*inner, n)
		for i := range all {
			all[i] = decodeInner(l, 64, b)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		real, said := float64(after.HeapAlloc-before.HeapAlloc)/n-8, float64(all[n-1].size())
		t.Logf("uint64 %v: %.0f bytes, it says %.0f", o.Uint64, real, said)
		if real > said*1.02 || real < said*0.95 {
			t.Errorf("a copy takes %.0f bytes, it says %.0f", real, said)
		}
	}
}
