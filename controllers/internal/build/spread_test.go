package build

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// TestSpread: pods of both kinds are spread over zones and racks beside nodes, and the copies of a
// volume lie in different ones, as strictly as the pool says. A pool that says nothing has the pods
// that it had.
func TestSpread(t *testing.T) {
	index := testIndex()
	memory, compute := MemoryPool(index, index.Spec.MemoryPools[0], "i"), ComputePool(index, index.Spec.ComputePools[0], "i")
	f := func(s *dmv1.Spread, constraints map[string]corev1.UnsatisfiableConstraintAction, required, preferred []string) {
		t.Helper()
		memory.Spec.Spread, compute.Spec.Spread = s, s
		copied := MemoryCopy(memory, 1024, 0, "i", nil)
		for name, pod := range map[string]*corev1.Pod{"memory": MemoryPod(memory, 0, "i"), "copy": copied, "compute": ComputePod(compute, 0, 0, "uid", "i", "h")} {
			if len(pod.Spec.TopologySpreadConstraints) != len(constraints) {
				t.Errorf("%s: %+v", name, pod.Spec.TopologySpreadConstraints)
			}
			for _, c := range pod.Spec.TopologySpreadConstraints {
				if want := constraints[c.TopologyKey]; c.WhenUnsatisfiable != want || c.MaxSkew != 1 || c.LabelSelector.MatchLabels[dmv1.LabelPool] != pod.Labels[dmv1.LabelPool] {
					t.Errorf("%s: %+v, want %q", name, c, want)
				}
			}
		}
		a := copied.Spec.Affinity.PodAntiAffinity
		var must, may []string
		for _, term := range a.RequiredDuringSchedulingIgnoredDuringExecution {
			must = append(must, term.TopologyKey)
		}
		for _, term := range a.PreferredDuringSchedulingIgnoredDuringExecution {
			may = append(may, term.PodAffinityTerm.TopologyKey)
		}
		if !equalSets(must, required) || !equalSets(may, preferred) {
			t.Errorf("a copy keeps away from %v, and if it can from %v; want %v and %v", must, may, required, preferred)
		}
	}
	const node, zone, rack = corev1.LabelHostname, corev1.LabelTopologyZone, "example.com/rack"
	type actions = map[string]corev1.UnsatisfiableConstraintAction
	f(nil, actions{node: corev1.ScheduleAnyway}, []string{node}, []string{zone})
	f(&dmv1.Spread{Zones: dmv1.SpreadPreferred}, actions{node: corev1.ScheduleAnyway, zone: corev1.ScheduleAnyway}, []string{node}, []string{zone})
	f(&dmv1.Spread{Zones: dmv1.SpreadRequired}, actions{node: corev1.ScheduleAnyway, zone: corev1.DoNotSchedule}, []string{node, zone}, nil)
	f(&dmv1.Spread{Zones: dmv1.SpreadRequired, Racks: dmv1.SpreadPreferred, RackLabel: rack},
		actions{node: corev1.ScheduleAnyway, zone: corev1.DoNotSchedule, rack: corev1.ScheduleAnyway}, []string{node, zone}, []string{rack})
	f(&dmv1.Spread{Racks: dmv1.SpreadRequired, RackLabel: rack},
		actions{node: corev1.ScheduleAnyway, rack: corev1.DoNotSchedule}, []string{node, rack}, []string{zone})
}

func equalSets(a, b []string) bool {
	has := map[string]int{}
	for _, x := range a {
		has[x]++
	}
	for _, x := range b {
		has[x]--
	}
	for _, n := range has {
		if n != 0 {
			return false
		}
	}
	return true
}
