//go:build e2e && ownnodes

package e2e

import (
	"slices"
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

// claimsWritable lets the servers write their claims: the provisioner of the tests leaves them to
// root.
func (s *space) claimsWritable() {
	s.Helper()
	s.node("exec", "1", "sh", "-c", "chmod 777 /tmp/hostpath_pv/*")
}

// bound waits until so many claims have volumes, and lets the servers write them.
func (s *space) bound(claims int) {
	s.Helper()
	s.eventually(long, "the claims have volumes", func() (bool, string) {
		phases := s.jsonpath("pvc", "{.items[*].status.phase}")
		return strings.Count(phases, "Bound") == claims, phases
	})
	s.claimsWritable()
}

// contents are the incarnations of the memory's volumes, whichever pod has which.
func (s *space) contents() string {
	s.Helper()
	var all []string
	for _, server := range strings.Fields(s.incarnations()) {
		all = append(all, server[strings.Index(server, "="):])
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// TestPersistent: all pods of an index are deleted by force at once while a program writes, with
// one copy of its memory on disks and with two. Its memory pods come back with their claims, and
// nothing that was acknowledged is lost.
func TestPersistent(t *testing.T) {
	s := newSpace(t)
	s.apply(persistent)
	s.bound(2)
	s.newIndex(persistent, "2/2", "2/2")
	s.is(s.jsonpath("dmi/x", "{.status.durability}"), "Persistent")
	s.fill()
	before := s.contents()
	e := s.startExercise(300)
	for _, phase := range []string{"with one copy", "with two copies"} {
		if phase == "with two copies" {
			s.kubectl("patch", "dmmp/x-memory", "--type=merge", `--patch={"spec":{"copies":2}}`)
			s.bound(4)
			s.inSync("")
		}
		pods := s.podUIDs()
		e.begin("all pods are deleted " + phase)
		s.kubectl("delete", "pods", "--selector=app.kubernetes.io/managed-by=dmindex", "--force", "--grace-period=0")
		s.eventually(long, "the pods are back", func() (bool, string) {
			now := s.podUIDs()
			for name, uid := range pods {
				if strings.HasPrefix(name, "x-memory-") && (now[name] == "" || now[name] == uid) {
					return false, s.kubectl("get", "pods")
				}
			}
			return len(now) >= 4, s.kubectl("get", "pods")
		})
		s.settled("2/2", "2/2")
		e.phase("after they were deleted " + phase)
		s.filled()
	}
	s.inSync("")
	s.is(s.contents(), before)
	s.is(s.jsonpath("pvc", "{.items[*].metadata.name}"), "x-memory-0 x-memory-1 x-memory-1024 x-memory-1025")
	s.condition("DataLost", "False")
	t.Logf("%s requests failed", e.finishWithFailures())
}
