package workload

import (
	"math"
	"math/rand/v2"
)

// zipf draws ranks 0 .. n-1, rank r with a probability in proportion to 1/(r+1)^theta. It is exact
// for every theta > 0 and n, takes no table, and n may grow between draws: rejection-inversion
// (Hörmann and Derflinger, Rejection-inversion to generate variates from monotone discrete
// distributions, 1996). One to two uniform numbers a draw.
type zipf struct {
	theta float64
	n     uint64

	low  float64 // integral below the first half unit, less its own weight
	high float64 // integral up to n + 1/2
	skip float64 // a number this close below its rank is taken without another look
}

func newZipf(theta float64, n uint64) *zipf {
	z := &zipf{theta: theta}
	z.low = z.integral(1.5) - 1
	z.skip = 2 - z.inverse(z.integral(2.5)-z.weight(2))
	z.grow(n)
	return z
}

// grow changes how many ranks there are.
func (z *zipf) grow(n uint64) {
	if z.n != n {
		z.n, z.high = n, z.integral(float64(n)+0.5)
	}
}

// next draws a rank.
func (z *zipf) next(r *rand.Rand) uint64 {
	for {
		// u is uniform in (low, high]; the hat above rank k covers the integral from k-1/2 to
		// k+1/2.
		u := z.high + r.Float64()*(z.low-z.high)
		x := z.inverse(u)
		k := min(max(math.Floor(x+0.5), 1), float64(z.n))
		if k-x <= z.skip || u >= z.integral(k+0.5)-z.weight(k) {
			return uint64(k) - 1
		}
	}
}

// weight is 1/x^theta.
func (z *zipf) weight(x float64) float64 { return math.Exp(-z.theta * math.Log(x)) }

// integral is that of weight from 1 to x: (x^(1-theta) - 1) / (1-theta), log x for theta = 1.
func (z *zipf) integral(x float64) float64 {
	log := math.Log(x)
	return expm1Over((1-z.theta)*log) * log
}

// inverse is the x whose integral is u.
func (z *zipf) inverse(u float64) float64 {
	t := max(u*(1-z.theta), -1)
	return math.Exp(log1pOver(t) * u)
}

// expm1Over is (e^x - 1) / x, also where x is next to zero.
func expm1Over(x float64) float64 {
	if math.Abs(x) > 1e-8 {
		return math.Expm1(x) / x
	}
	return 1 + x/2
}

// log1pOver is log(1+x) / x, also where x is next to zero.
func log1pOver(x float64) float64 {
	if math.Abs(x) > 1e-8 {
		return math.Log1p(x) / x
	}
	return 1 - x/2
}
