package controllers

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
	"github.com/dmindex/dmindex/controllers/internal/report"
)

// copyPod is a pod of pool "pool" that was made for a volume; its UID is "u" and its number.
func copyPod(number, volume int) *corev1.Pod {
	p := &corev1.Pod{}
	p.Name, p.Namespace, p.UID = build.PodName("pool", number), "ns", types.UID(fmt.Sprint("u", number))
	p.Spec.Containers = []corev1.Container{{Name: dmv1.ComponentMemory, Args: []string{"memserver", fmt.Sprintf("--id=%d", volume+1)}}}
	return p
}

// viewOf is a view of pods of pool "pool".
func viewOf(number uint64, pods ...int) volumeView {
	v := volumeView{Number: number}
	for i, n := range pods {
		p := &volumeProc{Pod: build.PodName("pool", n), UID: fmt.Sprint("u", n), Process: 1}
		switch {
		case i == 0:
			v.Primary = *p
		case i == 1 && n >= 0:
			v.Backup = p
		case i == 2:
			v.Earlier = p
		}
	}
	return v
}

// TestAnswering: the record says which pod answers for a volume; without one it is the pod with the
// volume's number, whatever labels say.
func TestAnswering(t *testing.T) {
	f := func(views map[int]volumeView, want string, pods ...*corev1.Pod) {
		t.Helper()
		answering, elsewhere := volumeRecord{Views: views}.answering(pods, nil)
		var names []string
		for _, p := range answering {
			names = append(names, fmt.Sprintf("%s:%d", p.Name, podstate.VolumeOf(p)))
		}
		if got := fmt.Sprint(names, elsewhere); got != want {
			t.Errorf("%v: %s, want %s", views, got, want)
		}
	}
	labelled := copyPod(0, 0)
	labelled.Labels = map[string]string{dmv1.LabelVolume: "5", dmv1.LabelServerID: "5"}
	failed := copyPod(1025, 0)
	failed.Status.Phase = corev1.PodFailed
	strange := copyPod(1026, 0)
	strange.Spec.Containers[0].Args = nil

	f(nil, "[pool-0:0 pool-1:1] -", copyPod(0, 0), copyPod(1, 1))
	f(nil, "[pool-0:0] -", labelled, copyPod(1024, 0), strange)
	f(map[int]volumeView{0: viewOf(2, 0, 1024)}, "[pool-0:0 pool-1:1] 0", copyPod(0, 0), copyPod(1, 1), copyPod(1024, 0))
	f(map[int]volumeView{0: viewOf(3, 1024)}, "[pool-1024:0 pool-1:1] -", copyPod(1, 1), copyPod(1024, 0))
	// the former primary is there still
	f(map[int]volumeView{0: viewOf(3, 1024)}, "[pool-1024:0] -", copyPod(0, 0), copyPod(1024, 0))
	// it is to be named again
	f(map[int]volumeView{0: viewOf(3, 1024, -1, 0)}, "[] 0", copyPod(0, 0))
	f(map[int]volumeView{0: viewOf(2, 0, 1024)}, "[] 0", copyPod(1024, 0))
	f(map[int]volumeView{0: viewOf(2, 0, 1025)}, "[] -", failed)
	f(map[int]volumeView{0: viewOf(2, 0, 1024)}, "[] -", copyPod(1027, 0))
}

// TestVolumeRecord: what the annotation says, and what is no such thing.
func TestVolumeRecord(t *testing.T) {
	pool := &dmv1.DMMemoryPool{ObjectMeta: metav1.ObjectMeta{Name: "pool", Annotations: map[string]string{}}}
	r := volumeRecord{Next: 1027, Views: map[int]volumeView{0: viewOf(2, 0, 1024), 7: viewOf(3, 1025, -1, 7)}}
	pool.Annotations[dmv1.AnnotationVolumes] = r.String()
	if got, err := recordOf(pool); err != nil || got.String() != r.String() || got.podOf("pool", 7) != "pool-1025" || got.podOf("pool", 8) != "pool-8" {
		t.Errorf("%s %v, want %s", got, err, r)
	}
	if text := (volumeRecord{}).String(); text != "" {
		t.Errorf("nothing to say is %q", text)
	}
	for _, text := range []string{"x", `{"views":{"1024":{"view":1,"primary":{"uid":"u"}}}}`, `{"views":{"0":{"view":1}}}`, `{"views":{"0":{"primary":{"uid":"u"}}}}`} {
		pool.Annotations[dmv1.AnnotationVolumes] = text
		if _, err := recordOf(pool); err == nil || !strings.Contains(err.Error(), dmv1.AnnotationVolumes) {
			t.Errorf("%s is read (%v)", text, err)
		}
	}
}

// TestObserveVolumes: a volume is not lost with a pod as long as another pod that has a copy is
// named, and only the pod that answers is believed.
func TestObserveVolumes(t *testing.T) {
	goes := copyPod(0, 0)
	now := metav1.Now()
	goes.DeletionTimestamp = &now
	f := func(view volumeView, want string, pods ...*corev1.Pod) {
		t.Helper()
		m := memoryPoolOfIndex{pool: &dmv1.DMMemoryPool{ObjectMeta: metav1.ObjectMeta{Name: "pool"}}, record: volumeRecord{Views: map[int]volumeView{0: view}}}
		m.pods, m.elsewhere = m.record.answering(pods, nil)
		m.described = map[int]*rpcv1.DescribeMemoryReply{}
		for _, p := range m.pods {
			m.described[podstate.VolumeOf(p)] = &rpcv1.DescribeMemoryReply{Incarnation: 7}
		}
		v := judgeMemory(map[uint16]uint64{1: 7}, nil, m.observe(0), nil, func(uint16) string { return m.record.podOf("pool", 0) })
		if got := fmt.Sprint(v.servers[0].pod, " ", v.servers[0].state); got != want {
			t.Errorf("%v: %s, want %s", view, got, want)
		}
	}
	f(viewOf(2, 0, 1024), "pool-0 Ready", copyPod(0, 0), copyPod(1024, 0))
	f(viewOf(2, 0, 1024), "pool-0 Unreachable", copyPod(1024, 0))
	f(viewOf(2, 0, 1024), "pool-0 Ready", goes, copyPod(1024, 0))
	f(viewOf(1, 0), "pool-0 Lost", goes, copyPod(1024, 0))
	f(viewOf(3, 1024), "pool-1024 Ready", copyPod(0, 0), copyPod(1024, 0))
	f(viewOf(3, 1024), "pool-1024 Lost", copyPod(0, 0))
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
	f := func(recorded, known volumeRecord, pods []client.Object, want dmv1.ServerState) {
		t.Helper()
		pool := &dmv1.DMMemoryPool{ObjectMeta: metav1.ObjectMeta{Name: "pool", Namespace: "ns", UID: "pool-uid", Annotations: map[string]string{}}}
		pool.Annotations[dmv1.AnnotationVolumes] = recorded.String()
		report.SetCondition(&pool.Status.Conditions, 1, dmv1.ConditionPoolReady, true, dmv1.ReasonAsDesired, "")
		live := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(pods, pool)...).WithStatusSubresource(pool).Build()
		r := &DMIndexReconciler{Base: reconciler.Base{Keeper: decision.Keeper{Writer: kube.Writer{Client: live, Live: decision.Reader{Reader: live}}}}}
		s := &indexScope{index: &dmv1.DMIndex{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}, memoryPools: []memoryPoolOfIndex{{pool: pool, record: known}}}
		s.verdict = memoryVerdict{recorded: true, servers: []memoryServer{{id: 1, pod: known.podOf("pool", 0), state: dmv1.ServerLost, why: podGone}}}
		r.confirmLoss(context.Background(), s, s.verdict.servers)
		if got := s.verdict.servers[0].state; got != want {
			t.Errorf("recorded %v, known %v: %s, want %s (%v)", recorded, known, got, want, s.problems)
		}
	}
	one := func(v volumeView) volumeRecord { return volumeRecord{Views: map[int]volumeView{0: v}} }
	f(volumeRecord{}, volumeRecord{}, nil, dmv1.ServerLost)
	f(one(viewOf(3, 1024)), volumeRecord{}, nil, dmv1.ServerUnreachable)
	f(one(viewOf(3, 1024)), one(viewOf(2, 0, 1024)), nil, dmv1.ServerUnreachable)
	f(one(viewOf(2, 0, 1024)), one(viewOf(2, 0, 1024)), []client.Object{copyPod(1024, 0)}, dmv1.ServerUnreachable)
	f(one(viewOf(2, 0, 1024)), one(viewOf(2, 0, 1024)), nil, dmv1.ServerLost)
}
