package index

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/pkg/partition"
)

// TestUnservedRanges: a range is served if servers that answered serve all of its keys.
func TestUnservedRanges(t *testing.T) {
	held := func(start, end, state string, full bool) *rpcv1.OwnedRange {
		return &rpcv1.OwnedRange{Start: []byte(start), End: []byte(end), State: state, PoolFull: full}
	}
	type answers [][]*rpcv1.OwnedRange // nil = no answer
	f := func(name string, owned bool, said answers, want int) {
		t.Helper()
		s := &scope{index: &dmv1.DMIndex{}}
		s.view.Owned = owned
		s.view.Map = &partition.Map{Ranges: []partition.Range{{}, {Start: []byte("g")}, {Start: []byte("p")}}}
		for i, ranges := range said {
			c := computeServer{pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("x-compute-", i)}}}
			if ranges != nil {
				c.described = &rpcv1.DescribeComputeReply{Ranges: ranges}
			}
			s.compute = append(s.compute, c)
		}
		if got := s.unservedRanges(); got != want {
			t.Errorf("%s: %d ranges are unserved, want %d", name, got, want)
		}
	}
	f("nobody answers", true, answers{nil, nil}, 3)
	f("held as one", true, answers{{held("", "", "Serving", false)}}, 0)
	f("each by its owner", true, answers{{held("p", "", "Serving", false)}, {held("", "g", "Serving", false), held("g", "p", "Serving", false)}}, 0)
	f("one does not answer", true, answers{{held("", "g", "Serving", false)}, nil}, 2)
	f("one is taken over", true, answers{{held("", "p", "Serving", false), held("p", "", "Taking", false)}}, 1)
	f("one moves, and its owner before serves it", true, answers{{held("", "", "Serving", false)}, {held("p", "", "Acquiring", false)}}, 0)
	f("one cannot move for want of memory", true, answers{{held("", "p", "Serving", false), held("p", "", "Giving", true)}}, 0)
	f("one waits for memory", true, answers{{held("", "p", "Serving", false), held("p", "", "Taking", true)}}, 1)
	f("a part is served", true, answers{{held("", "k", "Serving", false), held("p", "", "Serving", false)}}, 1)
	f("a gap lies within", true, answers{{held("g", "h", "Serving", false), held("i", "", "Serving", false), held("", "g", "Serving", false)}}, 1)
	f("all share everything, one answers", false, answers{nil, {}}, 0)
	f("all share everything, none answers", false, answers{nil, nil}, 3)
}

// shown collects the metrics of indexes.
type shown struct {
	of      *Reconciler
	indexes []dmv1.DMIndex
	pools   []dmv1.DMMemoryPool
}

func (s *shown) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range Descs() {
		descs <- d
	}
}

func (s *shown) Collect(metrics chan<- prometheus.Metric) {
	s.of.Show(s.indexes, s.pools, func(d *prometheus.Desc, v float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	})
}

// TestMetrics: what the status of an index says is shown; nothing of an index that is gone.
func TestMetrics(t *testing.T) {
	index := dmv1.DMIndex{ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: "shop", UID: "uid", Generation: 4}}
	index.Spec.MemoryPools = []dmv1.IndexMemoryPool{{Name: "memory"}, {Name: "big"}}
	index.Status.ObservedGeneration = 3
	index.Status.Conditions = []metav1.Condition{
		{Type: dmv1.ConditionAvailable, Status: metav1.ConditionTrue, Reason: dmv1.ReasonServing},
		{Type: dmv1.ConditionDegraded, Status: metav1.ConditionFalse, Reason: dmv1.ReasonAsDesired},
	}
	index.Status.Map = &dmv1.PartitionMap{RangeCount: 5}
	index.Status.MemoryServers = []dmv1.IndexMemoryServer{
		{ID: int32(build.MemoryServerID(0, 0)), State: dmv1.ServerReady, QuotaChunks: 4, UsedChunks: 1},
		{ID: int32(build.MemoryServerID(0, 1)), State: dmv1.ServerUnreachable, QuotaChunks: 4, UsedChunks: 2},
		{ID: int32(build.MemoryServerID(1, 0)), State: dmv1.ServerReady, QuotaChunks: 8},
	}
	index.Status.ComputeServers = []dmv1.IndexComputeServer{{State: dmv1.ServerReady}, {State: dmv1.ServerReady}}
	pool := dmv1.DMMemoryPool{ObjectMeta: metav1.ObjectMeta{Name: "demo-memory", Namespace: "shop"}}
	big := dmv1.DMMemoryPool{ObjectMeta: metav1.ObjectMeta{Name: "demo-big", Namespace: "shop"}}
	size := resource.MustParse("16Mi")
	big.Spec.ChunkSize = &size

	m := &shown{&Reconciler{served: newServed()}, []dmv1.DMIndex{index}, []dmv1.DMMemoryPool{pool, big}}
	f := func(when, want string) {
		t.Helper()
		if err := testutil.CollectAndCompare(m, strings.NewReader(want)); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	s := &scope{index: &index}
	s.view.Map, s.view.Owned = &partition.Map{Ranges: make([]partition.Range, 2)}, true
	m.of.served.record(s)
	f("it is there", `# HELP dmindex_index_condition 1 while a condition of the index is true, 0 while it is not; the reason is the condition's.
# TYPE dmindex_index_condition gauge
dmindex_index_condition{condition="Available",index="demo",namespace="shop",reason="Serving"} 1
dmindex_index_condition{condition="Degraded",index="demo",namespace="shop",reason="AsDesired"} 0
# HELP dmindex_index_generation Generation of the spec: the newest, and the newest that the index was made to be.
# TYPE dmindex_index_generation gauge
dmindex_index_generation{index="demo",namespace="shop",of="observed"} 3
dmindex_index_generation{index="demo",namespace="shop",of="spec"} 4
# HELP dmindex_index_memory_quota_bytes Memory that the index may use at the servers of one of its memory pools, as they said last.
# TYPE dmindex_index_memory_quota_bytes gauge
dmindex_index_memory_quota_bytes{index="demo",namespace="shop",pool="demo-big"} 1.34217728e+08
dmindex_index_memory_quota_bytes{index="demo",namespace="shop",pool="demo-memory"} 6.7108864e+07
# HELP dmindex_index_memory_used_bytes Memory that the index uses of that, in whole chunks.
# TYPE dmindex_index_memory_used_bytes gauge
dmindex_index_memory_used_bytes{index="demo",namespace="shop",pool="demo-big"} 0
dmindex_index_memory_used_bytes{index="demo",namespace="shop",pool="demo-memory"} 2.5165824e+07
# HELP dmindex_index_ranges Key ranges of the index's partition map.
# TYPE dmindex_index_ranges gauge
dmindex_index_ranges{index="demo",namespace="shop"} 5
# HELP dmindex_index_ranges_unserved Key ranges that no compute server serves: their owner does not answer, or waits for a fence, for memory or for the owner before it.
# TYPE dmindex_index_ranges_unserved gauge
dmindex_index_ranges_unserved{index="demo",namespace="shop"} 2
# HELP dmindex_index_servers Servers of the index by component (memory, compute) and state.
# TYPE dmindex_index_servers gauge
dmindex_index_servers{component="compute",index="demo",namespace="shop",state="Ready"} 2
dmindex_index_servers{component="memory",index="demo",namespace="shop",state="Ready"} 2
dmindex_index_servers{component="memory",index="demo",namespace="shop",state="Unreachable"} 1
`)
	s.view.Map = nil
	m.of.served.record(s)
	if n := testutil.CollectAndCount(m, "dmindex_index_ranges_unserved"); n != 0 {
		t.Errorf("%d: a look that did not come to the map says what is served", n)
	}
	m.indexes = nil
	f("the index is gone", "")
}
