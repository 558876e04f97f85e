//go:build e2e && ownnodes

package e2e

import (
	"strings"
	"testing"
)

// replicated is the manifest of an index whose memory is kept twice.
func replicated(manifest string) string {
	return strings.Replace(manifest, "durability: Memory", "durability: Replicated", 1)
}

// volume is a field of a volume of x's memory pool.
func (s *space) volume(id, field string) string {
	s.Helper()
	return s.jsonpath("dmmp/x-memory", `{.status.volumes[?(@.id==`+id+`)].`+field+`}`)
}

// inSync waits until both volumes of x's memory pool have two copies, none of them in the pod gone.
func (s *space) inSync(gone string) {
	s.Helper()
	s.eventually(long, "both volumes are in sync without "+gone, func() (bool, string) {
		all := s.jsonpath("dmmp/x-memory", `{range .status.volumes[*]}{.id} {.state} {.primary} {.backup};{end}`)
		return strings.Count(all, "InSync") == 2 && (gone == "" || !strings.Contains(all+" ", gone+" ") && !strings.Contains(all, gone+";")), all
	})
}

// TestKeptTwice: memory that is kept twice outlives a process that is killed and one that stands
// still, each the primary of a volume, and the drain of a node ends by itself. The index is served
// meanwhile, and nothing that was acknowledged is lost.
func TestKeptTwice(t *testing.T) {
	s := newSpaceAlone(t)
	s.newIndex(replicated(indexManifest), "2/2", "2/2")
	s.inSync("")
	s.eventually(short, "the index says so", func() (bool, string) {
		durability := s.jsonpath("dmi/x", "{.status.durability}")
		return durability == "Replicated", durability
	})
	s.fill()
	e := s.startExercise(300)

	e.begin("killed")
	primary := s.volume("0", "primary")
	s.signal(primary, "SIGKILL")
	s.eventually(short, "the backup takes the place of "+primary, func() (bool, string) {
		now := s.volume("0", "primary")
		return now != primary, now
	})
	s.inSync("")
	e.phase("after the kill")

	e.begin("frozen")
	primary = s.volume("1", "primary")
	s.signal(primary, "SIGSTOP")
	s.eventually(short, "the backup takes the place of "+primary, func() (bool, string) {
		now := s.volume("1", "primary")
		return now != primary, now
	})
	e.phase("without it")
	s.signal(primary, "SIGCONT")
	s.inSync("")
	e.phase("after the freeze")

	e.begin("drained")
	primary = s.volume("0", "primary")
	node := s.jsonpath("pod/"+primary, "{.spec.nodeName}")
	t.Cleanup(func() { s.kubectl("uncordon", node) })
	out, err := s.try("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--pod-selector=dmindex.io/pool=x-memory", "--timeout=110s")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("drain: %s", out)
	s.inSync(primary)
	s.kubectl("uncordon", node)
	e.phase("after the drain")

	s.settled("2/2", "2/2")
	s.filled()
	t.Logf("%s requests failed", e.finishWithFailures())
	s.condition("DataLost", "False")
}
