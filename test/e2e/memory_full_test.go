//go:build e2e && e2efull

package e2e

import "testing"

// TestMemoryRestart ends memory servers under load: their containers come back with the same
// content. Requests may fail meanwhile.
func TestMemoryRestart(t *testing.T) {
	s := newSpace(t)
	s.newIndex(indexManifest, "2/2", "2/2")
	s.fill()
	incarnations := s.incarnations()
	e := s.startExercise(300)
	for _, pod := range s.memoryPods() {
		e.begin("restart " + pod)
		s.endContainer(pod)
		s.settled("2/2", "2/2")
		e.phase("after " + pod)
	}
	s.is(s.incarnations(), incarnations)
	s.filled()
	t.Logf("%s requests failed", e.finishWithFailures())
}
