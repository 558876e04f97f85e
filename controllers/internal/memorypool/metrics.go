package memorypool

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
)

var (
	descPoolCondition = prometheus.NewDesc("dmindex_memory_pool_condition",
		"1 while a condition of the memory pool is true, 0 while it is not; the reason is the condition's.", []string{"namespace", "pool", "condition", "reason"}, nil)
	descPoolCopies = prometheus.NewDesc("dmindex_memory_pool_copies",
		"How many copies of each volume of the memory pool are wanted: spec.copies, or 2 while an index with durability Replicated names the pool. Of pools whose status.volumes shows any.", []string{"namespace", "pool"}, nil)
	descVolumeView = prometheus.NewDesc("dmindex_volume_view",
		"Number of the recorded view of a volume of a memory pool: it goes up with each fail-over, each move, and each copy that comes or goes. 0 = none is recorded. Of volumes that status.volumes shows.", []string{"namespace", "pool", "volume"}, nil)
	descVolumeCopies = prometheus.NewDesc("dmindex_volume_copies",
		"How many copies of the volume have all that was acknowledged, by the recorded view; 0 = it is lost. Of volumes that status.volumes shows.", []string{"namespace", "pool", "volume"}, nil)
	descVolumeCopied = prometheus.NewDesc("dmindex_volume_copied_percent",
		"How much of its memory the primary of the volume has sent to a copy that joins, in percent. Of volumes with a copy that joins.", []string{"namespace", "pool", "volume"}, nil)
	descVolumeEvents = prometheus.NewDesc("dmindex_volume_events_total",
		"Events of the volume since this operator started, by reason: VolumeMoved, FailedOver, CopyDropped. Of volumes that status.volumes shows.", []string{"namespace", "pool", "volume", "reason"}, nil)
)

// Descs are the metrics of memory pools.
func Descs() []*prometheus.Desc {
	return []*prometheus.Desc{descPoolCondition, descPoolCopies, descVolumeView, descVolumeCopies, descVolumeCopied, descVolumeEvents}
}

// Show shows memory pools. Reasons are constants, and a status has at most
// dmv1.MaxShownVolumes volumes: no pool has more series than these allow.
func (r *Reconciler) Show(pools []dmv1.DMMemoryPool, indexes []dmv1.DMIndex, metrics chan<- prometheus.Metric) {
	show := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	replicated := replicatedPools(indexes)
	for i := range pools {
		pool := &pools[i]
		ns, name := pool.Namespace, pool.Name
		for _, c := range pool.Status.Conditions {
			is := 0.0
			if c.Status == "True" {
				is = 1
			}
			show(descPoolCondition, prometheus.GaugeValue, is, ns, name, c.Type, c.Reason)
		}
		if len(pool.Status.Volumes) > 0 {
			show(descPoolCopies, prometheus.GaugeValue, float64(copiesOf(pool, replicated[client.ObjectKeyFromObject(pool)])), ns, name)
		}
		for _, v := range pool.Status.Volumes {
			number := strconv.Itoa(int(v.ID))
			show(descVolumeView, prometheus.GaugeValue, float64(v.View), ns, name, number)
			show(descVolumeCopies, prometheus.GaugeValue, float64(wholeCopies(&v)), ns, name, number)
			if v.State == dmv1.VolumeCopying {
				show(descVolumeCopied, prometheus.GaugeValue, float64(v.Percent), ns, name, number)
			}
			for reason, n := range r.volumeEvents.of(pool.UID, int(v.ID)) {
				show(descVolumeEvents, prometheus.CounterValue, float64(n), ns, name, number, reason)
			}
		}
	}
}

// replicatedPools are the memory pools that indexes with durability Replicated name, as in
// volume.UseOf.
func replicatedPools(indexes []dmv1.DMIndex) map[types.NamespacedName]bool {
	pools := map[types.NamespacedName]bool{}
	for i := range indexes {
		index := &indexes[i]
		if index.Spec.Durability != dmv1.DurabilityReplicated || !index.DeletionTimestamp.IsZero() {
			continue
		}
		for _, p := range index.Spec.MemoryPools {
			pools[types.NamespacedName{Namespace: index.Namespace, Name: build.MemoryPoolOf(index, p)}] = true
		}
	}
	return pools
}

// wholeCopies is how many copies of a volume have all that was acknowledged.
func wholeCopies(v *dmv1.VolumeStatus) int {
	switch {
	case v.State == dmv1.VolumeLost:
		return 0
	case v.Backup != "":
		return 2
	}
	return 1
}

// volumeEvents counts the events of volumes since this operator started. The status does not have
// that: it says what is.
type volumeEvents struct {
	mu    sync.Mutex
	pools map[types.UID]map[int]map[string]int // by pool, volume and reason
}

// count counts an event. A pool that is gone is forgotten with all others when there are too many;
// whoever reads counters takes that for a restart.
func (e *volumeEvents) count(pool types.UID, volume int, reason string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pools[pool] == nil {
		if e.pools == nil || len(e.pools) >= mostPools {
			e.pools = map[types.UID]map[int]map[string]int{}
		}
		e.pools[pool] = map[int]map[string]int{}
	}
	if e.pools[pool][volume] == nil {
		e.pools[pool][volume] = map[string]int{}
	}
	e.pools[pool][volume][reason]++
}

// of is how often each event of a volume was counted. Those that never were are there with 0: a
// counter that begins with 1 shows no increase.
func (e *volumeEvents) of(pool types.UID, volume int) map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	counted := e.pools[pool][volume]
	return map[string]int{
		dmv1.ReasonVolumeMoved: counted[dmv1.ReasonVolumeMoved],
		dmv1.ReasonFailedOver:  counted[dmv1.ReasonFailedOver],
		dmv1.ReasonCopyDropped: counted[dmv1.ReasonCopyDropped],
	}
}
