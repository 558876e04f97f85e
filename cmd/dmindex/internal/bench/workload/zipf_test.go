package workload

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"
)

// weights are the exact probabilities of ranks 0 .. n-1.
func weights(theta float64, n int) []float64 {
	w, sum := make([]float64, n), 0.0
	for i := range w {
		w[i] = math.Pow(float64(i+1), -theta)
		sum += w[i]
	}
	for i := range w {
		w[i] /= sum
	}
	return w
}

// TestZipfChiSquare compares how often ranks come with their exact probabilities: the first ones
// one by one, later ones in groups that double, since what a generator does wrong shows in the
// first. With c groups the statistic has c-1 degrees of freedom: its mean is c-1, its standard
// deviation sqrt(2(c-1)).
func TestZipfChiSquare(t *testing.T) {
	const n, draws, single = 1000, 600_000, 16
	group := func(rank int) int {
		if rank < single {
			return rank
		}
		return single + bits.Len(uint(rank/single)) - 1
	}
	groups := group(n-1) + 1
	for _, theta := range []float64{0.01, 0.5, 0.9, 0.99, 1, 1.2, 2} {
		z, r := newZipf(theta, n), rand.New(rand.NewPCG(1, 2))
		have, want := make([]float64, groups), make([]float64, groups)
		for range draws {
			have[group(int(z.next(r)))]++
		}
		for rank, w := range weights(theta, n) {
			want[group(rank)] += w * draws
		}
		statistic := 0.0
		for i := range groups {
			statistic += (have[i] - want[i]) * (have[i] - want[i]) / want[i]
		}
		if limit := float64(groups-1) + 4*math.Sqrt(2*float64(groups-1)); statistic > limit {
			t.Errorf("theta %g: chi-square is %.0f, at most %.0f is to be expected", theta, statistic, limit)
		}
	}
}

// TestZipfKolmogorovSmirnov looks at large n, where most ranks come never or once: the largest
// distance between the distribution of the draws and the exact one.
func TestZipfKolmogorovSmirnov(t *testing.T) {
	const n, draws = 200_000, 100_000
	counts := make([]int, n)
	for _, theta := range []float64{0.5, 0.99, 1, 1.3} {
		clear(counts)
		z, r := newZipf(theta, n), rand.New(rand.NewPCG(3, 4))
		for range draws {
			counts[z.next(r)]++
		}
		var have, want, distance float64
		for i, w := range weights(theta, n) {
			have, want = have+float64(counts[i])/draws, want+w
			distance = math.Max(distance, math.Abs(have-want))
		}
		if limit := 1.95 / math.Sqrt(draws); distance > limit { // once in a thousand seeds
			t.Errorf("theta %g: distance %.5f, at most %.5f is to be expected", theta, distance, limit)
		}
	}
}

// TestZipfGrows: after grow the draws are those of a generator that was made with that many ranks.
func TestZipfGrows(t *testing.T) {
	grown := newZipf(0.99, 10)
	for _, n := range []uint64{1, 2, 3, 1000, 1 << 40} {
		grown.grow(n)
		fresh := newZipf(0.99, n)
		a, b := rand.New(rand.NewPCG(n, 1)), rand.New(rand.NewPCG(n, 1))
		for range 1000 {
			x, y := grown.next(a), fresh.next(b)
			if x != y || x >= n {
				t.Fatalf("of %d ranks: %d after growing, %d of a new one", n, x, y)
			}
		}
	}
}

func BenchmarkZipf(b *testing.B) {
	z, r := newZipf(0.99, 1_000_000), rand.New(rand.NewPCG(1, 1))
	for b.Loop() {
		z.next(r)
	}
}
