//go:build e2e

package e2e

import (
	"strings"
	"testing"
)

// TestSMART scales, deletes and restarts under load, with a radix tree that all servers share.
func TestSMART(t *testing.T) { shared(t, "SMART") }

// shared scales compute servers, deletes one, and restarts every memory server under load, with a
// design in which all servers share everything: no request fails, and nothing is lost.
func shared(t *testing.T, design string) {
	s := newSpace(t)
	s.newIndex(strings.Replace(indexManifest, "design: DEX", "design: "+design, 1), "2/2", "2/2")
	s.fill()
	e := s.startExercise(300)
	s.scaleAndDelete(e, 3, 1, 2)
	for _, pod := range s.memoryPods() {
		e.begin("restart " + pod)
		s.endContainer(pod)
		s.settled("2/2", "2/2")
		e.phase("after " + pod)
	}
	s.filled()
	e.finish()
}
