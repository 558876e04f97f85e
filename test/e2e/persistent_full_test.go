//go:build e2e && e2efull && ownnodes

package e2e

import (
	"context"
	"strconv"
	"strings"
	"testing"
)

// counts lets the pod "tools" count in the index, one by one, until ended is called, which returns
// the highest count that was acknowledged.
func (s *space) counts() (ended func() int) {
	s.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s.Cleanup(cancel)
	out := make(chan string, 1)
	go func() {
		said, _ := execute(ctx, "", target.kubectl, "--namespace", s.namespace, "exec", "tools", "--", "sh", "-c",
			`export REDISCLI_AUTH=$(cat /conn/password); while redis-cli -h x incr counter; do :; done`)
		out <- said
	}()
	s.eventually(short, "it has counted to 300", func() (bool, string) {
		n, _ := strconv.Atoi(s.redis("get", "counter"))
		return n >= 300, strconv.Itoa(n)
	})
	return func() int {
		cancel()
		last := 0
		for line := range strings.Lines(<-out) {
			if n, err := strconv.Atoi(strings.TrimSpace(line)); err == nil {
				last = max(last, n)
			}
		}
		return last
	}
}

// TestSwitchedOff pulls the plug of all nodes at once while a program writes to an index whose
// memory is on disks, twice. They are switched on again one after the other, and the index comes
// back by itself with all that it had.
func TestSwitchedOff(t *testing.T) {
	s := newSpaceAlone(t)
	s.apply(persistent)
	s.bound(2)
	s.newIndex(persistent, "2/2", "2/2")
	s.kubectl("patch", "dmmp/x-memory", "--type=merge", `--patch={"spec":{"copies":2}}`)
	s.bound(4)
	s.inSync("")
	s.fill()
	before := s.contents()
	counted := s.counts()

	nodes := []string{"1", "2", "3"}
	t.Cleanup(func() { // those that are not on again
		for _, number := range nodes {
			_, _ = execute(context.Background(), "", "../../hack/cluster/node", "start", number)
		}
	})
	for _, number := range nodes {
		s.node("kill", number)
	}
	last := counted()
	t.Logf("%d was acknowledged last", last)
	for _, number := range nodes {
		s.node("start", number)
		s.kubectl("wait", "node/node"+number, "--for=condition=Ready", "--timeout=80s")
		s.claimsWritable() // a copy that is away too long is replaced, in another claim
	}
	s.kubectl("delete", "pod/tools", "--ignore-not-found", "--force", "--grace-period=0")
	s.withTools(toolsPod("tools", "sleep", "infinity"))
	s.settled("2/2", "2/2")
	s.claimsWritable()
	s.filled()
	if got, err := strconv.Atoi(s.redis("get", "counter")); err != nil || got < last {
		t.Errorf("the counter is %d (%v), want %d, or more, whose answers did not arrive here", got, err, last)
	}
	s.inSync("")
	s.is(s.contents(), before)
	s.condition("DataLost", "False")
}
