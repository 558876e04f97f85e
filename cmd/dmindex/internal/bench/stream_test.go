package bench

import (
	"math"
	"strings"
	"testing"
)

func streamOf(t *testing.T, workload, distribution string, records uint64, n, lag int) *stream {
	t.Helper()
	w, err := LookupWorkload(strings.ToLower(workload))
	if err != nil {
		t.Fatal(err)
	}
	d, err := ParseDistribution(w.DistributionOr(distribution))
	if err != nil {
		t.Fatal(err)
	}
	return newStream(w, d, records, n, 1, 100, lag, 5)
}

func TestMixes(t *testing.T) {
	const n, records, lag = 30_000, 10_000, 64
	for _, w := range workloads {
		total := 0
		for _, share := range w.share {
			total += share
		}
		if total != 100 {
			t.Errorf("%s: shares make %d", w.Name, total)
		}
		s := streamOf(t, w.Name, "", records, n, lag)
		var counts [kinds]int
		var lengths [101]int
		items, inserted := s.loaded, []int{} // places of the insertions
		for i, o := range s.ops {
			counts[o.kind()]++
			switch o.kind() {
			case insert:
				if o.item() != items {
					t.Fatalf("%s: insertion %d is of item %d, want %d", w.Name, i, o.item(), items)
				}
				items++
				inserted = append(inserted, i)
				continue
			case scan:
				lengths[o.length()]++
			}
			if o.item() >= items || o.item() >= s.loaded && inserted[o.item()-s.loaded] > i-lag {
				t.Fatalf("%s: operation %d is on item %d, whose insertion may be under way", w.Name, i, o.item())
			}
		}
		for k, share := range w.share {
			p := float64(share) / 100
			if want := p * n; math.Abs(float64(counts[k])-want) > 5*math.Sqrt(n*p*(1-p)) {
				t.Errorf("%s: %d of %d are %v, want about %.0f", w.Name, counts[k], n, kind(k), want)
			}
		}
		if scans := float64(counts[scan]); scans > 0 {
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
		for item := range s.items {
			if !s.isLoaded(item) {
				continue
			}
			if s.record(next) != item {
				t.Errorf("record %d is item %d, want %d", next, s.record(next), item)
			}
			next++
		}
		if next != records {
			t.Errorf("%d items are loaded, want %d", next, records)
		}
	}
	s := streamOf(t, "write-only", "uniform", 10_000, 30_000, 1)
	updates := 0.0
	for _, o := range s.ops {
		if s.isLoaded(o.item()) {
			updates++
		}
	}
	if share := updates / float64(len(s.ops)); math.Abs(share-2.0/3) > 0.02 {
		t.Errorf("a share of %.3f of the upserts is of items that are loaded, want two thirds", share)
	}
}

// TestPopularity: the most popular item is the first one, or the last one that may be drawn.
func TestPopularity(t *testing.T) {
	const n, records = 20_000, 1000
	first := weights(0.99, records)[0] * n
	s, newest := streamOf(t, "C", "zipfian:0.99", records, n, 1), 0
	count := map[uint64]int{}
	for _, o := range s.ops {
		count[o.item()]++
	}
	if have := float64(count[0]); math.Abs(have-first) > 5*math.Sqrt(first) {
		t.Errorf("item 0 comes %.0f times, want about %.0f", have, first)
	}
	first = weights(0.99, 100_000)[0] * n
	have := 0.0
	for _, o := range streamOf(t, "C", "zipfian:0.99/1e5", records, n, 1).ops {
		if o.item() == 0 {
			have++
		}
	}
	// and its share of the ranks beyond
	if first *= 1.01; math.Abs(have-first) > 5*math.Sqrt(first) {
		t.Errorf("item 0 of 100000 ranks comes %.0f times, want about %.0f", have, first)
	}
	s = streamOf(t, "D", "", records, n, 1)
	items := s.loaded
	for i, o := range s.ops {
		if o.kind() == insert {
			items++
			continue
		}
		if behind := i == 0 || s.ops[i-1].kind() != insert; o.item() == items-1 && behind {
			newest++
		}
	}
	if share := float64(newest) / n; share < 0.05 {
		t.Errorf("the newest item has a share of %.3f", share)
	}
}

func TestStreamReplays(t *testing.T) {
	a, b := streamOf(t, "E", "", 1000, 1000, 8), streamOf(t, "E", "", 1000, 1000, 8)
	for i := range a.ops {
		if a.ops[i] != b.ops[i] {
			t.Fatalf("operation %d differs", i)
		}
	}
}

func TestKeysNameTheirItems(t *testing.T) {
	for _, bytes := range []int{8, 12, 16, 23, 32} {
		k, err := newKeys(bytes)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, item := range []uint64{0, 1, 2, 3, 1 << 20, 1<<32 - 1, 1 << 32, 1<<48 - 1} {
			key := k.append(nil, item)
			if back, err := k.item(key); back != item || err != nil || len(key) != bytes || seen[string(key)] {
				t.Errorf("%d bytes: item %d has key %x, which is item %d's: %v", bytes, item, key, back, err)
			}
			seen[string(key)] = true
		}
	}
	if _, err := newKeys(7); err == nil {
		t.Error("keys of 7 bytes")
	}
}

// TestKeysAreScattered: neighbours in number fall all over the key space.
func TestKeysAreScattered(t *testing.T) {
	const n = 1 << 16
	var counts [256]int
	for item := range uint64(n) {
		counts[scramble(item)>>56]++
	}
	statistic := 0.0
	for _, c := range counts {
		statistic += math.Pow(float64(c)-n/256, 2) / (n / 256)
	}
	if limit := 255 + 4*math.Sqrt(2*255); statistic > limit {
		t.Errorf("chi-square of the first byte is %.0f, at most %.0f is to be expected", statistic, limit)
	}
}
