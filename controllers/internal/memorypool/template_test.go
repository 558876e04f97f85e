package memorypool

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
)

// onNodes is another template for the pods of the pool.
func (m *movingPool) onNodes(class string) {
	m.t.Helper()
	m.change(func(spec *dmv1.DMMemoryPoolSpec) { spec.Pod.NodeSelector = map[string]string{"class": class} })
}

// roll looks until nothing is waited for, and returns which pods were left, in this order. No two
// volumes are on their way at once.
func (m *movingPool) roll() (left []string) {
	m.t.Helper()
	for range 80 {
		s, err := m.look()
		if err != nil {
			m.t.Fatal(err)
		}
		if s.volumesAgain == 0 {
			return left
		}
		volumes := 0
		for _, v := range s.volumes {
			for uid := range v.moves {
				if name := v.podOf(uid).Name; !slices.Contains(left, name) {
					left = append(left, name)
				}
			}
			if len(v.moves) > 0 {
				volumes++
			}
		}
		if volumes > 1 {
			m.t.Errorf("%d volumes leave pods at once: %s", volumes, m.stateOf(s))
		}
	}
	m.t.Errorf("after 80 looks something is still waited for: %s", m.state())
	return left
}

// TestTemplateOfMemory: pods of an old template are left for new ones, one volume after the other:
// with two copies a backup before its primary. A paused pool keeps its pods, and says so.
func TestTemplateOfMemory(t *testing.T) {
	for copies, f := range map[int32]struct{ before, left, after string }{
		1: {"pool-0 none, pool-1 none", "[pool-0 pool-1]", "0:pool-1024, 1:pool-1025, pool-1024 primary, pool-1025 primary"},
		2: {twice, "[pool-1024 pool-0 pool-1025 pool-1]", "0:pool-1026, 1:pool-1028, pool-1026 primary, pool-1027 backup, pool-1028 primary, pool-1029 backup"},
	} {
		m := newMovingPool(t, interceptor.Funcs{})
		m.copies(copies)
		m.until(f.before)
		m.settle()
		m.change(func(spec *dmv1.DMMemoryPoolSpec) { spec.Paused = true })
		m.onNodes("b")
		if m.settle(); m.state() != f.before {
			t.Errorf("%d copies: while it is paused: %s", copies, m.state())
		}
		if _, message := m.scope().keepOldTemplates("Ready"); !strings.Contains(message, "while the pool is paused") {
			t.Errorf("%d copies: while it is paused: %s", copies, message)
		}
		m.change(func(spec *dmv1.DMMemoryPoolSpec) { spec.Paused = false })
		if why, message := m.scope().keepOldTemplates("Ready"); why != dmv1.ReasonReplacing {
			t.Errorf("%d copies: %s, %s", copies, why, message)
		}
		if left := fmt.Sprint(m.roll()); left != f.left || m.state() != f.after {
			t.Errorf("%d copies: left %s, want %s; %s, want %s", copies, left, f.left, m.state(), f.after)
		}
		s := m.scope()
		for _, p := range s.pods {
			if p.Spec.NodeSelector["class"] != "b" {
				t.Errorf("%d copies: pod %s has node selector %v", copies, p.Name, p.Spec.NodeSelector)
			}
		}
		if s.oldTemplates() > 0 {
			t.Errorf("%d copies: %d pods of an old template are left", copies, s.oldTemplates())
		}
	}
}

// TestTemplateThatFindsNoNode: a volume whose new pod does not run stays where it is, and no other
// one is touched. Once the template is put back, or another one follows, the new pod goes.
func TestTemplateThatFindsNoNode(t *testing.T) {
	for name, next := range map[string]struct{ class, want string }{
		"put back":  {"", "0:pool-0, 1:pool-1, pool-0 primary, pool-1 primary, pool-1024 backup, pool-1025 backup"},
		"corrected": {"b", "0:pool-1027, 1:pool-1029, pool-1027 primary, pool-1028 backup, pool-1029 primary, pool-1030 backup"},
	} {
		m := newMovingPool(t, interceptor.Funcs{})
		m.copies(2)
		m.until(twice)
		m.settle()
		m.fleet.HoldBack(true)
		m.away("pool-1026", true)
		m.onNodes("none")
		for range 10 {
			s, err := m.look()
			if err != nil {
				t.Fatal(err)
			}
			pending(m, "pool-1026")
			if primary := s.record.Views[0].Primary.Pod + s.record.Views[1].Primary.Pod; primary != "pool-0pool-1" {
				t.Fatalf("%s: %s", name, m.stateOf(s))
			}
		}
		m.fleet.HoldBack(false)
		m.change(func(spec *dmv1.DMMemoryPoolSpec) { spec.Pod.NodeSelector = nil })
		if next.class != "" {
			m.onNodes(next.class)
		}
		m.now = m.now.Add(joinBackoff)
		if m.roll(); m.state() != next.want {
			t.Errorf("%s: %s, want %s", name, m.state(), next.want)
		}
	}
}

// pending makes a pod one that no node takes, if it is there.
func pending(m *movingPool, name string) {
	m.t.Helper()
	p := &corev1.Pod{}
	if err := m.r.Get(m.t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, p); err != nil {
		return
	}
	p.Status.Phase, p.Status.PodIP = corev1.PodPending, "none"
	if err := m.r.Status().Update(m.t.Context(), p); err != nil {
		m.t.Fatal(err)
	}
}

// TestOldPodsAreAdopted: what a pod was made of that an earlier operator made is what the pool says
// when it is seen first. It moves nothing, and a later template does.
func TestOldPodsAreAdopted(t *testing.T) {
	m := newMovingPool(t, interceptor.Funcs{})
	for _, p := range m.scope().pods {
		if err := m.r.Annotate(t.Context(), p, map[string]string{dmv1.AnnotationTemplate: ""}); err != nil {
			t.Fatal(err)
		}
	}
	m.onNodes("a")
	if m.settle(); m.scope().oldTemplates() > 0 {
		t.Errorf("pods that do not say what they were made of count as old")
	}
	for range 2 {
		if err := m.r.protect(t.Context(), m.scope()); err != nil {
			t.Fatal(err)
		}
	}
	if m.settle(); m.state() != "pool-0 none, pool-1 none" {
		t.Errorf("pods were left when they were adopted: %s", m.state())
	}
	m.onNodes("b")
	if left := fmt.Sprint(m.roll()); left != "[pool-0 pool-1]" {
		t.Errorf("a later template: left %s", left)
	}
}

// TestTemplateOfRDMA: the memory of RDMA pools stays, and the pool says so.
func TestTemplateOfRDMA(t *testing.T) {
	m := newMovingPool(t, interceptor.Funcs{})
	m.change(func(spec *dmv1.DMMemoryPoolSpec) { spec.Transport = dmv1.TransportRDMA })
	m.onNodes("b")
	if m.settle(); m.state() != "pool-0 none, pool-1 none" {
		t.Errorf("%s", m.state())
	}
	if why, message := m.scope().keepOldTemplates("Ready"); why != "Ready" || !strings.Contains(message, "2 of 2 pods") {
		t.Errorf("%s, %s", why, message)
	}
}

// TestImageBesideATemplate: a server whose volume leaves it is not restarted for its image, which
// the new pod has. Others are, and so is one that does not answer.
func TestImageBesideATemplate(t *testing.T) {
	m := newMovingPool(t, interceptor.Funcs{})
	m.image = "server:2"
	m.fleet.HoldBack(true)
	m.onNodes("b")
	m.until("0:pool-0, pool-0 primary, pool-1 none, pool-1024 joining")
	images := func() (text string) {
		s, err := m.look()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range s.view(m.now).pods {
			text += fmt.Sprint(p.id, " ", p.image, ", ")
		}
		return text
	}
	if got, want := images(), "0 server:2, 1 server:1, "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	m.away("pool-0", true)
	if got, want := images(), "0 server:1, 1 server:1, "; got != want {
		t.Errorf("while it is silent: %s, want %s", got, want)
	}
	m.away("pool-0", false)
	m.fleet.HoldBack(false)
	m.roll()
	for _, p := range m.scope().pods {
		if build.VolumeOf(p) < 0 || podstate.Asked(p) != m.image {
			t.Errorf("pod %s has image %s", p.Name, podstate.Asked(p))
		}
	}
}

// TestSuspicion: what a pool says of how long a server must be missed, within the limits.
func TestSuspicion(t *testing.T) {
	for said, want := range map[int32]time.Duration{0: 2 * time.Second, 1: time.Second, 10: 10 * time.Second, 60: 10 * time.Second} {
		pool := &dmv1.DMMemoryPool{}
		pool.Spec.SuspectAfterSeconds = said
		if got := suspicionOf(pool); got != want {
			t.Errorf("suspectAfterSeconds: %d counts as %v, want %v", said, got, want)
		}
	}
}
