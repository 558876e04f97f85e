package memorypool

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// on puts a pod on a node of its own name.
func (m *movingPool) on(pod string) *corev1.Node {
	m.t.Helper()
	p := &corev1.Pod{}
	if err := m.r.Get(m.t.Context(), types.NamespacedName{Namespace: "ns", Name: pod}, p); err != nil {
		m.t.Fatal(err)
	}
	p.Spec.NodeName = pod
	if err := m.r.Update(m.t.Context(), p); err != nil {
		m.t.Fatal(err)
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: pod}}
	if err := m.r.Create(m.t.Context(), n); err != nil {
		m.t.Fatal(err)
	}
	return n
}

// TestCordonedNode: volumes leave nodes that take no new pods, with one copy and with two, unless
// their pool is paused.
func TestCordonedNode(t *testing.T) {
	m := newMovingPool(t, interceptor.Funcs{})
	n := m.on("pool-0")
	n.Spec.Unschedulable = true
	if err := m.r.Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	m.change(func(spec *dmv1.DMMemoryPoolSpec) { spec.Paused = true })
	if s := m.settle(); len(s.volumes) > 0 {
		t.Errorf("a paused pool: %s", m.state())
	}
	m.change(func(spec *dmv1.DMMemoryPoolSpec) { spec.Paused = false })
	m.until(moved)
	m.copies(2)
	m.until("0:pool-1024, 1:pool-1, pool-1 primary, pool-1024 primary, pool-1025 backup, pool-1026 backup")
	n = m.on("pool-1025")
	n.Spec.Unschedulable = true
	if err := m.r.Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	m.until("0:pool-1024, 1:pool-1, pool-1 primary, pool-1024 primary, pool-1026 backup, pool-1027 backup")
	m.settle()
}

// TestNodeThatIsAway: a copy that was replaced, on a node that is not heard of, is followed by
// another one. What a view names stays there.
func TestNodeThatIsAway(t *testing.T) {
	m := newMovingPool(t, interceptor.Funcs{})
	m.copies(2)
	m.until(twice)
	n := m.on("pool-0")
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	if err := m.r.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if s := m.settle(); m.stateOf(s) != twice {
		t.Errorf("while it answers: %s", m.stateOf(s))
	}
	s := m.scope()
	if err := m.fleet.Restart(string(s.record.Views[0].Primary.Among(s.pods, s.claims).UID)); err != nil {
		t.Fatal(err)
	}
	m.until("0:pool-1024, 1:pool-1, pool-1 primary, pool-1024 primary, pool-1025 backup, pool-1026 backup")
	m.settle()
}

// TestNodeThatCameBack: a pod that the scheduler puts on a node which came back a moment ago stays
// there, though the node was seen away.
func TestNodeThatCameBack(t *testing.T) {
	m := newMovingPool(t, interceptor.Funcs{})
	m.copies(2)
	m.until(twice)
	n := m.on("pool-0")
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	if err := m.r.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	s := m.settle()
	placed := func(s *scope, at time.Time) nodeState {
		t.Helper()
		m.now = m.now.Add(2 * time.Second)
		for _, p := range s.pods {
			if p.Spec.NodeName == "pool-0" {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at)}}
			}
		}
		m.r.lookAtNodes(t.Context(), s)
		return s.nodes["pool-0"]
	}
	m.r.nodes = newNodes() // nothing is remembered of the looks before
	if m.r.lookAtNodes(t.Context(), s); !s.nodes["pool-0"].away {
		t.Fatal("the node is away, and was not seen so")
	}
	seen := m.now
	n.Status.Conditions[0].Status = corev1.ConditionTrue
	if err := m.r.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if at := placed(s, seen.Add(-time.Minute)); !at.away {
		t.Errorf("the node was read again %v after it was seen", m.now.Sub(seen))
	}
	if at := placed(s, m.now.Add(time.Second)); at.away {
		t.Error("a pod came to the node, which still counts as away")
	}
}

// TestForgottenNode: what was read of a node before it changed is not remembered, also where it
// comes in later.
func TestForgottenNode(t *testing.T) {
	n, now := newNodes(), time.Now()
	known := func(want bool) {
		t.Helper()
		if _, known := n.get("a", now); known != want {
			t.Errorf("it is remembered: %v", known)
		}
	}
	n.put("a", nodeSeen{at: now}, n.begin())
	known(true)
	begun := n.begin()
	n.forget("a")
	known(false)
	n.put("a", nodeSeen{at: now}, begun)
	known(false)
	n.put("a", nodeSeen{at: now}, n.begin())
	known(true)
}
