package nodecache

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/pool"
)

// testCopy is a copy of a node.
type testCopy struct {
	Head
	bytes int
}

func (c *testCopy) String() string { return fmt.Sprintf("copy of %v", c.Addr) }

// typicalBytes is what a test's copies take, about.
const typicalBytes = 1000

// copyOf makes a copy of a node with so many children.
func copyOf(a pool.Addr, level uint8, children int, version uint32) *testCopy {
	c := &testCopy{Head: Head{Addr: a, Version: version}, bytes: 256 + 20*children}
	c.SetLevel(level)
	return c
}

func copyIn(h *Head) *testCopy { return (*testCopy)(unsafe.Pointer(h)) }

// copies implements Owner.
type copies struct{}

func (copies) Bytes(h *Head) int { return copyIn(h).bytes }
func (copies) Evicted(*Head)     {}

// inShards lets caches have small shards.
func inShards(t *testing.T) {
	was := shardCopies
	shardCopies = 25
	t.Cleanup(func() { shardCopies = was })
}

// TestHitRate looks up keys through a cache that is smaller than the inner nodes, and compares how
// often level 1 is found with the best that a fixed choice of nodes of the same bytes reaches,
// which knows how often each will be looked for. Levels above are always found.
func TestHitRate(t *testing.T) {
	const (
		nodes  = 2000 // of level 1
		fanout = 48
		keys   = nodes * fanout * 32
		warm   = 300_000
		rounds = 300_000
	)
	random := rand.New(rand.NewPCG(1, 2))
	addr := func(level, i int) pool.Addr { return pool.NewAddr(1, uint64(level*nodes+i+1)*1024) }
	// Zipfian ranks by the inverse of the continuous distribution; which node a rank's key is in is
	// random.
	spread := uint64(0x9E3779B97F4A7C15)
	zipf := func(s float64) func() int {
		return func() int {
			rank := math.Pow(random.Float64()*(math.Pow(keys, 1-s)-1)+1, 1/(1-s))
			return int(uint64(rank) * spread >> 32 * nodes >> 32)
		}
	}
	inShards(t)
	parts := []float64{0.1, 0.25, 0.9} // of all nodes, which the cache has room for
	if testing.Short() {
		parts = parts[1:2]
	}
	for _, c := range []struct {
		name  string
		draw  func() int
		shift bool // other keys are the popular ones after half of the warming up
		most  int  // shards
	}{
		{"uniform", func() int { return random.IntN(nodes) }, false, 1},
		{"zipf 0.9", zipf(0.9), false, 1},
		{"zipf 0.99", zipf(0.99), false, 1},
		{"zipf 0.99 in shards", zipf(0.99), false, MostShards},
		{"zipf 0.99 that shifts", zipf(0.99), true, 1},
	} {
		if testing.Short() && c.most == 1 {
			continue // one goroutine: the race detector sees no more in the others
		}
		for _, part := range parts {
			t.Run(fmt.Sprintf("%s/%.2f", c.name, part), func(t *testing.T) {
				sizes := 0
				var all [3][]*testCopy
				for level, n := range []int{nodes, nodes / fanout, 1} {
					for i := range n {
						m := copyOf(addr(level, i), uint8(level+1), fanout-10+random.IntN(20), 1)
						all[level] = append(all[level], m)
						sizes += m.bytes
					}
				}
				bound := int(part * float64(sizes))
				k := NewSharded(env.Real(), copies{}, bound, typicalBytes, c.most)
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
					path := []*testCopy{all[2][0], all[1][min(x/fanout, len(all[1])-1)], all[0][x]}
					for j, n := range path {
						switch found := k.Get(n.Addr, 0); {
						case found == nil:
							k.Put(&n.Head)
						case j == 2:
							hits++
						default:
							above++
						}
					}
					if b := k.Bytes(); b > int64(bound) {
						t.Fatalf("%d bytes, the bound is %d", b, bound)
					}
				}
				rest := bound - all[2][0].bytes
				for _, n := range all[1] {
					rest -= n.bytes
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
					if rest -= all[0][i].bytes; rest < 0 {
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

// TestRenewsOldCopies: in a cache that is full of popular nodes, a node that nobody looked for is
// not worth a READ, and one whose copy is too old is: it takes its copy's place.
func TestRenewsOldCopies(t *testing.T) {
	const nodes = 400
	addr := func(i int) pool.Addr { return pool.NewAddr(1, uint64(i+1)*1024) }
	all := make([]*testCopy, nodes)
	for i := range all {
		all[i] = copyOf(addr(i), 1, 40, 1)
	}
	k := New(env.Real(), copies{}, nodes/2*all[0].bytes, typicalBytes)
	for _, n := range all {
		n.Stamp = 1
		k.Put(&n.Head)
		for range 5 {
			k.Get(n.Addr, 0)
		}
	}
	old, renewed, others := 0, 0, 0
	for _, n := range all {
		kept := k.Get(n.Addr, 0) != nil
		if k.Get(n.Addr, 2) != nil {
			t.Fatalf("%v is found, which is too old", n)
		}
		switch would := k.Keeps(n.Addr, 1, n.bytes); {
		case kept && !would:
			t.Errorf("%v is too old, and would not be kept were it read", n)
		case kept:
			old++
			fresh := copyOf(n.Addr, 1, 40, 1)
			fresh.Stamp = 2
			k.Put(&fresh.Head)
			if k.Get(n.Addr, 2) == &fresh.Head {
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

// TestKeepsUpperLevels: no number of nodes of level 1 costs one above them, and where those leave
// no room, level 1 is not kept.
func TestKeepsUpperLevels(t *testing.T) {
	one := copyOf(64, 2, 50, 1).bytes
	for _, bound := range []int{6 * one, 40 * one} {
		k := New(env.Real(), copies{}, bound, typicalBytes)
		var upper []pool.Addr
		for i := range 4 {
			a := pool.NewAddr(1, uint64(i+1)<<20)
			upper = append(upper, a)
			k.Put(&copyOf(a, uint8(2+i%2), 50, 1).Head)
		}
		kept := 0
		for _, a := range upper {
			if k.Get(a, 0) != nil {
				kept++
			}
		}
		for i := range 5000 {
			n := copyOf(pool.NewAddr(2, uint64(i+1)<<10), 1, 30+i%30, 1)
			k.Put(&n.Head)
			for range i % 9 {
				k.Get(n.Addr, 0)
			}
			if b := k.Bytes(); b > int64(bound) {
				t.Fatalf("%d bytes, the bound is %d", b, bound)
			}
		}
		for _, a := range upper {
			if k.Get(a, 0) != nil {
				kept--
			}
		}
		if kept != 0 {
			t.Errorf("%d nodes of upper levels had to go for level 1", kept)
		}
	}
}

// TestVersions: a newer copy takes the place of an older one and not the other way round; dropping
// counts.
func TestVersions(t *testing.T) {
	k := New(env.Real(), copies{}, 1<<20, typicalBytes)
	empty := k.Bytes()
	const a = pool.Addr(1 << 12)
	old, later := copyOf(a, 1, 10, math.MaxUint32), copyOf(a, 1, 60, 0)
	k.Put(&later.Head)
	k.Put(&old.Head)
	if k.Get(a, 0) != &later.Head {
		t.Error("an older copy took the place of a newer one")
	}
	k.Put(&copyOf(a, 1, 20, 1).Head)
	k.Drop(&later.Head) // not there any more
	if n := k.Get(a, 0); n == nil || n.Version != 1 || k.Bytes() != empty+int64(copyIn(n).bytes) {
		t.Errorf("%v, %d bytes", n, k.Bytes()-empty)
	}
	k.Drop(k.Get(a, 0))
	if k.Get(a, 0) != nil || k.Bytes() != empty || k.shards[0].levels != [256]int{} {
		t.Errorf("%d bytes after all was dropped", k.Bytes()-empty)
	}
}

// TestHighestLevel looks for a victim where no level has a copy, for a copy of the highest one.
func TestHighestLevel(t *testing.T) {
	k := New(env.Real(), copies{}, 10*typicalBytes, typicalBytes)
	var n Head
	n.SetLevel(math.MaxUint8)
	if v := k.victim(&k.shards[0], &n); v != nil {
		t.Errorf("an empty cache has a victim: %v", v.node.Load())
	}
}

// TestShards: sessions on threads look up, put and drop copies of a cache in shards. It never has
// more bytes than its bound, which one of them tries to lower, and in the end it has counted right.
func TestShards(t *testing.T) {
	inShards(t)
	const nodes, threads = 4000, 4
	bound := int64(nodes / 4 * typicalBytes)
	k := NewSharded(env.Real(), copies{}, int(bound), typicalBytes, MostShards)
	if len(k.shards) != MostShards {
		t.Fatalf("%d shards", len(k.shards))
	}
	empty := k.Bytes()
	node := func(i int) pool.Addr { return pool.NewAddr(uint16(1+i%3), uint64(i+1)*1024) }
	var g sync.WaitGroup
	for n := range threads {
		g.Go(func() {
			r := rand.New(rand.NewPCG(uint64(n), 5))
			for i := range 60_000 {
				a := node(r.IntN(nodes))
				h := k.Get(a, 0)
				switch level := uint8(1 + uint64(a)/1024%20/19); {
				case h != nil && r.IntN(50) == 0:
					k.Drop(h)
				case h == nil && k.Keeps(a, level, 300+i%7*100):
					k.Put(&copyOf(a, level, i%30, 1).Head)
				}
				if b := k.Bytes(); b > bound {
					t.Errorf("%d bytes, the bound is %d", b, bound)
					return
				}
			}
		})
	}
	g.Wait()
	kept, bytes := 0, empty
	for i := range nodes {
		if h := k.Get(node(i), 0); h != nil {
			kept++
			bytes += int64(copyIn(h).bytes)
			k.Drop(h)
		}
	}
	if kept < nodes/8 || k.Bytes() != empty {
		t.Errorf("%d copies were kept, and %d bytes are left of %d", kept, k.Bytes()-empty, bytes-empty)
	}
	for i := range k.shards {
		if s := &k.shards[i]; s.kept != 0 || s.levels != [256]int{} {
			t.Errorf("shard %d has %d copies in the end", i, s.kept)
		}
	}
}
