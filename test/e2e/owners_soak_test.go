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

// TestDeaths kills owners with kill -9 and by deleting their pods at once, kills the operator, and scales, at random under load. No acknowledged write is
// lost. Requests may fail: who dies twice in a row is away for longer than they wait.
func TestDeaths(t *testing.T) {
	length, random := soak(t)
	s := newSpace(t)
	s.newIndex(indexManifest, "2/2", "2/2")
	s.fill()
	e := s.startExercise(1000)
	size, deaths := 2, 0
	killed := map[string]int{}
	for end := time.Now().Add(length); time.Now().Before(end); {
		ready := fmt.Sprintf("%d/%d", size, size)
		pods := slices.Sorted(maps.Keys(s.owners()))
		pod := pods[random.IntN(len(pods))]
		what := random.IntN(5)
		if what < 2 && killed[pod] == promptRestarts { // its kubelet would wait before it starts it again
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

// TestFencePending stops the process of a memory server, then ends a compute server: its keys wait, since the dead one may not be fenced there yet, and a condition names the
// memory server. When that goes on, so do they.
func TestFencePending(t *testing.T) {
	s := newSpace(t)
	s.newIndex(indexManifest, "2/2", "2/2")
	s.fill()
	stopped := s.memoryPods()[1] // the first one keeps the holdings
	s.signal(stopped, "SIGSTOP")
	s.kubectl("delete", "pod", s.computePods()[0], "--force", "--grace-period=0")
	s.eventually(long, "keys wait for the memory server that stands still", func() (bool, string) {
		message := s.jsonpath("dmi/x", `{.status.conditions[?(@.reason=="FencePending")].message}`)
		return strings.Contains(message, stopped), message + "\n" + s.jsonpath("dmi/x", "{.status.conditions}")
	})
	t.Log(s.jsonpath("dmi/x", `{.status.conditions[?(@.reason=="FencePending")].message}`))
	s.signal(stopped, "SIGCONT")
	s.settled("2/2", "2/2")
	s.filled()
	s.is(s.redis("set", "after", "1"), "OK")
}
