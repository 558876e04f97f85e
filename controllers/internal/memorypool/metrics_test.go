package memorypool

import (
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/operatortest"
)

// shown collects the metrics of pools.
type shown struct {
	of      *Reconciler
	pools   []dmv1.DMMemoryPool
	indexes []dmv1.DMIndex
}

func (s *shown) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range Descs() {
		descs <- d
	}
}

func (s *shown) Collect(metrics chan<- prometheus.Metric) {
	s.of.Show(s.pools, s.indexes, metrics)
}

// TestMetrics: what the status of a memory pool says is shown, with how many copies are wanted
// and what was counted; nothing of a pool that is gone.
func TestMetrics(t *testing.T) {
	pool := dmv1.DMMemoryPool{ObjectMeta: metav1.ObjectMeta{Name: "big", Namespace: "shop", UID: "uid"}}
	pool.Spec.Copies = 2
	pool.Status.Conditions = []metav1.Condition{{Type: dmv1.ConditionDegraded, Status: metav1.ConditionTrue, Reason: dmv1.ReasonCopyMissing}}
	pool.Status.Volumes = []dmv1.VolumeStatus{
		{ID: 0, View: 4, Primary: "big-0", Backup: "big-1024", State: dmv1.VolumeInSync},
		{ID: 1, View: 7, Primary: "big-1", State: dmv1.VolumeAlone},
		{ID: 2, View: 3, Primary: "big-2", Backup: "big-1025", State: dmv1.VolumeLost},
		{ID: 3, View: 5, Primary: "big-3", State: dmv1.VolumeCopying, Percent: 37},
	}
	one := dmv1.DMMemoryPool{ObjectMeta: metav1.ObjectMeta{Name: "one", Namespace: "shop"}}
	raised := dmv1.DMMemoryPool{ObjectMeta: metav1.ObjectMeta{Name: "demo-memory", Namespace: "shop"}}
	elsewhere := dmv1.DMMemoryPool{ObjectMeta: metav1.ObjectMeta{Name: "demo-memory", Namespace: "other"}}
	for _, p := range []*dmv1.DMMemoryPool{&one, &raised, &elsewhere} {
		p.Status.Volumes = []dmv1.VolumeStatus{{ID: 0, State: dmv1.VolumeAlone}}
	}
	replicated := dmv1.DMIndex{ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: "shop"}}
	replicated.Spec.Durability, replicated.Spec.MemoryPools = dmv1.DurabilityReplicated, []dmv1.IndexMemoryPool{{Name: "memory"}}
	going := dmv1.DMIndex{ObjectMeta: metav1.ObjectMeta{Name: "gone", Namespace: "shop", DeletionTimestamp: &metav1.Time{Time: operatortest.Noon}}}
	going.Spec.Durability, going.Spec.MemoryPools = dmv1.DurabilityReplicated, []dmv1.IndexMemoryPool{{Name: "memory", Ref: &dmv1.LocalReference{Name: "one"}}}

	m := &shown{&Reconciler{volumeEvents: &volumeEvents{}}, []dmv1.DMMemoryPool{pool, one, raised, elsewhere}, []dmv1.DMIndex{replicated, going}}
	for range 2 {
		m.of.volumeEvents.count("uid", 1, dmv1.ReasonFailedOver)
	}
	m.of.volumeEvents.count("another", 0, dmv1.ReasonFailedOver)
	names := []string{"dmindex_memory_pool_condition", "dmindex_memory_pool_copies", "dmindex_volume_view", "dmindex_volume_copied_percent", "dmindex_volume_copies", "dmindex_volume_events_total"}
	f := func(when, want string) {
		t.Helper()
		if err := testutil.CollectAndCompare(m, strings.NewReader(want), names...); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	f("pools are there", `# HELP dmindex_memory_pool_condition 1 while a condition of the memory pool is true, 0 while it is not; the reason is the condition's.
# TYPE dmindex_memory_pool_condition gauge
dmindex_memory_pool_condition{condition="Degraded",namespace="shop",pool="big",reason="CopyMissing"} 1
# HELP dmindex_memory_pool_copies How many copies of each volume of the memory pool are wanted: spec.copies, or 2 while an index with durability Replicated names the pool. Of pools whose status.volumes shows any.
# TYPE dmindex_memory_pool_copies gauge
dmindex_memory_pool_copies{namespace="other",pool="demo-memory"} 1
dmindex_memory_pool_copies{namespace="shop",pool="big"} 2
dmindex_memory_pool_copies{namespace="shop",pool="demo-memory"} 2
dmindex_memory_pool_copies{namespace="shop",pool="one"} 1
# HELP dmindex_volume_copied_percent How much of its memory the primary of the volume has sent to a copy that joins, in percent. Of volumes with a copy that joins.
# TYPE dmindex_volume_copied_percent gauge
dmindex_volume_copied_percent{namespace="shop",pool="big",volume="3"} 37
# HELP dmindex_volume_copies How many copies of the volume have all that was acknowledged, by the recorded view; 0 = it is lost. Of volumes that status.volumes shows.
# TYPE dmindex_volume_copies gauge
dmindex_volume_copies{namespace="other",pool="demo-memory",volume="0"} 1
dmindex_volume_copies{namespace="shop",pool="big",volume="0"} 2
dmindex_volume_copies{namespace="shop",pool="big",volume="1"} 1
dmindex_volume_copies{namespace="shop",pool="big",volume="2"} 0
dmindex_volume_copies{namespace="shop",pool="big",volume="3"} 1
dmindex_volume_copies{namespace="shop",pool="demo-memory",volume="0"} 1
dmindex_volume_copies{namespace="shop",pool="one",volume="0"} 1
# HELP dmindex_volume_events_total Events of the volume since this operator started, by reason: VolumeMoved, FailedOver, CopyDropped. Of volumes that status.volumes shows.
# TYPE dmindex_volume_events_total counter
dmindex_volume_events_total{namespace="other",pool="demo-memory",reason="CopyDropped",volume="0"} 0
dmindex_volume_events_total{namespace="other",pool="demo-memory",reason="FailedOver",volume="0"} 0
dmindex_volume_events_total{namespace="other",pool="demo-memory",reason="VolumeMoved",volume="0"} 0
dmindex_volume_events_total{namespace="shop",pool="big",reason="CopyDropped",volume="0"} 0
dmindex_volume_events_total{namespace="shop",pool="big",reason="CopyDropped",volume="1"} 0
dmindex_volume_events_total{namespace="shop",pool="big",reason="CopyDropped",volume="2"} 0
dmindex_volume_events_total{namespace="shop",pool="big",reason="CopyDropped",volume="3"} 0
dmindex_volume_events_total{namespace="shop",pool="big",reason="FailedOver",volume="0"} 0
dmindex_volume_events_total{namespace="shop",pool="big",reason="FailedOver",volume="1"} 2
dmindex_volume_events_total{namespace="shop",pool="big",reason="FailedOver",volume="2"} 0
dmindex_volume_events_total{namespace="shop",pool="big",reason="FailedOver",volume="3"} 0
dmindex_volume_events_total{namespace="shop",pool="big",reason="VolumeMoved",volume="0"} 0
dmindex_volume_events_total{namespace="shop",pool="big",reason="VolumeMoved",volume="1"} 0
dmindex_volume_events_total{namespace="shop",pool="big",reason="VolumeMoved",volume="2"} 0
dmindex_volume_events_total{namespace="shop",pool="big",reason="VolumeMoved",volume="3"} 0
dmindex_volume_events_total{namespace="shop",pool="demo-memory",reason="CopyDropped",volume="0"} 0
dmindex_volume_events_total{namespace="shop",pool="demo-memory",reason="FailedOver",volume="0"} 0
dmindex_volume_events_total{namespace="shop",pool="demo-memory",reason="VolumeMoved",volume="0"} 0
dmindex_volume_events_total{namespace="shop",pool="one",reason="CopyDropped",volume="0"} 0
dmindex_volume_events_total{namespace="shop",pool="one",reason="FailedOver",volume="0"} 0
dmindex_volume_events_total{namespace="shop",pool="one",reason="VolumeMoved",volume="0"} 0
# HELP dmindex_volume_view Number of the recorded view of a volume of a memory pool: it goes up with each fail-over, each move, and each copy that comes or goes. 0 = none is recorded. Of volumes that status.volumes shows.
# TYPE dmindex_volume_view gauge
dmindex_volume_view{namespace="other",pool="demo-memory",volume="0"} 0
dmindex_volume_view{namespace="shop",pool="big",volume="0"} 4
dmindex_volume_view{namespace="shop",pool="big",volume="1"} 7
dmindex_volume_view{namespace="shop",pool="big",volume="2"} 3
dmindex_volume_view{namespace="shop",pool="big",volume="3"} 5
dmindex_volume_view{namespace="shop",pool="demo-memory",volume="0"} 0
dmindex_volume_view{namespace="shop",pool="one",volume="0"} 0
`)
	m.pools = nil
	f("they are gone", "")
}

// TestVolumeEventsBounded: what is counted of pools that are gone is not kept for ever.
func TestVolumeEventsBounded(t *testing.T) {
	e := &volumeEvents{}
	for i := range mostPools + 1 {
		e.count(types.UID(strconv.Itoa(i)), 0, dmv1.ReasonFailedOver)
	}
	if len(e.pools) != 1 || e.of(types.UID(strconv.Itoa(mostPools)), 0)[dmv1.ReasonFailedOver] != 1 {
		t.Errorf("%d pools are remembered", len(e.pools))
	}
}
