//go:build e2e

package e2e

import "testing"

// drain drains a node of the pods of x's memory pool, and of nothing else.
func (s *space) drain(node string) (string, error) {
	return s.try("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--pod-selector=dmindex.io/pool=x-memory", "--timeout=60s")
}

// release lets a pod of x's memory pool go, and waits until the operator did.
func (s *space) release(pod string) {
	s.Helper()
	s.kubectl("annotate", "dmmp/x-memory", "--overwrite", "dmindex.io/release="+pod)
	s.eventually(short, pod+" is released", func() (bool, string) {
		label := s.jsonpath("pod/"+pod, `{.metadata.labels.dmindex\.io/released}`)
		kept := s.jsonpath("dmmp/x-memory", `{.status.servers[?(@.pod=="`+pod+`")].keptFor}`)
		return label == "true" && kept == "", label + kept
	})
}

// TestDrain: whoever deletes a memory pod or its pool is refused with the name of the index that
// would lose data. A drain waits until what the node's pod holds is moved to another node, also
// with one copy of memory, and nothing is lost. Of a paused pool nothing is moved, so its drain
// ends.
func TestDrain(t *testing.T) {
	s := newSpaceAlone(t)
	s.newIndex(indexManifest, "2/2", "2/2")
	s.fill()
	victim := s.memoryPods()[1]
	node := s.jsonpath("pod/"+victim, "{.spec.nodeName}")
	t.Cleanup(func() { s.kubectl("uncordon", node) })

	data := "pod " + victim + " has data of x that is lost with it"
	release := "Dump it, then release the pod: kubectl annotate dmmp x-memory --namespace " + s.namespace + " --overwrite dmindex.io/release=" + victim
	out, err := s.try("delete", "pod", victim)
	s.fails(out, err, data+", unless another copy is in sync. "+release)
	// An API server that met our kinds just now may take half a minute until a policy that asks
	// for objects of one holds.
	s.eventually(short, "deletions of the pool are refused", func() (bool, string) {
		out, err := s.try("delete", "dmmp", "x-memory", "--dry-run=server")
		return err != nil, out
	})
	out, err = s.try("delete", "dmmp", "x-memory", "--timeout=10s")
	s.fails(out, err, "index x has memory in pool x-memory, and its data would be lost with it. Delete the index first")

	pause := func(paused string) {
		s.kubectl("patch", "dmi/x", "--type=merge", `--patch={"spec":{"paused":`+paused+`}}`)
		s.eventually(short, "the pool is paused: "+paused, func() (bool, string) {
			now := s.jsonpath("dmmp/x-memory", "{.spec.paused}")
			return now == paused || now == "" && paused == "false", now
		})
	}
	pause("true")
	out, err = s.drain(node)
	s.fails(out, err, data+". Pool x-memory is paused: set spec.paused of it, or of its index, to false")
	pause("false")
	s.eventually(long, "the drain ends", func() (bool, string) {
		out, err := s.drain(node)
		return err == nil, out
	})
	s.kubectl("uncordon", node)
	s.settled("2/2", "2/2")
	for _, pod := range s.memoryPods() {
		if pod == victim || s.jsonpath("pod/"+pod, "{.spec.nodeName}") == node {
			t.Errorf("memory pod %s is on %s, which was drained of %s", pod, node, victim)
		}
	}
	s.filled()
	s.condition("DataLost", "False")
}
