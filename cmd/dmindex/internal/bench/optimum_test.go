package bench

import (
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/workload"
	"github.com/dmindex/dmindex/pkg/index/psherman"
)

// TestOptimumIsTheLeast compares it with every choice of leaves, where there are few, whose uses
// are found one by one.
func TestOptimumIsTheLeast(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		leaves, items := 1+r.IntN(9), make([]uint64, 1+r.IntN(40))
		for i := range items {
			items[i] = workload.Scramble(uint64(i))
		}
		slices.Sort(items)
		begin := []uint64{0}
		for range leaves - 1 {
			begin = append(begin, r.Uint64())
		}
		slices.Sort(begin)
		var ops []workload.Operation
		var used []map[int]bool // by operation
		for range 60 {
			o := workload.NewOperation([]workload.Kind{workload.Lookup, workload.Upsert, workload.Modify, workload.Scan}[r.IntN(4)], r.Uint64N(uint64(len(items))), 1+r.IntN(20))
			ops = append(ops, o)
			set, at := map[int]bool{}, slices.Index(items, workload.Scramble(o.Item()))
			most := 1
			if o.Kind() == workload.Scan {
				most = o.Length()
			}
			for k := at; k < min(at+most, len(items)); k++ {
				for l := range leaves {
					if begin[l] <= items[k] && (l+1 == leaves || items[k] < begin[l+1]) {
						set[l] = true
					}
				}
			}
			if o.Kind() == workload.Scan { // leaves between that are empty are read, too
				for l := slices.Min(keysOf(set)); l <= slices.Max(keysOf(set)); l++ {
					set[l] = true
				}
			}
			used = append(used, set)
		}
		kept := r.IntN(leaves + 2)
		least := uint64(1 << 62)
		for choice := range 1 << leaves {
			if bits.OnesCount(uint(choice)) > kept {
				continue
			}
			misses := uint64(0)
			for _, set := range used {
				for l := range set {
					if choice>>l&1 == 0 {
						misses++
					}
				}
			}
			least = min(least, misses)
		}
		if have := beyond(usesOf(begin, ops, items), kept); have != least {
			t.Fatalf("%d leaves, %d of them kept: %d misses, the best choice has %d", leaves, kept, have, least)
		}
	}
}

func keysOf(m map[int]bool) (list []int) {
	for k := range m {
		list = append(list, k)
	}
	return list
}

// TestReadsAreNearTheOptimum: the leaves that are counted are those of the index, and its cache is
// as good as the best one of whole leaves, or better: it keeps entries, too. Half of what A does
// are changes, and a change needs its leaf, whether there is an entry of its key or not.
func TestReadsAreNearTheOptimum(t *testing.T) {
	for w, most := range map[string]float64{"A": 1.22, "B": 1.15, "C": 1.15} {
		for _, keys := range []int{8, 24} {
			r := smallRun(t, w, "shm")
			r.Design, r.BulkLoad, r.Records, r.Ops, r.Warmup, r.CachePercent = "dex", true, 20_000, 40_000, 40_000, 12
			r.Uint64, r.KeyBytes = keys == 8, keys
			s := do(t, r).Summary()
			if s.OptimumReads < 0.2 || s.OptimumReads > 0.6 || s.ReadsOverOptimum < 0.5 || s.ReadsOverOptimum > most {
				t.Errorf("%s, keys of %d bytes: %.3f READs, the optimum is %.3f", w, keys, s.Verbs.Read, s.OptimumReads)
			}
		}
	}
	r := smallRun(t, "C", "shm")
	r.Design = "dex" // and all leaves fit
	if s := do(t, r).Summary(); s.OptimumReads != 0 || s.ReadsOverOptimum != 0 {
		t.Errorf("the optimum is %.3f, and READs are %.3f times as many", s.OptimumReads, s.ReadsOverOptimum)
	}
}

// TestPSherman: compute servers have keys of their own, lookups READ, and nearly no change takes a
// lock of a memory server. There is no log, and no optimum of a cache of leaves.
func TestPSherman(t *testing.T) {
	r := smallRun(t, "A", "sim")
	r.Design, r.CacheBytes = psherman.Name, 1<<20
	s := do(t, r).Summary()
	if s.Verbs.Log != 0 || s.Verbs.Read < 0.9 || s.OptimumReads != 0 || s.Verbs.Atomic > 0.1 {
		t.Errorf("%+v", s)
	}
}
