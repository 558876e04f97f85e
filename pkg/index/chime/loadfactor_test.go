package chime

import (
	"math/rand/v2"
	"testing"
)

// firstFailure is the load at which the first insertion finds no hop, on average over leaves of
// random keys.
func firstFailure(t *testing.T, slots, hood, leaves int) float64 {
	s := testShape(t, slots, hood)
	random := rand.New(rand.NewPCG(uint64(slots), uint64(hood)))
	sum := 0
	for range leaves {
		var tab table
		tab.reset(s, vacant)
		n := 0
		for tab.insert(s.home(key64(random.Uint64())), n) {
			n++
		}
		sum += n
	}
	return float64(sum) / float64(leaves*slots)
}

// TestLoadFactorBySpan: larger leaves are less full when the first insertion fails, and larger
// neighbourhoods make them fuller (figures 19a and b).
func TestLoadFactorBySpan(t *testing.T) {
	last := 2.0
	for _, span := range []int{16, 32, 64, 128, 256, 512} {
		load := firstFailure(t, span, Neighbourhood, 40_000/span)
		if t.Logf("span %d: %.3f", span, load); load >= last {
			t.Errorf("span %d: load %.3f, half of the span: %.3f", span, load, last)
		}
		last = load
	}
	last = 0
	for _, hood := range []int{2, 4, 8, 16} {
		load := firstFailure(t, Span, hood, 600)
		if t.Logf("neighbourhoods of %d: %.3f", hood, load); load <= last {
			t.Errorf("neighbourhoods of %d: load %.3f, half of that: %.3f", hood, load, last)
		}
		last = load
	}
}
