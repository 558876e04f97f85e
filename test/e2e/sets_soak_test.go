//go:build e2e && e2efull && ownnodes

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestSetDeaths kills compute servers with kill -9, and deletes their pods at once, under load on
// one sorted set that lies on several of them, on counters and on transactions. Nothing that was
// acknowledged is lost, nothing is counted twice, and the set is whole in the end.
func TestSetDeaths(t *testing.T) {
	length, random := soak(t)
	s := newSpaceAlone(t)
	manifest := strings.Replace(expiring(indexManifest), "expiry: Enabled", "expiry: Enabled\n  partitioning: {atomicPrefix: \"}\"}\n  security: {showKeys: true}", 1)
	s.newIndex(strings.Replace(manifest, "replicas: 2,", "replicas: 3,", 1), "2/2", "3/3")
	s.apply(toolsPod("sets", "exercise", "sets", "--secret", "/conn", "--for", "90m"))
	await := func(commands int) {
		t.Helper()
		s.eventually(long, "the exercise goes on", func() (bool, string) {
			out, err := s.try("exec", "sets", "--", "exercise", "await", fmt.Sprint(commands))
			return err == nil, out
		})
	}
	await(5000)
	// what the set consists of is asked for most of the time: the operator divides it
	divided := func() []string {
		var starts []string
		for start := range strings.FieldsSeq(s.jsonpath("dmi/x", "{.status.map.ranges[*].start}")) {
			if strings.HasPrefix(start, "//9zZX") { // ff ff s e t, in base64
				starts = append(starts, start)
			}
		}
		return starts
	}
	s.eventually(long, "the set lies on several servers", func() (bool, string) { return len(divided()) >= 2, strings.Join(divided(), " ") })
	killed, deaths := map[string]int{}, 0
	for end := time.Now().Add(length); time.Now().Before(end); deaths++ {
		pods := s.computePods()
		pod := pods[random.IntN(len(pods))]
		// its kubelet would wait before it starts it again
		if random.IntN(3) == 0 || killed[pod] == promptRestarts {
			s.replaced(pod, "3/3", func(pod string) { s.kubectl("delete", "pod", pod, "--force", "--grace-period=0") })
		} else {
			killed[pod]++
			s.killed(pod)
			s.settled("2/2", "3/3")
		}
		await(500)
	}
	s.kubectl("exec", "sets", "--", "exercise", "stop")
	s.eventually(long, "the exercise has read everything back", func() (bool, string) {
		phase := s.jsonpath("pod/sets", "{.status.phase}")
		return phase == "Succeeded" || phase == "Failed", phase
	})
	log := s.kubectl("logs", "sets")
	if phase := s.jsonpath("pod/sets", "{.status.phase}"); phase != "Succeeded" {
		t.Errorf("the exercise did not end as it should:\n%s", tail(log, 40))
	}
	t.Logf("%d deaths, boundaries within the set %q: %s", deaths, divided(), log)
}
