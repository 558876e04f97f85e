// Package operatortest has what the tests of several rooms of the operator need.
package operatortest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// Recorder has the events as people see them: one that differs from an earlier one in its note only
// is folded into that, as client-go does it.
type Recorder struct {
	Notes []string
	Keys  []string
}

// Eventf implements report.Events.
func (r *Recorder) Eventf(_, related runtime.Object, _, reason, action, note string, args ...any) {
	key := fmt.Sprintf("%s %s %v", reason, action, related)
	if slices.Contains(r.Keys, key) {
		return
	}
	r.Keys = append(r.Keys, key)
	r.Notes = append(r.Notes, reason+": "+fmt.Sprintf(note, args...))
}

// LastNote has the note of the last event.
type LastNote struct{ Note string }

// Eventf implements report.Events.
func (l *LastNote) Eventf(_, _ runtime.Object, _, _, _, note string, args ...any) {
	l.Note = fmt.Sprintf(note, args...)
}

// Noon is a time to begin with.
var Noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// Pod is a pod that runs and is ready.
func Pod(name string, id int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name), Labels: map[string]string{dmv1.LabelServerID: fmt.Sprint(id)}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "127.0.0.1",
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
}

// Scheme knows the types that the operator reads and writes.
func Scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), dmv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return scheme
}
