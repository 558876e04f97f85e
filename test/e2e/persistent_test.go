//go:build e2e && ownnodes

package e2e

import (
	"strings"
	"testing"
)

// persistent is the manifest of an index whose memory is on disks.
var persistent = strings.NewReplacer("durability: Memory", "durability: Persistent", "memory: 128Mi", "memory: 128Mi, persistence: {}").Replace(indexManifest)

// podUIDs are the UIDs of the index's pods that are ready, by name.
func (s *space) podUIDs() map[string]string {
	s.Helper()
	all := map[string]string{}
	for _, line := range strings.Fields(s.jsonpath("pods", `{range .items[?(@.status.containerStatuses[0].ready==true)]}{.metadata.name}={.metadata.uid}{"\n"}{end}`)) {
		if name, uid, _ := strings.Cut(line, "="); strings.HasPrefix(name, "x-") {
			all[name] = uid
		}
	}
	return all
}

// TestPersistent: all pods of an index are deleted by force at once, twice, the second time while a
// program writes. Its memory pods come back with their claims, and nothing that was acknowledged is
// lost.
func TestPersistent(t *testing.T) {
	s := newSpace(t)
	s.apply(persistent)
	s.eventually(long, "the claims have volumes", func() (bool, string) {
		phases := s.jsonpath("pvc", "{.items[*].status.phase}")
		return phases == "Bound Bound", phases
	})
	// The provisioner of the tests leaves them to root.
	s.node("exec", "1", "sh", "-c", "chmod 777 /tmp/hostpath_pv/*")
	s.newIndex(persistent, "2/2", "2/2")
	s.is(s.jsonpath("dmi/x", "{.status.durability}"), "Persistent")
	s.fill()
	incarnations := s.incarnations()
	e := s.startExercise(1000)
	for _, phase := range []string{"at rest", "again"} {
		before := s.podUIDs()
		e.begin("all pods are deleted " + phase)
		s.kubectl("delete", "pods", "--selector=app.kubernetes.io/managed-by=dmindex", "--force", "--grace-period=0")
		s.eventually(long, "the pods are back", func() (bool, string) {
			now := s.podUIDs()
			for _, name := range []string{"x-memory-0", "x-memory-1"} {
				if now[name] == "" || now[name] == before[name] {
					return false, s.kubectl("get", "pods")
				}
			}
			return len(now) >= 4, s.kubectl("get", "pods")
		})
		s.settled("2/2", "2/2")
		e.phase("after they were deleted " + phase)
		s.filled()
	}
	s.is(s.incarnations(), incarnations)
	s.is(s.jsonpath("pvc", "{.items[*].metadata.name}"), "x-memory-0 x-memory-1")
	s.condition("DataLost", "False")
	t.Logf("%s requests failed", e.finishWithFailures())
}
