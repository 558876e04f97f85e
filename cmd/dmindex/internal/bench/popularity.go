package bench

import (
	"slices"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/workload"
)

// popularity is how often a measured operation is expected to use each leaf, from what is true of
// the stream before any of it is drawn: the distribution, and how often each kind of operation
// comes. Leaves begin at the scrambled numbers given. For scans it wants the numbers of all items,
// in order. nil: popularity changes while the stream goes on (latest).
//
// Items that the stream inserts are left out but for their insertion, which may go to any place
// alike.
func (b *bencher) popularity(begin []uint64, items []uint64) []float64 {
	d, w := b.run.Distribution, &b.run.Workload
	if d.Latest {
		return nil
	}
	uses := make([]float64, len(begin))
	scans := float64(w.Share[workload.Scan]) / 100
	inserts, even := float64(w.Share[workload.Insert])/100, 0.0
	if w.Even {
		even = float64(w.Share[workload.Upsert]) / 100
	}
	p := workload.NewProbabilities(d, b.stream.Loaded)
	for item := range b.stream.Loaded {
		uses[leafOf(begin, workload.Scramble(item))] += (1-inserts-even)*p.Of(item) + even/float64(p.Items)
	}
	for l, from := range begin {
		to := ^uint64(0)
		if l+1 < len(begin) {
			to = begin[l+1]
		}
		uses[l] += inserts * (float64(to) - float64(from)) / (1 << 64)
		if scans > 0 && l > 0 {
			uses[l] += scans * b.scannedInto(items, from, p)
		}
	}
	return uses
}

// scannedInto is the share of scans that begin below a number and have a pair there or above.
func (b *bencher) scannedInto(items []uint64, from uint64, p *workload.Probabilities) (share float64) {
	first, _ := slices.BinarySearch(items, from)
	if first == len(items) {
		return 0
	}
	shortest, longest := b.run.ScanFrom, b.run.ScanTo
	for pairs := 2; pairs <= longest && first-pairs+1 >= 0; pairs++ {
		long := 1.0 // share of scans that have so many pairs
		if pairs > shortest {
			long = float64(longest-pairs+1) / float64(longest-shortest+1)
		}
		if item := workload.Unscramble(items[first-pairs+1]); item < p.Items {
			share += long * p.Of(item)
		}
	}
	return share
}

// static is the uses of all leaves but those that are expected to be used most, kept of them.
func static(expected []float64, uses []uint32, kept int) (sum uint64) {
	order := make([]uint32, len(uses))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(a, b uint32) int {
		switch {
		case expected[a] > expected[b]:
			return -1
		case expected[a] < expected[b]:
			return 1
		}
		return int(a) - int(b)
	})
	for _, leaf := range order[min(kept, len(order)):] {
		sum += uint64(uses[leaf])
	}
	return sum
}
