//go:build e2e

package e2e

import (
	"strings"
	"testing"
)

// TestSMART scales, deletes and restarts under load, with a radix tree that all servers share.
func TestSMART(t *testing.T) { shared(t, "SMART", 3, 2) }

// shared scales compute servers to some sizes, deletes one, and restarts every memory server under
// load, with a design in which all servers share everything: no request fails, and nothing is lost.
func shared(t *testing.T, design string, sizes ...int) {
	s := newSpace(t)
	s.newIndex(strings.Replace(indexManifest, "design: DEX", "design: "+design, 1), "2/2", "2/2")
	s.fill()
	e := s.startExercise(300)
	s.scaleAndDelete(e, sizes...)
	for _, pod := range s.memoryPods() {
		e.begin("restart " + pod)
		s.endContainer(pod)
		s.settled("2/2", "2/2")
		e.phase("after " + pod)
	}
	s.filled()
	e.finish()
}
