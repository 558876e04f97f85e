package controllers

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/backup"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/memorypool"
)

var (
	descLeading = prometheus.NewDesc("dmindex_operator_leading",
		"1 of the operator that leads, 0 of those that wait. Only the one that leads shows indexes and memory pools.", nil, nil)
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

// collectLimit bounds how long the collector waits for the cache, which may not be filled yet.
const collectLimit = 5 * time.Second

// indexMetrics are what the operator shows of each index and memory pool. They are read from the
// cache when somebody asks for them, so an object that is gone is not shown, and nothing is to be
// removed.
type indexMetrics struct {
	reader  client.Reader
	elected <-chan struct{} // closed when this operator leads
	served  *served
	memory  *memorypool.Reconciler
	leases  *namespaceLeases // nil = without
}

// Describe implements prometheus.Collector.
func (m *indexMetrics) Describe(descs chan<- *prometheus.Desc) {
	own := []*prometheus.Desc{descLeading, descCondition, descGeneration, descRanges, descUnserved, descServers, descQuota, descUsed}
	for _, d := range slices.Concat(own, backup.Descs(), memorypool.Descs()) {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (m *indexMetrics) Collect(metrics chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	select {
	case <-m.elected:
		gauge(descLeading, 1)
	default:
		gauge(descLeading, 0)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), collectLimit)
	defer cancel()
	indexes, pools := &dmv1.DMIndexList{}, &dmv1.DMMemoryPoolList{}
	backups, schedules := &dmv1.DMBackupList{}, &dmv1.DMBackupScheduleList{}
	for _, list := range []client.ObjectList{indexes, pools, backups, schedules} {
		if err := m.reader.List(ctx, list); err != nil {
			metrics <- prometheus.NewInvalidMetric(descCondition, err)
			return
		}
	}
	// Their own operator shows them.
	indexes.Items = slices.DeleteFunc(indexes.Items, func(o dmv1.DMIndex) bool { return m.leases.isOthers(o.Namespace) })
	pools.Items = slices.DeleteFunc(pools.Items, func(o dmv1.DMMemoryPool) bool { return m.leases.isOthers(o.Namespace) })
	backups.Items = slices.DeleteFunc(backups.Items, func(o dmv1.DMBackup) bool { return m.leases.isOthers(o.Namespace) })
	schedules.Items = slices.DeleteFunc(schedules.Items, func(o dmv1.DMBackupSchedule) bool { return m.leases.isOthers(o.Namespace) })
	chunk := map[types.NamespacedName]int64{}
	for i := range pools.Items {
		chunk[client.ObjectKeyFromObject(&pools.Items[i])] = build.ChunkSize(&pools.Items[i])
	}
	for i := range indexes.Items {
		m.show(&indexes.Items[i], chunk, gauge)
	}
	backup.Show(backups.Items, schedules.Items, gauge)
	m.memory.Show(pools.Items, indexes.Items, metrics)
}

// show shows one index. chunk is the chunk size of each memory pool.
func (m *indexMetrics) show(index *dmv1.DMIndex, chunk map[types.NamespacedName]int64, gauge func(*prometheus.Desc, float64, ...string)) {
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
		if n, known := m.served.unserved(index.UID); known {
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
func (v *served) record(s *indexScope) {
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
func (s *indexScope) unservedRanges() (n int) {
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
