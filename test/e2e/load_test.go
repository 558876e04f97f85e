//go:build e2e

package e2e

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestLoad asks for keys that all belong to one server: they are divided, as the first load of an
// index is, long before another one could be. Then the operator chooses how many servers there are:
// more, then fewer. No request fails.
func TestLoad(t *testing.T) {
	s := newSpace(t)
	s.newIndex(strings.Replace(indexManifest, "spec:\n", "spec:\n  security: {showKeys: true}\n  partitioning: {rebalance: {minIntervalSeconds: 600}}\n", 1), "2/2", "2/2")
	e := s.startExercise(300, "--spread", "32", "--rate", "400")
	began := time.Now()
	e.phase("skewed")
	s.eventually(long, "ranges move because of load", func() (bool, string) {
		all := strings.Join(s.eventsOf("Handover"), "\n")
		return strings.Contains(all, "of the mean load"), all
	})
	t.Logf("ranges moved %v after the program was started", time.Since(began).Round(100*time.Millisecond))
	e.begin("moved")
	// the event comes before the status
	s.eventually(long, "the keys that are asked for are divided", func() (bool, string) {
		divided := false
		for _, start := range strings.Fields(s.jsonpath("dmi/x", "{.status.map.ranges[*].start}")) {
			key, err := base64.StdEncoding.DecodeString(start)
			divided = divided || err == nil && len(key) > 0 && key[0] < 32
		}
		return divided && len(s.owners()) == 2, s.jsonpath("dmi/x", "{.status.map}")
	})
	s.settled("2/2", "2/2")
	e.phase("even")
	e.begin("busy")
	const window, most = 20 * time.Second, 20 // each object has its status written every 10 s
	n := s.writes(window)
	t.Logf("%d writes to the index and its pools within %v of load", n, window)
	if n > most {
		t.Errorf("%d writes to the index and its pools within %v of load, want at most %d", n, window, most)
	}
	for _, want := range []struct{ replicas, target int }{{3, 50}, {2, 1_000_000}} {
		e.begin(fmt.Sprintf("to %d", want.replicas))
		s.kubectl("patch", "dmi", "x", "--type=merge", "-p", fmt.Sprintf(`{"spec":{"computePools":[{"name":"compute","template":{"replicas":2,"minReplicas":2,"maxReplicas":3,
			"autoscaling":{"operationsPerSecond":%d,"scaleDown":{"stabilizationWindowSeconds":10}}}}]}}`, want.target))
		s.eventually(long, "the operator scales", func() (bool, string) {
			all := strings.Join(s.eventsOf("Autoscaled"), "\n")
			return strings.Contains(all, fmt.Sprintf("-> %d servers: ", want.replicas)), all
		})
		ready := fmt.Sprintf("%d/%d", want.replicas, want.replicas)
		s.settled("2/2", ready)
		s.eventually(long, "every server has its share", func() (bool, string) {
			owners := s.owners()
			return len(owners) == want.replicas, fmt.Sprint(owners)
		})
		s.settled("2/2", ready)
		e.phase(fmt.Sprint(want.replicas))
	}
	t.Logf("events:\n%s", strings.Join(append(s.eventsOf("Autoscaled"), s.eventsOf("Handover")...), "\n"))
	e.finish()
}
