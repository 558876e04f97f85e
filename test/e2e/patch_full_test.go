//go:build e2e && e2efull

package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestPatchedPods: kubelets run pods of pools with a sidecar that reads a volume, and with a mount
// of it in the server's container. A patch that is put in later replaces the pods under load, and
// no request fails; one that cannot be used changes nothing, and the index says why.
func TestPatchedPods(t *testing.T) {
	s := newSpace(t)
	s.kubectl("create", "configmap", "trust", "--from-literal=ca=first")
	s.newIndex(indexManifest, "2/2", "2/2")
	e := s.startExercise(300)
	e.phase("without")

	patch := func(patch string) {
		t.Helper()
		for i, kind := range []string{"memoryPools", "computePools"} {
			server := strings.TrimSuffix(kind, "Pools")
			at := fmt.Sprintf(`[{"op": "add", "path": "/spec/%s/0/template/pod", "value": {"patch": %s}}]`, kind, strings.ReplaceAll(patch, "SERVER", server))
			s.Logf("patch %d: %s", i, at)
			s.kubectl("patch", "dmi/x", "--type=json", "--patch="+at)
		}
	}
	e.begin("patched")
	patch(`{"volumes": [{"name": "trust", "configMap": {"name": "trust"}}], "containers": [
		{"name": "SERVER", "volumeMounts": [{"name": "trust", "mountPath": "/trust", "readOnly": true}]},
		{"name": "reader", "image": "` + target.toolsImage + `", "command": ["sh", "-c", "cat /trust/ca && echo && sleep infinity"],
		 "volumeMounts": [{"name": "trust", "mountPath": "/trust"}],
		 "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}`)
	s.eventually(3*long, "all pods have the sidecar, and are ready", func() (bool, string) {
		pods := s.kubectl("get", "pods", "--selector=app.kubernetes.io/managed-by=dmindex",
			`--output=jsonpath={range .items[*]}{.metadata.name} {.spec.containers[*].name} {.status.containerStatuses[*].ready}{"\n"}{end}`)
		lines := strings.Split(strings.TrimSpace(pods), "\n")
		done := len(lines) == 4
		for _, line := range lines {
			done = done && strings.HasSuffix(line, " reader true true")
		}
		return done, pods
	})
	s.settled("2/2", "2/2")
	for _, pod := range s.computePods() {
		if got := s.kubectl("logs", pod, "--container=reader"); !strings.Contains(got, "first") {
			t.Errorf("the sidecar of %s read %q", pod, got)
		}
	}
	e.phase("with a sidecar")

	pods := s.kubectl("get", "pods", "--selector=app.kubernetes.io/managed-by=dmindex", "--output=name")
	patch(`{"hostNetwork": true}`)
	s.eventually(long, "the index says why no pod is made", func() (bool, string) {
		degraded := s.jsonpath("dmi/x", `{.status.conditions[?(@.type=="Degraded")]}`)
		return strings.Contains(degraded, "PatchRefused") && strings.Contains(degraded, "hostNetwork is the operator's"), degraded
	})
	e.phase("refused")
	if now := s.kubectl("get", "pods", "--selector=app.kubernetes.io/managed-by=dmindex", "--output=name"); now != pods {
		t.Errorf("pods were %s, and are %s", pods, now)
	}
	e.finish()
}
