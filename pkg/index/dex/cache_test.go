package dex

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/pool"
)

// TestCachePolicies looks keys up, zipfian (0.99) and scattered over the leaves, in a cache that has room for 8 % of these, and compares the misses of each policy with those of the best fixed
// choice of leaves, which knows how often each will be looked for.
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
		off         []string
		least, most float64 // misses over the best choice's
	}{
		{"ours", nil, 1, 1.12},
		{"the paper's", []string{"frequencies"}, 1.1, 1.35},
		{"one queue", []string{"frequencies", "coolingMap"}, 1.1, 1.35},
		{"every leaf kept", []string{"frequencies", "leafAdmission"}, 1.15, 1.6},
		{"every leaf kept, by frequencies", []string{"leafAdmission"}, 1.05, 1.6},
	}
	if testing.Short() { // one goroutine: the race detector sees no more in the others
		policies = policies[:1]
	}
	for _, p := range policies {
		t.Run(p.name, func(t *testing.T) {
			switches := map[string]bool{}
			for _, name := range p.off {
				switches[name] = false
			}
			with, err := techniquesOf(switches)
			if err != nil {
				t.Fatal(err)
			}
			with.entries = false // whole leaves are what is compared
			c := newCache(env.Real(), with, room*(node+frameCost(node/8, with)), node)
			random := rand.New(rand.NewPCG(5, 6))
			var seen [leaves]int
			misses := 0
			for i := range warm + rounds {
				rank := math.Pow(random.Float64()*(math.Pow(keys, 1-theta)-1)+1, 1/(1-theta))
				leaf := int(uint64(rank) * scatter >> 32 * leaves >> 32)
				a := pool.NewAddr(1, uint64(leaf+1)*node)
				if i >= warm {
					seen[leaf]++
				}
				if f := c.find(a); f != nil {
					f.hit()
					continue
				}
				if i >= warm {
					misses++
				}
				if f, fresh, err := c.reserve(a, false, nil); err != nil {
					t.Fatal(err)
				} else if fresh {
					f.unlock()
				}
			}
			slices.Sort(seen[:])
			best := rounds
			for _, n := range seen[leaves-len(c.frames):] {
				best -= n
			}
			ratio := float64(misses) / float64(best)
			t.Logf("%.3f misses an operation, %.2f times the best choice's", float64(misses)/rounds, ratio)
			if ratio < p.least || ratio > p.most {
				t.Errorf("%.2f times as many misses as the best choice of leaves has, not %.2f to %.2f", ratio, p.least, p.most)
			}
			if len(c.frames) > room {
				t.Errorf("%d frames, at most %d", len(c.frames), room)
			}
		})
	}
}
