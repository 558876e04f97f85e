//go:build e2e

package e2e

import (
	"strings"
	"testing"
	"time"
)

// endContainer ends the server of a pod from a container that joins it for a moment, and waits
// until it runs again.
func (s *space) endContainer(pod string) {
	s.Helper()
	container := s.jsonpath("pod/"+pod, "{.spec.containers[0].name}")
	before := s.restarts(pod)
	s.kubectl("debug", pod, "--image="+target.toolsImage, "--target="+container, "--profile=restricted", "--quiet", "--", "kill", "-TERM", "1")
	s.eventually(long, "the container of "+pod+" is restarted", func() (bool, string) {
		now := s.restarts(pod)
		return now != before && s.jsonpath("pod/"+pod, "{.status.containerStatuses[0].ready}") == "true", "restarts " + now
	})
}

func (s *space) restarts(pod string) string {
	return s.jsonpath("pod/"+pod, "{.status.containerStatuses[0].restartCount}")
}

// incarnations are those of the memory servers. The pool tells of them at its own next look, which
// may come after the index has settled.
func (s *space) incarnations() (found string) {
	s.Helper()
	s.eventually(long, "the pool tells of all memory servers", func() (bool, string) {
		found = s.jsonpath("dmmp/x-memory", "{range .status.servers[*]}{.pod}={.incarnation} {end}")
		return found != "" && !strings.Contains(found, "= "), found
	})
	return found
}

// fill puts 5000 pairs; filled checks that they are there.
func (s *space) fill() {
	s.Helper()
	if out, err := s.tools("sh", "-c", `i=0; while [ $i -lt 5000 ]; do printf 'key/%08d\tvalue of key/%08d\n' $i $i; i=$((i+1)); done | dmindex load --secret /conn -`); err != nil {
		s.Fatalf("%v: %s", err, out)
	}
}

func (s *space) filled() {
	s.Helper()
	s.is(s.dmindex("scan", "--prefix", "key/", "--count"), "5000")
	s.is(s.dmindex("get", "key/00004711"), "value of key/00004711")
}

// TestDataLoss deletes a memory pod. The index says so, and answers nothing; the user decides; a
// dump comes back.
func TestDataLoss(t *testing.T) {
	s := newSpace(t)
	s.newIndex(indexManifest, "2/2", "2/2")
	s.fill()
	s.dmindex("dump", "/tmp/dump")
	identity := s.jsonpath("dmi/x", "{.status.identity}")

	victim := s.memoryPods()[1]
	s.release(victim)
	s.kubectl("delete", "pod", victim)
	message := s.condition("DataLost", "True")
	t.Logf("DataLost: %s", message)
	s.contains(message, victim)
	s.contains(message, "Recreate")
	s.is(s.jsonpath("dmi/x", `{.status.conditions[?(@.type=="Available")].status}`), "False")

	// However often one asks: nothing comes from an empty tree. Compute servers may refuse, or not
	// be there any more.
	for range 3 {
		out, err := s.tryDmindex("get", "--limit-time", "5s", "key/00004711")
		s.fails(out, err, "")
		out, err = s.tryDmindex("scan", "--limit-time", "5s", "--count")
		s.fails(out, err, "")
		out, _ = s.tools("sh", "-c", "REDISCLI_AUTH=$(cat /conn/password) timeout 5 redis-cli -h x get key/00004711 2>&1")
		if out == "" || strings.Contains(out, "value of") {
			t.Errorf("redis-cli get: %q", out)
		}
	}
	s.stays(10*time.Second, "DataLost", func() string { return s.jsonpath("dmi/x", `{.status.conditions[?(@.type=="DataLost")].status}`) })

	s.kubectl("patch", "dmi/x", "--type=merge", `--patch={"spec":{"recovery":{"onDataLoss":"Recreate"}}}`)
	s.condition("DataLost", "False")
	s.settled("2/2", "2/2")
	if now := s.jsonpath("dmi/x", "{.status.identity}"); now == identity {
		t.Errorf("the new index has the identity of the old one, %s", now)
	}
	s.is(s.dmindex("scan", "--count"), "0")
	s.dmindex("restore", "/tmp/dump")
	s.filled()
	s.is(s.redis("get", "key/00000001"), "value of key/00000001")
}
