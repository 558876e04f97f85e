//go:build e2e && ownnodes

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// node runs hack/cluster/node.
func (s *space) node(args ...string) string {
	s.Helper()
	out, err := execute(context.Background(), "", "../../hack/cluster/node", args...)
	if err != nil {
		s.Fatalf("hack/cluster/node %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// kill9 ends the server of a pod without a warning.
func (s *space) kill9(pod string) {
	s.Helper()
	number := strings.TrimPrefix(s.jsonpath("pod/"+pod, "{.spec.nodeName}"), "node")
	container := strings.TrimPrefix(s.jsonpath("pod/"+pod, "{.status.containerStatuses[0].containerID}"), "containerd://")
	s.node("exec", number, "ctr", "--namespace", "k8s.io", "task", "kill", "--signal", "SIGKILL", container)
}

// killed ends the server of a pod without a warning and waits until it runs again.
func (s *space) killed(pod string) {
	s.Helper()
	before := s.restarts(pod)
	s.kill9(pod)
	s.eventually(long, pod+" is restarted", func() (bool, string) {
		now := s.restarts(pod)
		return now != before && s.jsonpath("pod/"+pod, "{.status.containerStatuses[0].ready}") == "true", "restarts " + now
	})
}

// TestKill kills compute and memory servers with kill -9. No acknowledged write is lost: the SDK tries again elsewhere, and a memory
// server's content is there when it is back. Requests may fail, since a server that dies with a lock in its hand leaves it locked
// (docs/limitations.md).
func TestKill(t *testing.T) {
	s := newSpace(t)
	s.newIndex(indexManifest, "2/2", "2/2")
	s.fill()
	incarnations := s.incarnations()
	e := s.startExercise(1000)
	for _, pod := range append(s.computePods(), s.memoryPods()...) {
		e.begin("kill " + pod)
		s.killed(pod)
		s.settled("2/2", "2/2")
		e.phase("after " + pod)
	}
	s.is(s.incarnations(), incarnations)
	s.filled()
	t.Logf("%s requests failed", e.finishWithFailures())
}

// TestNodeLoss pulls the plug of a node that only has compute servers: they are replaced on other nodes, and the index serves.
func TestNodeLoss(t *testing.T) {
	s := newSpace(t)
	pinned := strings.Replace(indexManifest, "memory: 128Mi", "memory: 128Mi, pod: {nodeSelector: {kubernetes.io/hostname: node1}}", 1)
	pinned = strings.Replace(pinned, "replicas: 2,", "pod: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: "+
		"{nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node2, node3]}]}]}}}}, replicas: 2,", 1)
	s.newIndexOn(pinned, "node1")
	s.fill()

	victim, pod := "", ""
	for _, p := range s.computePods() {
		if n := s.jsonpath("pod/"+p, "{.spec.nodeName}"); n == "node3" || victim == "" {
			victim, pod = n, p
		}
	}
	number := strings.TrimPrefix(victim, "node")
	t.Logf("pulls the plug of %s, with %s", victim, pod)
	s.node("kill", number)
	t.Cleanup(func() {
		s.node("start", number)
		s.kubectl("wait", "node/"+victim, "--for=condition=Ready", "--timeout=80s")
	})
	s.filled() // the other server answers meanwhile
	// The pod itself stays Terminating until its node is back or gone: only the node could say that it has ended.
	s.eventually(long, "the servers of "+victim+" are replaced", func() (bool, string) {
		owners := s.owners()
		return !owners[pod] && len(owners) == 2, fmt.Sprint(s.computePods(), owners)
	})
	s.settled("2/2", "2/2")
	s.filled()
	s.is(s.redis("set", "after", "1"), "OK")
}

// newIndexOn is newIndex with the pod "tools" on a certain node.
func (s *space) newIndexOn(manifest, node string) {
	s.Helper()
	s.apply(manifest)
	s.settled("2/2", "2/2")
	s.apply(strings.Replace(toolsPod("tools", "sleep", "infinity"), "spec:\n", "spec:\n  nodeName: "+node+"\n", 1))
	s.kubectl("wait", "pod/tools", "--for=condition=Ready", "--timeout=60s")
}
