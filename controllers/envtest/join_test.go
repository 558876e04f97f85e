package envtest

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// grow raises the memory servers of an index's template.
func (c *cluster) grow(name string, servers int32) {
	c.t.Helper()
	index := &dmv1.DMIndex{}
	c.patch(name, index, func() { index.Spec.MemoryPools[0].Template.Servers = servers })
}

// joins are the calls so far that concern a server which joins.
func (c *cluster) joins() any {
	var calls []string
	for _, call := range c.fleet.Changes() {
		if strings.HasPrefix(call, "join ") || call == "admit demo-memory-2" || strings.HasPrefix(call, "fence demo-memory-2") {
			calls = append(calls, call)
		}
	}
	return calls
}

// TestMemoryServerJoins: a server that is new in the pool of an index that is served joins it, in
// the order of the protocol. It is then as the others are: it has the quota, it is shown, kept, and
// its loss is a loss of data; a compute server that is gone is fenced there.
func TestMemoryServerJoins(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	home, identity := string(c.pod("demo-memory-0").UID), c.index("demo").Status.Identity
	c.fleet.Register(home, identity, "demo-compute-1")
	c.grow("demo", 3)
	c.equal("calls", "[admit demo-memory-2 join 3 JOINING join 3 MEMBER admit demo-memory-2]", c.joins)
	added := string(c.pod("demo-memory-2").UID)
	c.equal("the quota", uint64(64), func() any { return c.fleet.Admitted(added)[identity] })
	c.equal("memory servers", "3/3", func() any { return c.index("demo").Status.MemoryReady })
	c.condition("demo", dmv1.ConditionProgressing, metav1.ConditionFalse, dmv1.ReasonAsDesired, "")
	c.condition("demo", dmv1.ConditionAvailable, metav1.ConditionTrue, dmv1.ReasonServing, "")
	c.equal("kept for", "demo", func() any { return c.pod("demo-memory-2").Annotations[dmv1.AnnotationKeptFor] })
	c.settled("demo")

	c.deletePod("demo-compute-1")
	c.equal("fenced at the new server, too", "[1]", func() any { return c.fleet.Fenced(added, identity) })

	c.deletePod("demo-memory-2")
	c.condition("demo", dmv1.ConditionDataLost, metav1.ConditionTrue, dmv1.ReasonMemoryLost, "memory server 3 (pod demo-memory-2)")
}

// TestJoiningServerIsWaitedFor: a client that does not follow is named, and no chunk is granted at
// the new server meanwhile. A server that is lost then is no lost data: it leaves, and the next one
// joins in its place. Clients that the home has fenced are fenced at the new server before it gives
// chunks.
func TestJoiningServerIsWaitedFor(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	home, identity := string(c.pod("demo-memory-0").UID), c.index("demo").Status.Identity
	c.fleet.Register(home, identity, "demo-compute-0")
	c.fleet.SetBehind("demo-compute-0")
	c.grow("demo", 3)
	c.condition("demo", dmv1.ConditionProgressing, metav1.ConditionTrue, dmv1.ReasonMemoryJoining,
		"memory server 3 (pod demo-memory-2) joins the index: demo-compute-0 do not reach it yet")
	c.condition("demo", dmv1.ConditionDegraded, metav1.ConditionFalse, dmv1.ReasonAsDesired, "")
	c.equal("what is shown", dmv1.ServerJoining, func() any { return c.index("demo").Status.MemoryServers[2].State })
	c.deletePod("demo-memory-2")
	c.equal("at the home", "[3 LEFT 4 JOINING]", func() any { return c.fleet.Joined(home, identity) })
	c.condition("demo", dmv1.ConditionDataLost, metav1.ConditionFalse, dmv1.ReasonIntact, "")
	c.condition("demo", dmv1.ConditionAvailable, metav1.ConditionTrue, dmv1.ReasonServing, "")
	added := string(c.pod("demo-memory-3").UID)
	c.equal("chunks", "map["+identity+":0]", func() any { return fmt.Sprint(c.fleet.Admitted(added)) })

	c.fleet.Register(added, identity, "") // as 1 and 2 at the home, of which 2 is not there
	c.fleet.Register(added, identity, "")
	c.fleet.SetBehind()
	c.equal("fenced at the new server", "[2]", func() any { return c.fleet.Fenced(added, identity) })
	c.equal("at the home", "[3 LEFT 4 MEMBER]", func() any { return c.fleet.Joined(home, identity) })
	c.equal("memory servers", "3/3", func() any { return c.index("demo").Status.MemoryReady })
	c.settled("demo")
}

// TestOldHomeIsNamed: where the home knows nothing of servers that join, the index says so, and
// goes on.
func TestOldHomeIsNamed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.fleet.Older = true
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	c.grow("demo", 3)
	c.condition("demo", dmv1.ConditionProgressing, metav1.ConditionTrue, dmv1.ReasonMemoryJoining, "change the image of the memory pool")
	c.condition("demo", dmv1.ConditionAvailable, metav1.ConditionTrue, dmv1.ReasonServing, "")
}
