//go:build e2e

package e2e

import (
	"fmt"
	"testing"
)

// TestScale scales the compute pool up and down and deletes one of its pods under load: no request fails, nothing is lost.
func TestScale(t *testing.T) {
	s := newSpace(t)
	s.newIndex(indexManifest, "2/2", "2/2")
	e := s.startExercise(2000)
	e.phase("two")
	for _, n := range []int{3, 1, 2} {
		e.begin(fmt.Sprintf("to %d", n))
		s.scale(n)
		e.phase(fmt.Sprint(n))
	}
	e.begin("delete pod")
	s.replaced(s.computePods()[0], "2/2", func(pod string) { s.kubectl("delete", "pod", pod, "--wait=false") })
	e.phase("replaced")
	e.finish()
}

// scale scales the compute pool and waits until every server has a share of the keys, and no other has one.
func (s *space) scale(n int) {
	s.Helper()
	s.kubectl("scale", "dmcp", "x-compute", fmt.Sprintf("--replicas=%d", n))
	ready := fmt.Sprintf("%d/%d", n, n)
	s.settled("2/2", ready)
	s.eventually(long, "every server has its share", func() (bool, string) {
		owners := s.owners()
		return len(owners) == n, fmt.Sprint(owners)
	})
	s.settled("2/2", ready)
}

// replaced removes a compute pod in some way and waits until another one has its share.
func (s *space) replaced(pod, compute string, remove func(pod string)) {
	s.Helper()
	remove(pod)
	s.eventually(long, pod+" is replaced", func() (bool, string) {
		owners := s.owners()
		there := false
		for _, p := range s.computePods() {
			there = there || p == pod
		}
		return !owners[pod] && !there, fmt.Sprint("owners ", owners, ", servers ", s.computePods())
	})
	s.settled("2/2", compute)
}
