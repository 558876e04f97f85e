package memorypool

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// shown is what the status says of the pool's volumes after one more look.
func (m *movingPool) shown() string {
	m.t.Helper()
	s, err := m.look()
	if err != nil {
		m.t.Fatal(err)
	}
	s.showVolumes()
	text := ""
	if c := apimeta.FindStatusCondition(s.pool.Status.Conditions, dmv1.ConditionDegraded); c != nil {
		text = fmt.Sprint(c.Status, " ", c.Reason, " ", c.Message)
	}
	for _, v := range s.pool.Status.Volumes {
		text += fmt.Sprintf("; %d view %d %s %s %s", v.ID, v.View, v.Primary, v.Backup, v.State)
		if v.Percent != 0 {
			text += fmt.Sprintf(" %d%%", v.Percent)
		}
	}
	return text
}

// TestNoNodeForCopy: a pool whose copies find no node says so, and quotes the scheduler.
func TestNoNodeForCopy(t *testing.T) {
	m := newMovingPool(t, interceptor.Funcs{})
	m.away("pool-1024", true) // what does not run answers nothing
	m.copies(2)
	m.until("0:pool-0, 1:pool-1, pool-0 primary, pool-1 primary, pool-1024 none, pool-1025 backup")
	s := m.scope()
	for _, p := range s.pods {
		if p.Name == "pool-1024" {
			p.Status.Phase = corev1.PodPending
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/2 nodes are available"}}
			if err := m.r.Status().Update(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := m.shown(); !strings.HasPrefix(got, "True NoNodeForCopy volume 0: ") || !strings.Contains(got, "0/2 nodes are available") || !strings.HasSuffix(got, "; 0 view 1 pool-0  Alone; 1 view 2 pool-1 pool-1025 InSync") {
		t.Error(got)
	}
}

// TestConflictIsShown: where a server obeyed a view above the record, as after the record was put
// back to what it was before, nothing is decided, and the pool says which pod that is.
func TestConflictIsShown(t *testing.T) {
	m := newMovingPool(t, interceptor.Funcs{})
	m.copies(2)
	m.until(twice)
	s := m.settle()
	earlier := s.record.Views[0]
	earlier.Number--
	s.record.Views[0] = earlier
	if err := m.r.Annotate(t.Context(), s.pool, map[string]string{dmv1.AnnotationVolumes: s.record.String()}); err != nil {
		t.Fatal(err)
	}
	const want = "True DecisionPending volume 0: pod pool-0 obeyed a view above the record; 0 view 1 pool-0 pool-1024 Conflict; 1 view 2 pool-1 pool-1025 InSync"
	for range 3 {
		if got := m.shown(); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

// TestLossIsShown: a volume of which nobody has anything any more is lost, and the pool says so.
func TestLossIsShown(t *testing.T) {
	m := newMovingPool(t, interceptor.Funcs{})
	m.copies(2)
	m.until(twice)
	s := m.settle()
	for _, named := range s.record.Views[0].Named() {
		if err := m.fleet.Wipe(named.UID); err != nil {
			t.Fatal(err)
		}
	}
	if got := m.shown(); !strings.HasPrefix(got, "True DecisionPending volume 0: ") || !strings.HasSuffix(got, "; 0 view 2 pool-0 pool-1024 Lost; 1 view 2 pool-1 pool-1025 InSync") {
		t.Error(got)
	}
}
