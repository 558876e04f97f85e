package bench

import (
	"math"
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

// TestZipfChiSquare compares how often each rank comes with its exact probability. The statistic has n-1 degrees of freedom: its mean is n-1 and its
// standard deviation sqrt(2(n-1)).
func TestZipfChiSquare(t *testing.T) {
	const n, draws = 500, 200_000
	for _, theta := range []float64{0.01, 0.5, 0.9, 0.99, 1, 1.2, 2} {
		z, r := newZipf(theta, n), rand.New(rand.NewPCG(1, 2))
		var counts [n]int
		for range draws {
			counts[z.next(r)]++
		}
		statistic, ranks := 0.0, 0.0
		var rest, restWant float64 // ranks that are expected less than ten times count together
		add := func(have, want float64) {
			statistic += (have - want) * (have - want) / want
			ranks++
		}
		for i, w := range weights(theta, n) {
			if want := w * draws; want >= 10 {
				add(float64(counts[i]), want)
			} else {
				rest, restWant = rest+float64(counts[i]), restWant+want
			}
		}
		if restWant > 0 {
			add(rest, restWant)
		}
		if limit := ranks - 1 + 4*math.Sqrt(2*(ranks-1)); statistic > limit {
			t.Errorf("theta %g: chi-square is %.0f of %.0f ranks, at most %.0f is to be expected", theta, statistic, ranks, limit)
		}
	}
}

// TestZipfKolmogorovSmirnov looks at large n, where most ranks come never or once: the largest distance between the distribution of the draws
// and the exact one.
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
