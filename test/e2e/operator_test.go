//go:build e2e

package e2e

import (
	"slices"
	"strings"
	"testing"
)

const operatorSelector = "app.kubernetes.io/name=dmindex,app.kubernetes.io/component=operator"

// versions are the resource versions of everything that the operator looks after: equal ones mean
// that nobody wrote.
func (s *space) versions() string {
	lines := s.jsonpath("dmi,dmmp,dmcp,pods,services,configmaps,secrets,poddisruptionbudgets",
		`{range .items[*]}{.kind}/{.metadata.name} {.metadata.uid} {.metadata.resourceVersion}{"\n"}{end}`)
	return strings.Join(slices.DeleteFunc(strings.Split(lines, "\n"), func(line string) bool {
		return strings.HasPrefix(line, "Pod/tools ") // the kubelet still reports on it
	}), "\n")
}

// TestOperatorUpgrade: an operator that starts anew, also with another image, restarts no data pod.
func TestOperatorUpgrade(t *testing.T) {
	s := newSpaceAlone(t)
	s.newIndex(indexManifest, "2/2", "2/2")
	e := s.startExercise(300)
	dataPods := func() string {
		return s.jsonpath("pods", `{range .items[*]}{.metadata.name} {.metadata.uid} {.status.containerStatuses[0].restartCount} {.spec.containers[0].image}{"\n"}{end}`)
	}
	before := dataPods()
	deployment := s.kubectl("--namespace", target.system, "get", "deployments", "--selector="+operatorSelector, "--output=name")
	for _, image := range []string{target.nextImage, target.image} {
		e.begin("operator " + image)
		s.kubectl("--namespace", target.system, "set", "image", deployment, "*="+image)
		// On clusters of others both names may be the same: then it starts anew, at least.
		s.kubectl("--namespace", target.system, "rollout", "restart", deployment)
		s.kubectl("--namespace", target.system, "rollout", "status", deployment, "--timeout=80s")
		s.settled("2/2", "2/2")
		// The new operator leads and works: it answers a change.
		s.kubectl("patch", "dmi/x", "--type=merge", `--patch={"spec":{"paused":true}}`)
		s.condition("Paused", "True")
		s.kubectl("patch", "dmi/x", "--type=merge", `--patch={"spec":{"paused":false}}`)
		s.condition("Paused", "False")
		s.settled("2/2", "2/2")
	}
	s.is(dataPods(), before)
	e.finish()
}

const sharedPool = `
apiVersion: dmindex.io/v1alpha1
kind: DMMemoryPool
metadata: {name: shared}
spec: {servers: 2, memory: 128Mi}
`

var sharingIndex = strings.Replace(indexManifest, "template: {servers: 2, memory: 128Mi}", "ref: {name: shared}, quota: 96Mi", 1)

// TestDeletion: a deleted index gives its memory back, a new one of its name opens nothing of it.
func TestDeletion(t *testing.T) {
	s := newSpace(t)
	s.apply(sharedPool)
	for range 2 {
		s.newIndex(sharingIndex, "2/2", "2/2")
		s.is(s.redis("dbsize"), "0")
		s.fill()
		s.kubectl("delete", "dmi/x", "--timeout=80s")
		s.eventually(long, "all memory is free, all pods of the index are gone", func() (bool, string) {
			free := s.jsonpath("dmmp/shared", "granted {.status.granted} {.status.servers[*].chunksGranted}")
			pods := s.jsonpath("pods", "{.items[*].metadata.name}")
			granted := strings.Fields(strings.TrimPrefix(free, "granted"))
			for _, g := range granted {
				if g != "0" {
					return false, free + ", pods " + pods
				}
			}
			return !strings.Contains(pods, "x-compute"), free + ", pods " + pods
		})
		s.kubectl("delete", "pod/tools")
		s.is(s.kubectl("get", "services,configmaps,secrets", "--selector=dmindex.io/index=x", "--output=name"), "")
	}
	// The space's own end deletes the namespace with pool, index and all, and waits for it.
	s.apply(sharingIndex)
}
