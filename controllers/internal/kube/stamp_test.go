package kube

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestStamp: what a clock that was ahead wrote counts as written when it was stored. Where the
// clock that reads is behind, nothing was ahead.
func TestStamp(t *testing.T) {
	noon := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	hour := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Hour) }
	p := &corev1.Pod{}
	p.CreationTimestamp = metav1.NewTime(hour(-9))
	for manager, at := range map[string]int{string(Owner): -5, "kubelet": -3} {
		written := metav1.NewTime(hour(at))
		p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{Manager: manager, Time: &written})
	}
	p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{Manager: "nobody knows when"})
	f := func(name, manager string, at, now, want int) {
		t.Helper()
		if got := Stamp(p, client.FieldOwner(manager), hour(at), hour(now)); !got.Equal(hour(want)) {
			t.Errorf("%s: %v, want %v", name, got.Sub(noon), time.Duration(want)*time.Hour)
		}
	}
	f("ours", string(Owner), -6, 0, -6)
	f("ours, ahead", string(Owner), 1000, 0, -5)
	f("ours, and the clock is still ahead", string(Owner), 1000, 1000, 1000)
	f("ours, and the clock is behind", string(Owner), -6, -8, -6)
	f("anybody's, ahead", "", 1000, 0, -3)
	f("of one that wrote nothing", "scheduler", 1000, 0, -9)
}
