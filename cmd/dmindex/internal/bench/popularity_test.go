package bench

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/workload"
)

// TestPopularityIsExpectedUse compares the expected uses of leaves with those of a long stream.
func TestPopularityIsExpectedUse(t *testing.T) {
	for _, c := range []struct{ workload, distribution string }{
		{"C", "zipfian:0.99"}, {"C", "uniform"}, {"A", "zipfian:0.99/1e7"}, {"write-intensive", "zipfian:0.9"}, {"range-write", "zipfian:0.99"}, {"E", "zipfian:0.5"},
	} {
		r := smallRun(t, c.workload, "shm")
		r.Ops, r.Warmup, r.ScanFrom, r.ScanTo = 400_000, 0, 3, 12
		if c.workload == "E" {
			r.Ops = 2000 // items come, so it is true only at the beginning
		}
		var err error
		if r.Distribution, err = workload.ParseDistribution(c.distribution); err != nil {
			t.Fatal(err)
		}
		b := fakeBencher(t, r, nil)
		begin, random := []uint64{0}, rand.New(rand.NewPCG(1, 1))
		for range 19 {
			begin = append(begin, random.Uint64())
		}
		slices.Sort(begin)
		for item := range b.stream.Loaded { // all are there
			b.present.Add(item)
		}
		items := b.itemsInOrder()
		have, want := b.popularity(begin, items), usesOf(begin, b.stream.Ops, items)
		for l := range begin {
			n, expected := float64(want[l]), have[l]*float64(r.Ops)
			if math.Abs(n-expected) > 5*math.Sqrt(expected)+0.01*expected {
				t.Errorf("%s, %s: leaf %d is used %.0f times, expected are %.0f", c.workload, c.distribution, l, n, expected)
			}
		}
	}
	r := smallRun(t, "D", "shm")
	if fakeBencher(t, r, nil).popularity([]uint64{0}, nil) != nil {
		t.Error("the popularity of the latest items is taken to stay")
	}
}

// TestStaticKeepsTheExpected: it keeps what is expected to be used, not what is.
func TestStaticKeepsTheExpected(t *testing.T) {
	expected, uses := []float64{3, 9, 1, 9}, []uint32{100, 10, 1, 7}
	for kept, want := range []uint64{118, 108, 101, 1, 0, 0} {
		if have := static(expected, uses, kept); have != want {
			t.Errorf("%d leaves kept: %d misses, want %d", kept, have, want)
		}
	}
}
