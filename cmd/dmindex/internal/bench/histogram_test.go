package bench

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestQuantiles compares quantiles with those of the sorted values: they are off by at most 1 in
// 256.
func TestQuantiles(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var h, other Histogram
	var values []time.Duration
	for i := range 20_000 {
		v := time.Duration(math.Exp(r.Float64() * 24))
		values = append(values, v)
		if i%2 == 0 {
			h.Record(v)
		} else {
			other.Record(v)
		}
	}
	h.add(&other)
	slices.Sort(values)
	for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.99, 0.999, 1} {
		want := float64(values[max(0, int(math.Ceil(q*float64(len(values))))-1)])
		if have := float64(h.Quantile(q)); math.Abs(have-want) > want/256+0.5 {
			t.Errorf("quantile %g is %.0f, want %.0f", q, have, want)
		}
	}
	if h.total != uint64(len(values)) {
		t.Errorf("%d values, want %d", h.total, len(values))
	}
}

func TestBuckets(t *testing.T) {
	for _, v := range []time.Duration{-1, 0, 1, 127, 128, 255, 256, 257, 1000, 1 << 20, longest, longest + 1, 1<<63 - 1} {
		b := bucketOf(v)
		low, high := bounds(b)
		if v = min(max(v, 0), longest); b < 0 || b >= buckets || v < low || v >= high {
			t.Errorf("%d falls into bucket %d, from %d to %d", v, b, low, high)
		}
	}
	if h := (&Histogram{}); h.Quantile(0.5) != 0 {
		t.Error("a quantile of nothing")
	}
}
