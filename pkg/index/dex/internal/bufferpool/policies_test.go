package bufferpool

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/pool"
)

// testOptions are those of a cache of so many frames, all in use.
func testOptions(nodeBytes, frames int) Options {
	return Options{NodeBytes: nodeBytes, Frames: frames, Live: frames, Least: 8, ShardFrames: 256, DepartedShare: 1, LeafAdmission: true, CoolingMap: true}
}

// TestCachePolicies looks keys up, zipfian (0.99) and scattered over the leaves, in a cache that
// has room for 8 % of these, and compares the misses of each policy with those of the best fixed
// choice of leaves, which knows how often each will be looked for. The keys are the same in each
// run, and by chance ratios differ by less than 0.01: so the bounds are close to what is there, and
// a policy of which a part does nothing is beyond them. Who makes one better moves its bounds.
func TestCachePolicies(t *testing.T) {
	const (
		leaves  = 20_000
		keys    = 30 * leaves
		room    = leaves * 8 / 100
		warm    = 1_000_000
		rounds  = 500_000
		theta   = 0.99
		node    = 256
		scatter = 0x9E3779B97F4A7C15
	)
	policies := []struct {
		name        string
		off         func(o *Options)
		changes     bool    // of each second one, which has to have a frame
		moves       bool    // other keys were popular in the first half of the warm-up
		least, most float64 // misses over the best choice's
	}{
		{"ours", func(*Options) {}, false, false, 1, 1.029},
		{"ours, with changes", func(*Options) {}, true, false, 1, 1.037},
		{"ours, after the load has moved", func(*Options) {}, false, true, 1, 1.03},
		{"the paper's", func(o *Options) { o.Paper = true }, false, false, 1.225, 1.255},
		{"one queue", func(o *Options) { o.Paper, o.CoolingMap = true, false }, false, false, 1.22, 1.25},
		{"every leaf kept", func(o *Options) { o.Paper, o.LeafAdmission = true, false }, false, false, 1.3, 1.33},
		{"every leaf kept, by frequencies", func(o *Options) { o.LeafAdmission = false }, false, false, 1.027, 1.035},
	}
	if testing.Short() { // one goroutine: the race detector sees no more in the others
		policies = policies[1:2]
	}
	for _, p := range policies {
		t.Run(p.name, func(t *testing.T) {
			o := testOptions(node, room)
			p.off(&o)
			c := New(env.Real(), o)
			random := rand.New(rand.NewPCG(5, 6))
			var seen [leaves]int
			misses := 0
			for i := range warm + rounds {
				rank := math.Pow(random.Float64()*(math.Pow(keys, 1-theta)-1)+1, 1/(1-theta))
				leaf := int(uint64(rank) * scatter >> 32 * leaves >> 32)
				if p.moves && i < warm/2 {
					leaf = leaves - 1 - leaf
				}
				a := pool.NewAddr(1, uint64(leaf+1)*node)
				if i >= warm {
					seen[leaf]++
				}
				if f := c.Find(a); f != nil {
					f.Hit()
					continue
				}
				if i >= warm {
					misses++
				}
				if f, fresh, err := c.Reserve(a, p.changes && i%2 == 0, nil); err != nil {
					t.Fatal(err)
				} else if fresh {
					f.Hit()
					f.Unlock()
				}
			}
			slices.Sort(seen[:])
			best := rounds
			for _, n := range seen[leaves-len(c.frames):] {
				best -= n
			}
			ratio := float64(misses) / float64(best)
			t.Logf("%.3f misses an operation, %.3f times the best choice's", float64(misses)/rounds, ratio)
			if ratio < p.least || ratio > p.most {
				t.Errorf("%.3f times as many misses as the best choice of leaves has, not %.3f to %.3f", ratio, p.least, p.most)
			}
			if len(c.frames) > room {
				t.Errorf("%d frames, at most %d", len(c.frames), room)
			}
		})
	}
}
