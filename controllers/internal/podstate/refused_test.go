package podstate

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dmindex/dmindex/controllers/internal/operatortest"
)

// TestAfterRefusal: each pod that a kubelet refuses makes the next one wait twice as long, up to a
// limit, until one runs.
func TestAfterRefusal(t *testing.T) {
	refused := func(id int, before time.Duration) Attempt {
		return Attempt{ID: id, Refused: true, Ended: true, Created: operatortest.Noon.Add(-before)}
	}
	running := func(id int, before time.Duration) Attempt {
		return Attempt{ID: id, running: true, Created: operatortest.Noon.Add(-before)}
	}
	f := func(name, want string, create int, pods ...Attempt) {
		t.Helper()
		create, remove, next := ReplaceRefused(pods, create, nil, operatortest.Noon)
		wait := time.Duration(0)
		if next.After(operatortest.Noon) {
			wait = next.Sub(operatortest.Noon)
		}
		if got := fmt.Sprintf("create %d remove %v wait %v", create, remove, wait); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	f("none", "create 1 remove [] wait 0s", 1, running(0, time.Hour))
	f("just now", "create 0 remove [] wait 5s", 1, running(0, time.Hour), refused(1, 0))
	f("five seconds ago", "create 1 remove [] wait 0s", 1, running(0, time.Hour), refused(1, 5*time.Second))
	f("the second", "create 0 remove [] wait 9s", 1, refused(1, 20*time.Second), refused(2, time.Second))
	var many []Attempt
	for id := range 10 {
		many = append(many, refused(id, time.Duration(10-id)*time.Second))
	}
	f("many", "create 0 remove [0 1 2] wait 4m59s", 2, many...)
	f("one runs since", "create 1 remove [1] wait 0s", 1, refused(1, 20*time.Second), running(2, time.Second))
	f("enough run", "create 0 remove [1] wait 0s", 0, refused(1, time.Second), running(0, time.Hour))
}

// TestRefusedByKubelet: a pod that failed without ever having run is told from one that ran.
func TestRefusedByKubelet(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p-1"}, Spec: corev1.PodSpec{NodeName: "n"},
		Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "UnexpectedAdmissionError", Message: "no healthy devices"}}
	f := func(name string, want bool, change func(*corev1.Pod)) {
		t.Helper()
		p := pod.DeepCopy()
		change(p)
		if got := RefusedByKubelet(p); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	f("refused", true, func(*corev1.Pod) {})
	f("ran", false, func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{ContainerID: "containerd://1"}}
	})
	f("runs", false, func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning })
	f("is deleted", false, func(p *corev1.Pod) { now := metav1.NewTime(operatortest.Noon); p.DeletionTimestamp = &now })
	f("has no node", false, func(p *corev1.Pod) { p.Spec.NodeName = "" })
	h := Refusal([]*corev1.Pod{pod}, operatortest.Noon.Add(time.Minute), operatortest.Noon)
	if want := "the kubelet of node n refused pod p-1 (UnexpectedAdmissionError): no healthy devices; the next one is made at 2026-11-21T12:01:00Z"; h == nil || h.Message != want || h.After != time.Minute {
		t.Errorf("%+v", h)
	}
	if h := Refusal([]*corev1.Pod{pod}, operatortest.Noon, operatortest.Noon); h != nil {
		t.Errorf("its time has come: %+v", h)
	}
}
