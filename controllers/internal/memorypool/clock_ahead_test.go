package memorypool

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/operatortest"
)

// TestRestartOfAClockThatWasAhead: a restart counts from when it was stored, and nothing waits
// until the clock gets there.
func TestRestartOfAClockThatWasAhead(t *testing.T) {
	old := operatortest.Pod("pool-1", 1)
	old.Spec.Containers = []corev1.Container{{Image: "a"}}
	old.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	restarted := &scope{pool: &dmv1.DMMemoryPool{}, image: "b", size: 2, answering: []*corev1.Pod{operatortest.AheadPod(annotationRestarted), old}}
	if a := decideServers(restarted.view(operatortest.Noon)); a.restart != 1 {
		t.Errorf("the next server to get its image: %d, want 1", a.restart)
	}
}
