//go:build e2e && e2efull && metrics

package e2e

import (
	"os"
	"strings"
	"testing"
)

// TestAutoscalerByMeasure: the HorizontalPodAutoscaler of examples scales the compute pool up and
// down by what metrics-server measures of its pods, under load: no request fails. Its target is
// first below what any server uses, then above what a node has, so that the machine does not
// matter. It needs a cluster with metrics-server: METRICS=1.
func TestAutoscalerByMeasure(t *testing.T) {
	s := newSpace(t)
	if out, err := s.try("get", "--raw", "/apis/metrics.k8s.io/v1beta1/nodes"); err != nil {
		t.Fatalf("the cluster has no metrics-server: take it down and run with METRICS=1: %s", out)
	}
	example, err := os.ReadFile("../../examples/autoscaling/hpa.yaml")
	if err != nil {
		t.Fatal(err)
	}
	manifest := string(example)
	for old, new := range map[string]string{
		"demo-compute": "x-compute", "maxReplicas: 8": "maxReplicas: 3", "averageValue: 800m": "averageValue: 1m",
		"scaleUp: {stabilizationWindowSeconds: 60}": "scaleUp: {stabilizationWindowSeconds: 0}", "scaleDown: {stabilizationWindowSeconds: 300}": "scaleDown: {stabilizationWindowSeconds: 0}",
	} {
		if !strings.Contains(manifest, old) {
			t.Fatalf("the example does not have %q:\n%s", old, manifest)
		}
		manifest = strings.ReplaceAll(manifest, old, new)
	}
	s.newIndex(indexManifest, "2/2", "2/2")
	e := s.startExercise(300)
	e.phase("two")
	scaled := func(what, replicas string) {
		t.Helper()
		s.eventually(2*long, what, func() (bool, string) {
			status := s.jsonpath("hpa/x-compute", "{.status}")
			measured := s.jsonpath("hpa/x-compute", "{.status.currentMetrics[0].resource.current.averageValue}")
			return measured != "" && s.jsonpath("dmcp/x-compute", "{.spec.replicas}") == replicas, status
		})
	}
	e.begin("up")
	s.apply(manifest)
	scaled("servers use more than the target, so there are more", "3")
	s.shared(3)
	e.phase("three")
	e.begin("down")
	s.apply(strings.Replace(manifest, "averageValue: 1m", "averageValue: 1k", 1))
	scaled("servers use less than the target, so there are fewer", "2")
	s.shared(2)
	e.phase("two again")
	e.finish()
}
