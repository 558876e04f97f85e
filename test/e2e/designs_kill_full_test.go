//go:build e2e && e2efull && ownnodes

package e2e

import (
	"strings"
	"testing"
)

// TestDolphin scales, and kills two of three compute servers and a memory server with kill -9, with
// radix inner nodes over B+ leaves that all servers share. Values are of 8 bytes, whose updates
// clients make side by side. No acknowledged write is lost, and what the dead had in hand is held
// by nobody in the end. Requests may fail while a server is away.
func TestDolphin(t *testing.T) {
	s := newSpace(t)
	s.newIndex(strings.NewReplacer("design: DEX", "design: Dolphin", "maxLength: 128", "maxLength: 8").Replace(indexManifest), "2/2", "2/2")
	e := s.startExercise(300)
	e.begin("to 3")
	s.scale(3)
	e.phase("3")
	for _, pod := range append(s.computePods()[:2], s.memoryPods()[0]) {
		e.begin("kill " + pod)
		s.killed(pod)
		s.settled("2/2", "3/3")
		e.phase("after " + pod)
	}
	e.begin("to 2")
	s.scale(2)
	e.phase("2")
	t.Logf("%s requests failed", e.finishWithFailures())
}
