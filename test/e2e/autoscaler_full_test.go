//go:build e2e && e2efull && ownnodes

package e2e

import (
	"os"
	"strings"
	"testing"
)

// TestAutoscaler: the HorizontalPodAutoscaler of examples/autoscaling measures processor time and
// scales the compute pool up under load. With a target that nobody reaches it scales down again. No
// request fails.
func TestAutoscaler(t *testing.T) {
	s := newSpaceAlone(t)
	example, err := os.ReadFile("../../examples/autoscaling/hpa.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s.newIndex(indexManifest, "2/2", "2/2")
	e := s.startExercise(300)
	e.phase("two")
	e.begin("to 3")
	s.apply(strings.NewReplacer( // less load and patience than a user has, and names of the tests
		"demo-compute", "x-compute",
		"averageValue: 800m", "averageValue: 10m",
		"maxReplicas: 8", "maxReplicas: 3",
		"stabilizationWindowSeconds: 60", "stabilizationWindowSeconds: 0",
		"stabilizationWindowSeconds: 300", "stabilizationWindowSeconds: 0",
	).Replace(string(example)))
	s.scaledTo("3")
	s.shared(3)
	e.phase("3")
	e.begin("to 2")
	s.kubectl("patch", "hpa/x-compute", "--type=json", `--patch=[{"op": "replace", "path": "/spec/metrics/0/resource/target/averageValue", "value": "2"}]`)
	s.scaledTo("2")
	s.shared(2)
	e.phase("2")
	e.finish()
}

// scaledTo waits until an autoscaler has measured, and wants so many compute servers.
func (s *space) scaledTo(n string) {
	s.Helper()
	s.eventually(long, "the HorizontalPodAutoscaler has scaled to "+n, func() (bool, string) {
		status := s.jsonpath("hpa/x-compute", "{.status}")
		return s.jsonpath("dmcp/x-compute", "{.spec.replicas}") == n && strings.Contains(status, "averageValue"), status
	})
}
