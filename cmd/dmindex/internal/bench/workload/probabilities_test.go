package workload

import (
	"math"
	"testing"
)

// TestProbabilities: those of all items make one, and each is the sum of those of its ranks.
func TestProbabilities(t *testing.T) {
	for _, text := range []string{"uniform", "zipfian:0.99", "zipfian:0.99/1e5", "zipfian:1/12345", "zipfian:0.5/3000", "zipfian:2", "zipfian:0.99/300"} {
		d, err := ParseDistribution(text)
		if err != nil {
			t.Fatal(err)
		}
		const items = 1000
		p, sum := NewProbabilities(d, items), 0.0
		ranks, all := d.Ranks, 0.0
		if ranks == 0 {
			ranks = items
		}
		for r := range ranks {
			all += math.Pow(float64(r+1), -d.Theta)
		}
		for item := range uint64(items) {
			want := 0.0
			for r := item; r < ranks; r += items {
				want += math.Pow(float64(r+1), -d.Theta) / all
			}
			have := p.Of(item)
			if math.Abs(have-want) > 0.002*want {
				t.Fatalf("%s: item %d has probability %g, want %g", text, item, have, want)
			}
			sum += have
		}
		if math.Abs(sum-1) > 0.001 {
			t.Errorf("%s: all items together have probability %g", text, sum)
		}
	}
}
