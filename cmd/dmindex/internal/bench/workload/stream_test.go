package workload

import (
	"math"
	"strings"
	"testing"
)

func streamOf(t *testing.T, workload, distribution string, records uint64, n, lag int) *Stream {
	t.Helper()
	w, err := ByName(strings.ToLower(workload))
	if err != nil {
		t.Fatal(err)
	}
	d, err := ParseDistribution(w.DistributionOr(distribution))
	if err != nil {
		t.Fatal(err)
	}
	return NewStream(w, d, records, n, 1, 100, lag, 5)
}

func TestMixes(t *testing.T) {
	const n, records, lag = 30_000, 10_000, 64
	for _, w := range All {
		total := 0
		for _, share := range w.Share {
			total += share
		}
		if total != 100 {
			t.Errorf("%s: shares make %d", w.Name, total)
		}
		s := streamOf(t, w.Name, "", records, n, lag)
		var counts [kinds]int
		var lengths [101]int
		items, inserted := s.Loaded, []int{} // places of the insertions
		for i, o := range s.Ops {
			counts[o.Kind()]++
			switch o.Kind() {
			case Insert:
				if o.Item() != items {
					t.Fatalf("%s: insertion %d is of item %d, want %d", w.Name, i, o.Item(), items)
				}
				items++
				inserted = append(inserted, i)
				continue
			case Scan:
				lengths[o.Length()]++
			}
			if o.Item() >= items || o.Item() >= s.Loaded && inserted[o.Item()-s.Loaded] > i-lag {
				t.Fatalf("%s: operation %d is on item %d, whose insertion may be under way", w.Name, i, o.Item())
			}
		}
		for k, share := range w.Share {
			p := float64(share) / 100
			if want := p * n; math.Abs(float64(counts[k])-want) > 5*math.Sqrt(n*p*(1-p)) {
				t.Errorf("%s: %d of %d are %v, want about %.0f", w.Name, counts[k], n, Kind(k), want)
			}
		}
		if scans := float64(counts[Scan]); scans > 0 {
			for length := 1; length <= 100; length++ {
				if have := float64(lengths[length]); math.Abs(have-scans/100) > 5*math.Sqrt(scans/100) {
					t.Errorf("%s: %.0f of %.0f scans are of %d pairs", w.Name, have, scans, length)
				}
			}
		}
	}
}

// TestSparseItems: of workloads with upserts two thirds of the items are loaded, and record counts
// them.
func TestSparseItems(t *testing.T) {
	for _, records := range []uint64{1, 2, 3, 1000} {
		s := streamOf(t, "write-only", "uniform", records, 10, 1)
		next := uint64(0)
		for item := range s.Items {
			if !s.IsLoaded(item) {
				continue
			}
			if s.Record(next) != item {
				t.Errorf("record %d is item %d, want %d", next, s.Record(next), item)
			}
			next++
		}
		if next != records {
			t.Errorf("%d items are loaded, want %d", next, records)
		}
	}
	s := streamOf(t, "write-only", "uniform", 10_000, 30_000, 1)
	updates := 0.0
	for _, o := range s.Ops {
		if s.IsLoaded(o.Item()) {
			updates++
		}
	}
	if share := updates / float64(len(s.Ops)); math.Abs(share-2.0/3) > 0.02 {
		t.Errorf("a share of %.3f of the upserts is of items that are loaded, want two thirds", share)
	}
}

// TestPopularity: the most popular item is the first one, or the last one that may be drawn.
func TestPopularity(t *testing.T) {
	const n, records = 20_000, 1000
	first := weights(0.99, records)[0] * n
	s, newest := streamOf(t, "C", "zipfian:0.99", records, n, 1), 0
	count := map[uint64]int{}
	for _, o := range s.Ops {
		count[o.Item()]++
	}
	if have := float64(count[0]); math.Abs(have-first) > 5*math.Sqrt(first) {
		t.Errorf("item 0 comes %.0f times, want about %.0f", have, first)
	}
	first = weights(0.99, 100_000)[0] * n
	have := 0.0
	for _, o := range streamOf(t, "C", "zipfian:0.99/1e5", records, n, 1).Ops {
		if o.Item() == 0 {
			have++
		}
	}
	// and its share of the ranks beyond
	if first *= 1.01; math.Abs(have-first) > 5*math.Sqrt(first) {
		t.Errorf("item 0 of 100000 ranks comes %.0f times, want about %.0f", have, first)
	}
	s = streamOf(t, "D", "", records, n, 1)
	items := s.Loaded
	for i, o := range s.Ops {
		if o.Kind() == Insert {
			items++
			continue
		}
		if behind := i == 0 || s.Ops[i-1].Kind() != Insert; o.Item() == items-1 && behind {
			newest++
		}
	}
	if share := float64(newest) / n; share < 0.05 {
		t.Errorf("the newest item has a share of %.3f", share)
	}
}

func TestStreamReplays(t *testing.T) {
	a, b := streamOf(t, "E", "", 1000, 1000, 8), streamOf(t, "E", "", 1000, 1000, 8)
	for i := range a.Ops {
		if a.Ops[i] != b.Ops[i] {
			t.Fatalf("operation %d differs", i)
		}
	}
}
