package index

import (
	"bytes"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
)

var (
	descCondition = prometheus.NewDesc("dmindex_index_condition",
		"1 while a condition of the index is true, 0 while it is not; the reason is the condition's.", []string{"namespace", "index", "condition", "reason"}, nil)
	descGeneration = prometheus.NewDesc("dmindex_index_generation",
		"Generation of the spec: the newest, and the newest that the index was made to be.", []string{"namespace", "index", "of"}, nil)
	descRanges = prometheus.NewDesc("dmindex_index_ranges",
		"Key ranges of the index's partition map.", []string{"namespace", "index"}, nil)
	descUnserved = prometheus.NewDesc("dmindex_index_ranges_unserved",
		"Key ranges that no compute server serves: their owner does not answer, or waits for a fence, for memory or for the owner before it.", []string{"namespace", "index"}, nil)
	descServers = prometheus.NewDesc("dmindex_index_servers",
		"Servers of the index by component (memory, compute) and state.", []string{"namespace", "index", "component", "state"}, nil)
	descQuota = prometheus.NewDesc("dmindex_index_memory_quota_bytes",
		"Memory that the index may use at the servers of one of its memory pools, as they said last.", []string{"namespace", "index", "pool"}, nil)
	descUsed = prometheus.NewDesc("dmindex_index_memory_used_bytes",
		"Memory that the index uses of that, in whole chunks.", []string{"namespace", "index", "pool"}, nil)
)

// Descs are the metrics of indexes.
func Descs() []*prometheus.Desc {
	return []*prometheus.Desc{descCondition, descGeneration, descRanges, descUnserved, descServers, descQuota, descUsed}
}

// Show shows indexes, whose memory is in chunks of pools.
func (r *Reconciler) Show(indexes []dmv1.DMIndex, pools []dmv1.DMMemoryPool, gauge func(*prometheus.Desc, float64, ...string)) {
	chunk := map[types.NamespacedName]int64{}
	for i := range pools {
		chunk[client.ObjectKeyFromObject(&pools[i])] = build.ChunkSize(&pools[i])
	}
	for i := range indexes {
		r.show(&indexes[i], chunk, gauge)
	}
}

// show shows one index. chunk is the chunk size of each memory pool.
func (r *Reconciler) show(index *dmv1.DMIndex, chunk map[types.NamespacedName]int64, gauge func(*prometheus.Desc, float64, ...string)) {
	ns, name := index.Namespace, index.Name
	for _, c := range index.Status.Conditions {
		is := 0.0
		if c.Status == "True" {
			is = 1
		}
		gauge(descCondition, is, ns, name, c.Type, c.Reason)
	}
	gauge(descGeneration, float64(index.Generation), ns, name, "spec")
	gauge(descGeneration, float64(index.Status.ObservedGeneration), ns, name, "observed")
	if index.Status.Map != nil {
		gauge(descRanges, float64(index.Status.Map.RangeCount), ns, name)
		if n, known := r.served.unserved(index.UID); known {
			gauge(descUnserved, float64(n), ns, name)
		}
	}
	states := map[[2]string]int{}
	for _, s := range index.Status.ComputeServers {
		states[[2]string{dmv1.ComponentCompute, string(s.State)}]++
	}
	quota, used := map[string]int64{}, map[string]int64{}
	for _, s := range index.Status.MemoryServers {
		states[[2]string{dmv1.ComponentMemory, string(s.State)}]++
		ordinal, _ := build.MemoryServerVolume(uint16(s.ID))
		if ordinal >= len(index.Spec.MemoryPools) {
			continue
		}
		pool := build.MemoryPoolOf(index, index.Spec.MemoryPools[ordinal])
		size := chunk[types.NamespacedName{Namespace: ns, Name: pool}]
		quota[pool] += s.QuotaChunks * size
		used[pool] += s.UsedChunks * size
	}
	for s, n := range states {
		gauge(descServers, float64(n), ns, name, s[0], s[1])
	}
	for pool, bytes := range quota {
		gauge(descQuota, float64(bytes), ns, name, pool)
		gauge(descUsed, float64(used[pool]), ns, name, pool)
	}
}

// served is how many ranges of each index nobody serves, as its reconciler saw last. The status
// does not have it: ranges that move come and go faster than objects should be written.
type served struct {
	mu      sync.Mutex
	indexes map[types.UID]int
}

func newServed() *served { return &served{indexes: map[types.UID]int{}} }

// record keeps what a look at an index found; one that did not come to the map knows nothing.
func (v *served) record(s *scope) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s.view.Map == nil {
		delete(v.indexes, s.index.UID)
		return
	}
	v.indexes[s.index.UID] = s.unservedRanges()
}

func (v *served) forget(index types.UID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.indexes, index)
}

func (v *served) unserved(index types.UID) (n int, known bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	n, known = v.indexes[index]
	return n, known
}

// unservedRanges counts the ranges of the map of which some key is served by no compute server that
// answered. A server of a design whose ranges have no owners serves all of them.
func (s *scope) unservedRanges() (n int) {
	type interval struct{ start, end []byte }
	var held []interval
	for i := range s.compute {
		d := s.compute[i].described
		if d != nil && !s.view.Owned && d.DataLost == "" {
			return 0
		}
		for _, r := range d.GetRanges() {
			if r.State == "Serving" || r.PoolFull && stays(r) {
				held = append(held, interval{r.Start, r.End})
			}
		}
	}
	slices.SortFunc(held, func(a, b interval) int { return bytes.Compare(a.start, b.start) })
	for i := range s.view.Map.Ranges {
		span := s.view.Map.Span(i)
		at, done := span.Start, false // the keys before at are served
		for _, h := range held {
			if done || bytes.Compare(h.start, at) > 0 {
				break
			}
			if len(h.end) == 0 {
				done = true
			} else if bytes.Compare(h.end, at) > 0 {
				at = h.end
				done = len(span.End) > 0 && bytes.Compare(at, span.End) >= 0
			}
		}
		if !done {
			n++
		}
	}
	return n
}
