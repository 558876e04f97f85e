package envtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// TestSettledStaysQuiet: the operator writes nothing at all for a settled index, events included,
// when it looks again and again by its own clock.
func TestSettledStaysQuiet(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	c.settled("demo")
	writes, events, looks := c.operator.writes.Load(), c.operator.events.Load(), c.fleet.Looks()
	end := time.Now().Add(time.Minute)
	c.eventually("a minute has passed", func() string {
		if left := time.Until(end); left > 0 {
			return fmt.Sprint(left, " are left")
		}
		return ""
	})
	if n := c.operator.writes.Load() - writes; n > 0 {
		t.Errorf("%d writes:\n%s", n, c.operator.wrote(writes))
	}
	if n := c.operator.events.Load() - events; n > 0 {
		t.Errorf("%d events:\n%s", n, c.operator.said(events))
	}
	if n := c.fleet.Looks() - looks; n < 4 {
		t.Errorf("the operator asked memory servers %d times in a minute: it did not look", n)
	}
}

// TestBusyIndexIsSeldomWritten: the statuses say how much is in use, and are not written for that
// more often than now and then, though chunks are taken all the time.
func TestBusyIndexIsSeldomWritten(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.fleet.Chunks = 100_000
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	uid, identity := string(c.pod("demo-memory-0").UID), c.index("demo").Status.Identity
	c.settled("demo")
	const while = 20 * time.Second
	writes, events := c.operator.writes.Load(), c.operator.events.Load()
	end, used, i := time.Now().Add(while), uint64(0), &dmv1.DMIndex{}
	c.eventually("chunks are taken for a while", func() string {
		used += 10 // each 50 ms: 200 a second
		c.fleet.Use(uid, identity, used)
		if used%50 == 0 { // whatever makes it look
			c.patch("demo", i, func() { i.Labels = map[string]string{"look": fmt.Sprint(used)} })
		}
		if left := time.Until(end); left > 0 {
			return fmt.Sprint(left, " are left")
		}
		return ""
	})
	// Of the index and of its pool, every 10 s; and the first of each.
	if n := c.operator.writes.Load() - writes; n > 8 {
		t.Errorf("%d writes in %v:\n%s", n, while, c.operator.wrote(writes))
	}
	if n := c.operator.events.Load() - events; n > 0 {
		t.Errorf("%d events:\n%s", n, c.operator.said(events))
	}
	c.equal("chunks in use, as the index says", used, func() any { return c.index("demo").Status.MemoryServers[0].UsedChunks })
	c.equal("chunks in use, as the pool says", used, func() any {
		return c.memoryPool("demo-memory").Status.Servers[0].ChunksUsed
	})
	c.settled("demo")
}

// TestLossIsLookedAtAgain: a memory server that answers once as if it had lost its content does not
// cost the index.
func TestLossIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(strings.Replace(index, "spec:", "spec:\n  recovery: {onDataLoss: Recreate}", 1), "demo")
	c.available("demo")
	c.settled("demo")
	identity, calls := c.index("demo").Status.Identity, len(c.fleet.Changes())
	i := &dmv1.DMIndex{}
	back := c.fleet.Lend(string(c.pod("demo-memory-0").UID))
	c.patch("demo", i, func() { i.Labels = map[string]string{"look": "now"} })
	c.condition("demo", dmv1.ConditionAvailable, metav1.ConditionFalse, dmv1.ReasonMemoryUnreachable, "demo-memory-0")
	back()
	c.available("demo")
	c.settled("demo")
	if now := c.index("demo").Status.Identity; now != identity {
		t.Errorf("the index was made anew: identity %s, before %s", now, identity)
	}
	for _, call := range c.fleet.Changes()[calls:] {
		if strings.HasPrefix(call, "block") || strings.HasPrefix(call, "admit") || strings.HasPrefix(call, "swap") {
			t.Errorf("a call in between: %s", call)
		}
	}
	if slices.ContainsFunc(c.index("demo").Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == dmv1.ConditionDataLost && c.Status == metav1.ConditionTrue
	}) {
		t.Error("data is said to be lost")
	}
}
