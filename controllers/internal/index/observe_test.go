package index

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
	"github.com/dmindex/dmindex/controllers/internal/report"
	"github.com/dmindex/dmindex/controllers/internal/volume"
	"github.com/dmindex/dmindex/controllers/internal/volumetest"
)

// TestObserveVolumes: a volume is not lost with a pod as long as another pod that has a copy is
// named, and only the pod that answers is believed.
func TestObserveVolumes(t *testing.T) {
	goes := volumetest.CopyPod(0, 0)
	now := metav1.Now()
	goes.DeletionTimestamp = &now
	f := func(view volume.View, want string, pods ...*corev1.Pod) {
		t.Helper()
		m := memoryPool{pool: &dmv1.DMMemoryPool{ObjectMeta: metav1.ObjectMeta{Name: "pool"}}, record: volume.Record{Views: map[int]volume.View{0: view}}}
		m.pods, m.elsewhere = m.record.Answering(pods, nil)
		m.described = map[int]*rpcv1.DescribeMemoryReply{}
		for _, p := range m.pods {
			m.described[podstate.VolumeOf(p)] = &rpcv1.DescribeMemoryReply{Incarnation: 7}
		}
		v := judgeMemory(map[uint16]uint64{1: 7}, nil, m.observe(0), nil, func(uint16) string { return m.record.PodOf("pool", 0) })
		if got := fmt.Sprint(v.servers[0].pod, " ", v.servers[0].state); got != want {
			t.Errorf("%v: %s, want %s", view, got, want)
		}
	}
	f(volumetest.ViewOf(2, 0, 1024), "pool-0 Ready", volumetest.CopyPod(0, 0), volumetest.CopyPod(1024, 0))
	f(volumetest.ViewOf(2, 0, 1024), "pool-0 Unreachable", volumetest.CopyPod(1024, 0))
	f(volumetest.ViewOf(2, 0, 1024), "pool-0 Ready", goes, volumetest.CopyPod(1024, 0))
	f(volumetest.ViewOf(1, 0), "pool-0 Lost", goes, volumetest.CopyPod(1024, 0))
	f(volumetest.ViewOf(3, 1024), "pool-1024 Ready", volumetest.CopyPod(0, 0), volumetest.CopyPod(1024, 0))
	f(volumetest.ViewOf(3, 1024), "pool-1024 Lost", volumetest.CopyPod(0, 0))
}

// TestCacheBehindMove: a cache that does not know yet where a volume went is not believed that it
// is lost.
func TestCacheBehindMove(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{dmv1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	f := func(recorded, known volume.Record, pods []client.Object, want dmv1.ServerState) {
		t.Helper()
		pool := &dmv1.DMMemoryPool{ObjectMeta: metav1.ObjectMeta{Name: "pool", Namespace: "ns", UID: "pool-uid", Annotations: map[string]string{}}}
		pool.Annotations[dmv1.AnnotationVolumes] = recorded.String()
		report.SetCondition(&pool.Status.Conditions, 1, dmv1.ConditionPoolReady, true, dmv1.ReasonAsDesired, "")
		live := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(pods, pool)...).WithStatusSubresource(pool).Build()
		r := &Reconciler{Base: reconciler.Base{Keeper: decision.Keeper{Writer: kube.Writer{Client: live, Live: decision.Reader{Reader: live}}}}}
		s := &scope{index: &dmv1.DMIndex{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}, memoryPools: []memoryPool{{pool: pool, record: known}}}
		s.verdict = memoryVerdict{recorded: true, servers: []memoryServer{{id: 1, pod: known.PodOf("pool", 0), state: dmv1.ServerLost, why: podGone}}}
		r.confirmLoss(context.Background(), s, s.verdict.servers)
		if got := s.verdict.servers[0].state; got != want {
			t.Errorf("recorded %v, known %v: %s, want %s (%v)", recorded, known, got, want, s.problems)
		}
	}
	one := func(v volume.View) volume.Record { return volume.Record{Views: map[int]volume.View{0: v}} }
	f(volume.Record{}, volume.Record{}, nil, dmv1.ServerLost)
	f(one(volumetest.ViewOf(3, 1024)), volume.Record{}, nil, dmv1.ServerUnreachable)
	f(one(volumetest.ViewOf(3, 1024)), one(volumetest.ViewOf(2, 0, 1024)), nil, dmv1.ServerUnreachable)
	f(one(volumetest.ViewOf(2, 0, 1024)), one(volumetest.ViewOf(2, 0, 1024)), []client.Object{volumetest.CopyPod(1024, 0)}, dmv1.ServerUnreachable)
	f(one(volumetest.ViewOf(2, 0, 1024)), one(volumetest.ViewOf(2, 0, 1024)), nil, dmv1.ServerLost)
}
