package bench

import "slices"

// popularity is how often a measured operation is expected to use each leaf, from what is true of
// the stream before any of it is drawn: the distribution, and how often each kind of operation
// comes. Leaves begin at the scrambled numbers given. For scans it wants the numbers of all items,
// in order. nil: popularity changes while the stream goes on (latest).
//
// Items that the stream inserts are left out but for their insertion, which may go to any place
// alike.
func (b *bencher) popularity(begin []uint64, items []uint64) []float64 {
	d, w := b.run.Distribution, &b.run.Workload
	if d.latest {
		return nil
	}
	uses := make([]float64, len(begin))
	scans := float64(w.share[scan]) / 100
	inserts, even := float64(w.share[insert])/100, 0.0
	if w.even {
		even = float64(w.share[upsert]) / 100
	}
	p := newProbabilities(d, b.stream.loaded)
	for item := range b.stream.loaded {
		uses[leafOf(begin, scramble(item))] += (1-inserts-even)*p.of(item) + even/float64(p.items)
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
func (b *bencher) scannedInto(items []uint64, from uint64, p *probabilities) (share float64) {
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
		if item := unscramble(items[first-pairs+1]); item < p.items {
			share += long * p.of(item)
		}
	}
	return share
}

// probabilities of items.
type probabilities struct {
	items uint64
	ranks uint64
	z     *zipf // nil = all alike
	sum   float64
}

func newProbabilities(d Distribution, items uint64) *probabilities {
	p := &probabilities{items: items, ranks: max(items, d.ranks)}
	if d.theta > 0 {
		p.z = newZipf(d.theta, p.ranks)
		p.sum = 1
		p.sum = p.between(0, p.ranks, 1, 4096)
	}
	return p
}

// exactly is how many ranks of an item are added up one by one. The others, which are rare, are
// integrated.
const exactly = 4

// of is the probability that item is drawn: rank r stands for item r modulo their number.
func (p *probabilities) of(item uint64) float64 {
	if p.z == nil {
		return 1 / float64(p.items)
	}
	return p.between(item, p.ranks, p.items, exactly)
}

// between is the probability of every step-th rank from one on, below another.
func (p *probabilities) between(from, to, step uint64, one int) (sum float64) {
	for range one {
		if from >= to {
			return sum / p.sum
		}
		sum += p.z.weight(float64(from + 1))
		from += step
	}
	if n := (float64(to) - float64(from) - 1) / float64(step); n >= 0 {
		low := float64(from+1) - float64(step)/2
		high := low + float64(uint64(n)+1)*float64(step)
		sum += (p.z.integral(high) - p.z.integral(low)) / float64(step)
	}
	return sum / p.sum
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
