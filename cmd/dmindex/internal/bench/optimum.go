package bench

import (
	"slices"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/workload"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/psherman"
)

// The optimum is the READs of a perfect static cache: each compute server has, from the first
// measured operation on, those of its leaves which its measured operations use most, as many as the
// bytes of its cache hold, and all inner nodes besides. No cache that has to learn what is used
// does with fewer, unless what is popular changes: it knows what will come, and its inner nodes
// cost it nothing.
//
// Of what will come, a cache can know at most how popular items are. With few operations the
// optimum owes much to knowing which draws come by chance. So beside it stands the same cache with
// the leaves of those items that are truly popular: what a cache that had learned all there is to
// learn would READ.

// optima is READs of an operation with perfect static caches.
type optima struct {
	clairvoyant float64 // of the leaves that are used most
	popular     float64 // of those that are expected to be; 0 = what is popular changes
}

// optimum is those READs, with leaves as they are now; 0 in designs whose leaves have no owners.
func (b *bencher) optimum() (optima, error) {
	s, ok := b.members[0].Index.(index.Surveyor)
	if !ok || b.owners == nil || b.run.Design == psherman.Name { // which keeps no leaves
		return optima{}, nil
	}
	var begin []uint64 // of each leaf, the lowest scrambled number that it can have
	size := 0
	err := b.inServer(0, "survey", func() (err error) {
		return s.Survey(func(low []byte, bytes int) error {
			begin = append(begin, b.keys.Floor(low))
			size = max(size, bytes)
			return b.ctx.Err()
		})
	})
	if err != nil {
		return optima{}, err
	}
	var items []uint64
	if b.run.Workload.Share[workload.Scan] > 0 {
		items = b.itemsInOrder()
	}
	ops := b.stream.Ops[b.run.Warmup:]
	uses := usesOf(begin, ops, items)
	expected := b.popularity(begin, items)
	misses, popular := uint64(0), uint64(0)
	for server := range b.members {
		from, _ := slices.BinarySearch(begin, b.owners.first(server))
		to := len(begin)
		if server+1 < b.owners.n {
			to, _ = slices.BinarySearch(begin, b.owners.first(server+1))
		}
		kept := b.cacheOf(server) / size
		if expected != nil {
			popular += static(expected[from:to], uses[from:to], kept)
		}
		misses += beyond(uses[from:to], kept)
	}
	n := float64(len(ops))
	return optima{float64(misses) / n, float64(popular) / n}, nil
}

// cacheOf is the bytes of the cache of a compute server.
func (b *bencher) cacheOf(server int) int {
	if b.cache > 0 {
		return b.cache
	}
	return int(b.members[server].Stats().CacheBytes)
}

// itemsInOrder are the scrambled numbers of all items that there are.
func (b *bencher) itemsInOrder() []uint64 {
	var list []uint64
	for item := range b.stream.Items {
		if b.isPresent(item) {
			list = append(list, workload.Scramble(item))
		}
	}
	slices.Sort(list)
	return list
}

// usesOf is how often operations use each leaf. A scan uses every leaf that has one of its pairs,
// of the items that there are; a lookup with the update that comes of it uses its leaf once.
func usesOf(begin []uint64, ops []workload.Operation, items []uint64) []uint32 {
	uses := make([]uint32, len(begin))
	for _, o := range ops {
		x := workload.Scramble(o.Item())
		leaf := leafOf(begin, x)
		uses[leaf]++
		if o.Kind() != workload.Scan {
			continue
		}
		at, _ := slices.BinarySearch(items, x)
		if last := min(at+o.Length(), len(items)) - 1; last > at {
			for l := leafOf(begin, items[last]); l > leaf; l-- {
				uses[l]++
			}
		}
	}
	return uses
}

// leafOf is the leaf that holds a scrambled number: the last that begins there or before.
func leafOf(begin []uint64, x uint64) int {
	i, found := slices.BinarySearch(begin, x)
	if !found {
		i--
	}
	return max(i, 0)
}

// beyond is the sum of all uses but the greatest ones, kept of them. It sorts uses.
func beyond(uses []uint32, kept int) (sum uint64) {
	slices.Sort(uses)
	for i := range len(uses) - min(kept, len(uses)) {
		sum += uint64(uses[i])
	}
	return sum
}
