package controllers

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/operatortest"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
)

// How far the clock was ahead in these tests, and when the API server stored what was written then.
const jump = 70 * 24 * time.Hour

var stored = operatortest.Noon.Add(-time.Hour)

// aheadPod is a pod that was written to while clocks were ahead.
func aheadPod(annotation string) *corev1.Pod {
	p := operatortest.Pod("pool-0", 0)
	p.Spec.Containers = []corev1.Container{{Image: "b"}}
	p.Annotations = map[string]string{annotation: stored.Add(jump).Format(time.RFC3339)}
	p.CreationTimestamp = metav1.NewTime(stored)
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(stored.Add(jump))}}
	return p
}

// TestStampsOfAClockThatWasAhead: they count from when they were stored, and nothing waits until
// the clock gets there.
func TestStampsOfAClockThatWasAhead(t *testing.T) {
	old := operatortest.Pod("pool-1", 1)
	old.Spec.Containers = []corev1.Container{{Image: "a"}}
	old.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	restarted := &memoryPoolScope{pool: &dmv1.DMMemoryPool{}, image: "b", size: 2, answering: []*corev1.Pod{aheadPod(annotationRestarted), old}}
	if a := decideServers(restarted.view(operatortest.Noon)); a.restart != 1 {
		t.Errorf("the next server to get its image: %d, want 1", a.restart)
	}
	left := &indexScope{index: &dmv1.DMIndex{}, compute: []computeServer{{pod: aheadPod(dmv1.AnnotationLeaving)}}}
	left.observe(operatortest.Noon)
	if s := left.view.Servers[0]; s.LeftFor != time.Hour || s.ReadyFor != time.Hour {
		t.Errorf("a server left %v and was ready %v ago, want 1h each", s.LeftFor, s.ReadyFor)
	}
}

// TestFormerPasswordOfAClockThatWasAhead ends with the grace.
func TestFormerPasswordOfAClockThatWasAhead(t *testing.T) {
	r, index := ownerOf(t)
	text, err := json.Marshal(passwords{Former: []formerPassword{{"a", stored.Add(jump)}, {"b", operatortest.Noon.Add(time.Minute)}}})
	if err != nil {
		t.Fatal(err)
	}
	secret := build.AuthSecret(index, "", text)
	secret.CreationTimestamp = metav1.NewTime(stored)
	if err := r.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	p, err := (&DMIndexReconciler{Base: *r}).storedPasswords(t.Context(), index)
	if err != nil || len(p.Former) != 2 || !p.Former[0].Until.Equal(stored.Add(defaultPasswordGrace)) || !p.Former[1].Until.Equal(operatortest.Noon.Add(time.Minute)) {
		t.Errorf("%+v, %v", p, err)
	}
}

// ownerOf is what reconcilers have at noon, and an index.
func ownerOf(t *testing.T) (*reconciler.Base, *dmv1.DMIndex) {
	t.Helper()
	index := &dmv1.DMIndex{ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: "ns", UID: "u"}}
	c := fake.NewClientBuilder().WithScheme(operatortest.Scheme(t)).WithObjects(index).Build()
	return &reconciler.Base{Keeper: decision.Keeper{Writer: kube.Writer{Client: c, Live: c}}, Events: &operatortest.LastNote{}, Now: func() time.Time { return operatortest.Noon }}, index
}
