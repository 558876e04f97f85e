//go:build e2e && e2efull && ownnodes

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestDeaths kills owners with kill -9 and by deleting their pods at once, kills the operator, and
// scales, at random under load. No acknowledged write is lost. Requests may fail: who dies twice in
// a row is away for longer than they wait.
func TestDeaths(t *testing.T) {
	length, random := soak(t)
	s := newSpaceAlone(t)
	s.newIndex(indexManifest, "2/2", "2/2")
	s.fill()
	e := s.startExercise(300)
	size, deaths := 2, 0
	killed := map[string]int{}
	for end := time.Now().Add(length); time.Now().Before(end); {
		ready := fmt.Sprintf("%d/%d", size, size)
		pods := slices.Sorted(maps.Keys(s.owners()))
		pod := pods[random.IntN(len(pods))]
		what := random.IntN(5)
		// its kubelet would wait before it starts it again
		if what < 2 && killed[pod] == promptRestarts {
			what = 2
		}
		switch what {
		case 0, 1:
			e.begin("kill -9 " + pod)
			killed[pod]++
			deaths++
			s.killed(pod)
			s.settled("2/2", ready)
		case 2:
			e.begin("delete at once " + pod)
			deaths++
			s.replaced(pod, ready, func(pod string) { s.kubectl("delete", "pod", pod, "--force", "--grace-period=0") })
		case 3:
			e.begin("kill the operator")
			s.killOperators()
		case 4:
			size = 1 + random.IntN(4)
			e.begin(fmt.Sprintf("to %d", size))
			s.scale(size)
		}
		e.phase("calm")
	}
	s.filled()
	t.Logf("%d deaths, %s requests failed", deaths, e.finishWithFailures())
}

// TestMemoryStandsStill stops the process of a memory server for longer than leases last, and ends
// a compute server meanwhile. The index says which memory server it waits for, and serves all that
// it had when that goes on. Compute servers that try to open it all the while use up no clients.
func TestMemoryStandsStill(t *testing.T) {
	s := newSpaceAlone(t)
	s.newIndex(indexManifest, "2/2", "2/2")
	s.fill()
	memory := s.memoryPods()
	stopped := memory[1] // the first one is the home, which keeps the clients
	s.signal(stopped, "SIGSTOP")
	s.kubectl("delete", "pod", s.computePods()[0], "--force", "--grace-period=0")
	s.contains(s.condition("Available", "False"), stopped)
	s.eventually(long, "nobody has the index open", func() (bool, string) {
		ready := s.jsonpath("dmcp/x-compute", "{.status.readyReplicas}")
		return ready == "" || ready == "0", ready
	})
	s.stays(20*time.Second, "the clients of the index", func() string {
		return fmt.Sprint(strings.Count(s.kubectl("logs", memory[0]), "registered client"))
	})
	s.signal(stopped, "SIGCONT")
	s.settled("2/2", "2/2")
	s.filled()
	s.is(s.redis("set", "after", "1"), "OK")
}
