//go:build e2e && ownnodes

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
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

// signal sends a signal to the server of a pod.
func (s *space) signal(pod, signal string) {
	s.Helper()
	s.signaller(pod)(signal)
}

// signaller makes a function that sends signals to the server of a pod, without the API server.
func (s *space) signaller(pod string) func(signal string) {
	s.Helper()
	number := strings.TrimPrefix(s.jsonpath("pod/"+pod, "{.spec.nodeName}"), "node")
	container := strings.TrimPrefix(s.jsonpath("pod/"+pod, "{.status.containerStatuses[0].containerID}"), "containerd://")
	return func(signal string) {
		s.Helper()
		s.node("exec", number, "ctr", "--namespace", "k8s.io", "task", "kill", "--signal", signal, container)
	}
}

// killed ends the server of a pod without a warning and waits until it runs again.
func (s *space) killed(pod string) {
	s.Helper()
	before := s.restarts(pod)
	s.signal(pod, "SIGKILL")
	s.eventually(long, pod+" is restarted", func() (bool, string) {
		now := s.restarts(pod)
		return now != before && s.jsonpath("pod/"+pod, "{.status.containerStatuses[0].ready}") == "true", "restarts " + now
	})
}

// expiring is a manifest of an index whose pairs may expire.
func expiring(manifest string) string {
	return strings.Replace(manifest, "durability: Memory", "durability: Memory\n  expiry: Enabled", 1)
}

// TestKill kills compute and memory servers with kill -9, and deletes a compute pod without grace.
// No acknowledged write is lost: what an owner had not written back is replayed from its log, and a
// memory server's content is there when it is back. Requests may fail while a server is away; but
// nothing stays locked by the dead, so in the end every key can be written at once. Pairs expire
// when they should, whoever is dead.
func TestKill(t *testing.T) {
	s := newSpace(t)
	s.newIndex(expiring(indexManifest), "2/2", "2/2")
	s.fill()
	s.is(s.redis("expireat", "key/00000007", "33000000000"), "1")
	s.is(s.redis("set", "key/soon", "1", "ex", "1"), "OK")
	incarnations := s.incarnations()
	e := s.startExercise(300)
	for _, pod := range append(s.computePods(), s.memoryPods()...) {
		e.begin("kill " + pod)
		s.killed(pod)
		s.settled("2/2", "2/2")
		e.phase("after " + pod)
	}
	e.begin("delete pod at once")
	s.replaced(s.computePods()[0], "2/2", func(pod string) { s.kubectl("delete", "pod", pod, "--force", "--grace-period=0") })
	e.phase("replaced")
	s.is(s.incarnations(), incarnations)
	s.is(s.redis("exists", "key/soon"), "0")
	s.is(s.redis("expiretime", "key/00000007"), "33000000000")
	s.filled()
	t.Logf("%s requests failed", e.finishWithFailures())
	s.toldOfTakeOvers(3)
}

// toldOfTakeOvers: there was an event for each owner that died, by whoever replayed its log.
func (s *space) toldOfTakeOvers(deaths int) {
	s.Helper()
	s.eventually(long, "an event for each take-over", func() (bool, string) {
		all := s.eventsOf("TakeOver")
		return len(all) >= deaths && strings.Contains(all[0], "replayed the log of a dead server, and serves: keys"), strings.Join(all, "\n")
	})
	s.Logf("events:\n%s", strings.Join(s.eventsOf("TakeOver"), "\n"))
}

// TestFreeze stops the process of a compute server for longer than its leases, and lets it go on:
// it answers nothing from before, finds itself fenced, and serves again as another client. Then it
// stops one that is replaced, which the operator fences at once. The others go on all the time,
// with what the frozen ones had locked.
func TestFreeze(t *testing.T) {
	s := newSpace(t)
	s.newIndex(indexManifest, "2/2", "2/2")
	s.fill()
	s.is(s.redis("set", "asked-late", "old"), "OK")
	pods := s.computePods()
	address := func(pod string) string { return s.jsonpath("pod/"+pod, "{.status.podIP}") }
	frozen, other := address(pods[0]), address(pods[1])
	restarts := s.restarts(pods[0])
	e := s.startExercise(300)

	// Its liveness probe fails six times, ten seconds apart, before the kubelet ends it; leases are
	// over after ten seconds.
	e.begin("frozen")
	s.signal(pods[0], "SIGSTOP")
	late := make(chan string, 1)
	go func() { // waits in the frozen server's socket
		out, _ := s.tools("sh", "-c", `REDISCLI_AUTH=$(cat /conn/password) exec redis-cli -h "$1" get asked-late`, "redis", frozen)
		late <- out
	}()
	for _, pod := range s.memoryPods() {
		s.eventually(short, "the lease at "+pod+" is over", func() (bool, string) {
			log := s.kubectl("logs", pod)
			return strings.Contains(log, leaseOver), tail(log, 3)
		})
	}
	s.eventually(long, "another server is in charge of the frozen one's keys", func() (bool, string) {
		out := s.redisAt(other, "set", "asked-late", "new")
		return out == "OK", out
	})
	e.phase("without it")
	s.signal(pods[0], "SIGCONT")
	e.phase("thawed")
	if answer := <-late; answer == "old" {
		t.Error("the thawed server answered what had been overwritten")
	} else {
		t.Logf("the late answer: %s", answer)
	}
	s.settled("2/2", "2/2")
	s.is(s.redisAt(frozen, "get", "asked-late"), "new")
	s.is(s.restarts(pods[0]), restarts)
	if owners := fmt.Sprint(s.computePods()); owners != fmt.Sprint(pods) {
		t.Errorf("the compute pods are %s, were %v", owners, pods)
	}

	e.begin("frozen and deleted")
	s.signal(pods[1], "SIGSTOP")
	s.kubectl("delete", "pod", pods[1], "--force", "--grace-period=0")
	s.eventually(short, "its clients are fenced", func() (bool, string) {
		events := s.kubectl("get", "events", "--field-selector=reason=ClientsFenced", "--output=jsonpath={.items[*].message}")
		return strings.Contains(events, "fenced at all memory servers") && strings.Contains(events, pods[1]), events
	})
	e.phase("replaced")
	s.settled("2/2", "2/2")
	s.filled()
	t.Logf("%s requests failed", e.finishWithFailures())
}

// leaseOver is what a memory server logs when it fenced a client whose lease it did not see
// renewed.
const leaseOver = "fencing a client that did not renew its lease"

// TestNodeLoss pulls the plug of a node that has compute servers, and perhaps the operator that
// leads: they are replaced on other nodes. The keys that were served there are away until the lease
// of who served them is over and somebody leads, and not for as long as the node keeps its pods.
func TestNodeLoss(t *testing.T) {
	s := newSpaceAlone(t)
	pinned := strings.Replace(indexManifest, "memory: 128Mi", "memory: 128Mi, pod: {nodeSelector: {kubernetes.io/hostname: node1}}", 1)
	pinned = strings.Replace(pinned, "replicas: 2,", "pod: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: "+
		"{nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node2, node3]}]}]}}}}, replicas: 2,", 1)
	s.newIndexOn(pinned, "node1")
	s.fill()

	pod := s.jsonpath("dmi/x", "{.status.map.ranges[0].owner}") // of the keys that were put
	victim := s.jsonpath("pod/"+pod, "{.spec.nodeName}")
	number := strings.TrimPrefix(victim, "node")
	t.Logf("pulls the plug of %s, with %s; the operators: %s", victim, pod, s.kubectlSystem("get", "pods", "--selector="+operatorSelector, "--output=jsonpath={.items[*].spec.nodeName}"))
	s.node("kill", number)
	t.Cleanup(func() {
		s.node("start", number)
		s.kubectl("wait", "node/"+victim, "--for=condition=Ready", "--timeout=80s")
	})
	lost := time.Now()
	s.eventually(long, "all keys are served by somebody else", func() (bool, string) {
		out, err := s.tryDmindex("scan", "--prefix", "key/", "--count")
		return err == nil && out == "5000", out
	})
	t.Logf("all keys were served again %.1f s after the loss", time.Since(lost).Seconds())
	// The pod itself stays Terminating until its node is back or gone: only the node could say that
	// it has ended.
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
	s.withTools(onNode(node, toolsPod("tools", "sleep", "infinity")))
}

// TestNodeCutOff unplugs the network of the node with all memory for three times as long as
// Kubernetes leaves pods on such a node: nothing is lost, and all keys are there when it is back.
func TestNodeCutOff(t *testing.T) {
	s := newSpaceAlone(t)
	on := func(text, old, nodes string) string {
		return strings.Replace(text, old, old+", pod: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: "+
			"{nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: ["+nodes+"]}]}]}}}}", 1)
	}
	s.newIndexOn(on(on(indexManifest, "memory: 128Mi", "node2"), "replicas: 2", "node1, node3"), "node1")
	s.fill()
	incarnations, pods := s.incarnations(), s.memoryPods()

	heal := func() { s.node("heal", "2") }
	t.Cleanup(heal)
	s.node("cut", "2")
	s.kubectl("wait", "node/node2", "--for=condition=Ready=unknown", "--timeout=80s")
	s.condition("Available", "False")
	s.stays(3*evictionTime, "the memory pods", func() string {
		return s.kubectl("get", "pods", "--selector=app.kubernetes.io/component=memory", "--output=jsonpath={range .items[*]}{.metadata.name} {.metadata.deletionTimestamp} {end}")
	})
	heal()
	s.kubectl("wait", "node/node2", "--for=condition=Ready", "--timeout=80s")
	s.settled("2/2", "2/2")
	s.is(s.incarnations(), incarnations)
	s.is(fmt.Sprint(s.memoryPods()), fmt.Sprint(pods))
	s.filled()
	s.is(s.redis("set", "after", "1"), "OK")
}

// evictionTime is how long Kubernetes leaves pods on a node that is not heard of, on the clusters
// of hack/cluster.
const evictionTime = 5 * time.Second
