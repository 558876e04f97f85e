package memorypool

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/operatortest"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/servers"
	"github.com/dmindex/dmindex/controllers/internal/volume"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// TestLossBesideACopy: a server of a volume with two copies that listens, and does not open its
// disk for what that may lack, is made again with the loss accepted; one that opened its disk, or
// needs none, accepts nothing.
func TestLossBesideACopy(t *testing.T) {
	may := "its disk may lack something: " + config.PersistMayLack
	for _, x := range []struct {
		name, pod string
		report    volumes.Report
		problem   string
		deleted   bool
		marked    string // what the claim is to say
	}{
		{"stopped, and shut", "pool-0", volumes.Report{Role: volumes.Stopped}, may, true, ""},
		{"stopped, and waits for a view", "pool-0", volumes.Report{Role: volumes.Stopped}, "", false, ""},
		{"files of a backup that are shut", "pool-1024", volumes.Report{Was: volumes.Proc{Pod: "x", Process: 1}}, may, true, ""},
		{"files of a backup that nobody needs", "pool-1024", volumes.Report{Was: volumes.Proc{Pod: "x", Process: 1}}, "", false, ""},
		{"a copy that begins anew", "pool-1024", volumes.Report{}, "", false, "true"},
		{"a primary", "pool-0", volumes.Report{Role: volumes.Primary}, may, false, "true"},
	} {
		t.Run(x.name, func(t *testing.T) {
			m := newDisksPool(t, 2)
			m.until(twice)
			s, err := m.look()
			if err != nil {
				t.Fatal(err)
			}
			s.described, s.answering = nil, nil
			s.pool.Annotations[dmv1.AnnotationAcceptLoss] = x.pod
			id := podstate.NumberIn(x.pod)
			s.volumes[0].reports[string(s.claims[id].UID)] = servers.VolumeReport{Report: x.report, Problem: x.problem}
			told := strings.Contains(s.lossProblem(), "the disk of "+x.pod+" may lack")
			if got := s.lossAccepted(id); got != x.marked || told != x.deleted {
				t.Errorf("the claim is to say %q, and the pool says of it: %v", got, told)
			}
			if err := m.r.keepDisks(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			deleted := !slices.ContainsFunc(m.scope().pods, func(p *corev1.Pod) bool { return p.Name == x.pod })
			if deleted != x.deleted {
				t.Errorf("its pod is deleted: %v", deleted)
			}
			if !deleted {
				return
			}
			v := s.volumes[0]
			for _, c := range v.copies {
				if c.id() == id {
					c.pod = nil
				}
			}
			if err := m.r.returnPods(t.Context(), s, v, "tls"); err != nil {
				t.Fatal(err)
			}
			for _, p := range m.scope().pods {
				if is := p.Annotations[dmv1.AnnotationAcceptLoss] != ""; is != (p.Name == x.pod) {
					t.Errorf("pod %s is told of the loss: %v", p.Name, is)
				}
			}
		})
	}
}

// TestForgottenCopy: a copy that took over loses its memory, and another operator finds that, which
// has not seen whether the copy had served. The earlier primary may lack what was acknowledged
// since: it serves once somebody asks for that, and not before.
func TestForgottenCopy(t *testing.T) {
	m := newMovingPool(t, interceptor.Funcs{})
	m.copies(2)
	m.until(twice)
	m.fleet.HoldBack(true) // no other copy gets in sync
	view := m.scope().record.Views[0]
	if err := m.fleet.Restart(view.Primary.UID); err != nil {
		t.Fatal(err)
	}
	if s, err := m.look(); err != nil || s.record.Views[0].Primary.Pod != "pool-1024" {
		t.Fatalf("%s, %v", s.record, err)
	}
	m.away("pool-0", true)
	if err := m.fleet.Wipe(view.Backup.UID); err != nil {
		t.Fatal(err)
	}
	m.restart()
	var s *scope
	for i := range 20 {
		if i == 10 {
			m.away("pool-0", false)
		}
		var err error
		s, err = m.look()
		if _, failed := outcome.Result(err); failed != nil || s.record.Views[0].Primary.Pod != "pool-1024" {
			t.Fatalf("%s, %v", s.record, err)
		}
	}
	s.showVolumes()
	c := apimeta.FindStatusCondition(s.pool.Status.Conditions, dmv1.ConditionDegraded)
	if c == nil || c.Reason != dmv1.ReasonCopyMayLack || !strings.Contains(c.Message, "acknowledged since view 3 was recorded") || !strings.Contains(c.Message, dmv1.AnnotationAcceptCopy+"=pool-0 ") {
		t.Fatalf("the pool says %v", c)
	}
	if err := m.r.Annotate(t.Context(), s.pool, map[string]string{dmv1.AnnotationAcceptCopy: "pool-0"}); err != nil {
		t.Fatal(err)
	}
	m.fleet.HoldBack(false)
	m.until(twice)
}

// TestTiedDisk: a copy without a part in the view leaves a disk that lost its volume, or that has
// kept its pod from all nodes for minutes.
func TestTiedDisk(t *testing.T) {
	pending := func(age time.Duration, node string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pool-1024", CreationTimestamp: metav1.NewTime(operatortest.Noon.Add(-age))}}
		p.Spec.NodeName, p.Status.Phase = node, corev1.PodPending
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "no node has the disk"}}
		return p
	}
	claim := func(volume string, phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{}
		c.Spec.VolumeName, c.Status.Phase = volume, phase
		return c
	}
	waits := pending(tiedAfter+time.Second, "")
	starts := waits.DeepCopy()
	starts.Status.Conditions = nil
	for _, x := range []struct {
		name  string
		claim *corev1.PersistentVolumeClaim
		pod   *corev1.Pod
		tied  bool
	}{
		{"no disk", nil, waits, false},
		{"a disk that is lost", claim("pv", corev1.ClaimLost), nil, true},
		{"a disk that was never made", claim("", corev1.ClaimPending), waits, false},
		{"no pod", claim("pv", corev1.ClaimBound), nil, false},
		{"a pod on a node", claim("pv", corev1.ClaimBound), pending(tiedAfter+time.Second, "n"), false},
		{"a pod that was not looked at", claim("pv", corev1.ClaimBound), starts, false},
		{"for a moment", claim("pv", corev1.ClaimBound), pending(tiedAfter, ""), false},
		{"for long", claim("pv", corev1.ClaimBound), waits, true},
	} {
		c := &volumeCopy{uid: "c", name: "pool-1024", claim: x.claim, pod: x.pod}
		if got := c.isTied(operatortest.Noon); got != x.tied {
			t.Errorf("%s: tied %v", x.name, got)
		}
	}
	pool := &dmv1.DMMemoryPool{}
	pool.Spec.Copies = 2
	s := &scope{pool: pool, looked: operatortest.Noon, record: volume.Record{Views: map[int]volume.View{0: {Number: 3, Primary: volume.Proc{UID: "c"}}}}}
	c := &volumeCopy{uid: "c", name: "pool-0", claim: claim("pv", corev1.ClaimLost)}
	if s.leavesNode(c, 0) {
		t.Error("the primary leaves its disk")
	}
	if c.uid = "d"; !s.leavesNode(c, 0) {
		t.Error("a copy that no view names stays on a disk that is lost")
	}
	if pool.Spec.Copies = 1; s.leavesNode(c, 0) {
		t.Error("with one copy it leaves its disk")
	}
}
