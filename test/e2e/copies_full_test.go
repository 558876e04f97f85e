//go:build e2e && e2efull && ownnodes

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// replicate gives the memory of an index that is served a second copy.
func (s *space) replicate() {
	s.Helper()
	s.kubectl("patch", "dmi/x", "--type=merge", `--patch={"spec":{"durability":"Replicated"}}`)
	s.inSync("")
	s.eventually(short, "the index says so", func() (bool, string) {
		durability := s.jsonpath("dmi/x", "{.status.durability}")
		return durability == "Replicated", durability
	})
}

// failOver ends the primary of a volume in a way of its own, and waits until another pod answers.
func (s *space) failOver(volume string, end func(primary string)) (primary string) {
	s.Helper()
	primary = s.volume(volume, "primary")
	end(primary)
	s.eventually(short, "the backup takes the place of "+primary, func() (bool, string) {
		now := s.volume(volume, "primary")
		return now != primary, now
	})
	return primary
}

// kill ends the server of a pod without a warning.
func (s *space) kill(pod string) { s.signal(pod, "SIGKILL") }

// leader is the pod of the operator that leads.
func (s *space) leader() string {
	s.Helper()
	leader, _, _ := strings.Cut(s.kubectlSystem("get", "lease", "operator.dmindex.io", "--output=jsonpath={.spec.holderIdentity}"), "_")
	return leader
}

// killLeader ends the operator that leads without a warning.
func (s *space) killLeader() {
	s.Helper()
	s.kubectlSystem("delete", "pod", s.leader(), "--force", "--grace-period=0")
}

// replicatedOnTwo makes an index whose memory is kept twice, on node2 and node3, and whose clients
// are on node1. Its requests wait for a minute: they outlive the lease of a compute server.
func (s *space) replicatedOnTwo(operations int) *exercise {
	s.Helper()
	on := func(text, old, nodes string) string {
		return strings.Replace(text, old, old+", pod: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: "+
			"{nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: ["+nodes+"]}]}]}}}}", 1)
	}
	s.newIndexOn(on(on(indexManifest, "memory: 128Mi", "node2, node3"), "replicas: 2", "node1"), "node1")
	s.fill()
	e := s.startExerciseOn("node1", operations, "--limit", "60s")
	e.begin("gets copies")
	s.replicate()
	return e
}

// primaryOn makes sure that a volume has its primary on a node, and returns that volume.
func (s *space) primaryOn(node string) (volume string) {
	s.Helper()
	for _, volume := range []string{"0", "1"} {
		if s.jsonpath("pod/"+s.volume(volume, "primary"), "{.spec.nodeName}") == node {
			return volume
		}
	}
	s.failOver("0", s.kill)
	s.inSync("")
	return "0"
}

// loses loses a node, sees the other copies answer, and gets it back. The name of the phase says if
// the operator that leads was on the node: nobody decides then before its lease is over.
func (s *space) loses(e *exercise, number, lose, back string) {
	s.Helper()
	name := "node" + number
	volume := s.primaryOn(name)
	what := lose + " " + name
	if s.kubectlSystem("get", "pod", s.leader(), "--ignore-not-found", "--output=jsonpath={.spec.nodeName}") == name {
		what += " and the operator"
	}
	e.begin(what)
	s.failOver(volume, func(string) {
		s.node(lose, number)
		s.Cleanup(func() { // it is on, or is switched on now
			_, _ = execute(context.Background(), "", "../../hack/cluster/node", back, number)
		})
	})
	e.phase("without it")
	s.node(back, number)
	s.kubectl("wait", "node/"+name, "--for=condition=Ready", "--timeout=80s")
	s.inSync("")
	e.phase("with it")
}

// TestFailureMatrix goes through what docs/design/volumes.md says of what fails, as far as
// TestKeptTwice does not: each time the index answers again, no request fails and nothing is lost.
func TestFailureMatrix(t *testing.T) {
	s := newSpaceAlone(t)
	e := s.replicatedOnTwo(1000)
	s.loses(e, "2", "kill", "start")
	s.loses(e, "3", "cut", "heal")
	s.loses(e, "2", "suspend", "resume")

	e.begin("with a compute server")
	s.failOver("0", func(pod string) {
		s.kill(s.computePods()[0])
		s.kill(pod)
	})
	s.inSync("")
	s.settled("2/2", "2/2")
	e.phase("after both")

	e.begin("with the operator that leads")
	s.failOver("1", func(pod string) {
		s.killLeader()
		s.kill(pod)
	})
	s.inSync("")
	e.phase("after the operator")

	e.begin("with a compute server and the operator that leads")
	s.failOver("1", func(pod string) {
		s.kill(s.computePods()[0])
		s.killLeader()
		s.kill(pod)
	})
	s.inSync("")
	s.settled("2/2", "2/2")
	e.phase("after all three")

	e.begin("the backup")
	view := s.volume("0", "view")
	s.kill(s.volume("0", "backup"))
	s.eventually(short, "the primary goes on", func() (bool, string) {
		now := s.volume("0", "view")
		return now != view, now
	})
	s.inSync("")
	e.phase("after the backup")

	e.begin("without the API server")
	exercised := s.exercised()
	signal := s.signaller(s.volume("1", "backup"))
	thaw := s.withoutAPIServer()
	exercised("await", "700")
	exercised("phase", "nor the backup")
	signal("SIGKILL")
	<-time.After(3 * time.Second) // nobody could decide anything
	thaw()
	s.inSync("")
	e.phase("after the API server")

	s.settled("2/2", "2/2")
	s.filled()
	e.finish()
	s.condition("DataLost", "False")
}

// TestNodes loses a node a minute, one after the other, without power, without a network, or
// standing still. No request fails and nothing is lost.
func TestNodes(t *testing.T) {
	length, random := soak(t)
	s := newSpaceAlone(t)
	e := s.replicatedOnTwo(1000)
	lost := 0
	for end := time.Now().Add(length); time.Now().Before(end); lost++ {
		ways := [][2]string{{"kill", "start"}, {"cut", "heal"}, {"suspend", "resume"}}
		way, number := ways[random.IntN(len(ways))], []string{"2", "3"}[random.IntN(2)]
		s.loses(e, number, way[0], way[1])
	}
	t.Logf("%d nodes were lost", lost)
	s.settled("2/2", "2/2")
	s.filled()
	e.finish()
	s.condition("DataLost", "False")
}

// TestDrainsInTurn drains one node after the other of the memory that is kept twice, as an upgrade
// of a cluster does. Each drain ends by itself, no request fails and nothing is lost. Two of the
// nodes are in one zone: before the first drain no volume has both copies in it.
func TestDrainsInTurn(t *testing.T) {
	s := newSpaceAlone(t)
	zone := func(name string) {
		s.kubectl("label", "node/node2", "topology.kubernetes.io/zone="+name, "--overwrite")
	}
	zone("zone1")
	t.Cleanup(func() { zone("zone2") })
	s.newIndex(replicated(indexManifest), "2/2", "2/2")
	s.inSync("")
	for _, volume := range []string{"0", "1"} {
		outside := 0
		for _, of := range []string{"primary", "backup"} {
			if s.jsonpath("pod/"+s.volume(volume, of), "{.spec.nodeName}") == "node3" {
				outside++
			}
		}
		s.is(fmt.Sprintf("volume %s: %d copies outside of zone1", volume, outside), fmt.Sprintf("volume %s: 1 copies outside of zone1", volume))
	}
	s.fill()
	e := s.startExercise(1000)
	for _, node := range []string{"node1", "node2", "node3"} {
		e.begin("drain " + node)
		t.Cleanup(func() { s.kubectl("uncordon", node) })
		out, err := s.try("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--pod-selector=dmindex.io/pool=x-memory", "--timeout=110s")
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		s.inSync("")
		s.is(s.kubectl("get", "pods", "--selector=dmindex.io/pool=x-memory", "--field-selector=spec.nodeName="+node, "--output=name"), "")
		s.kubectl("uncordon", node)
		e.phase("after " + node)
	}
	s.settled("2/2", "2/2")
	s.filled()
	e.finish()
	s.condition("DataLost", "False")
}
