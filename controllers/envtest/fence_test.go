package envtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// fences are the calls of Fence so far.
func (c *cluster) fences() any {
	var calls []string
	for _, call := range c.fleet.Changes() {
		if strings.HasPrefix(call, "fence ") {
			calls = append(calls, call)
		}
	}
	return calls
}

// TestFencesWhoIsGone: the clients of a pod that is gone are fenced at every memory server, the
// home last, once; nobody else is.
func TestFencesWhoIsGone(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	home, identity := string(c.pod("demo-memory-0").UID), c.index("demo").Status.Identity
	for want, name := range []string{"demo-compute-0", "demo-compute-1", "demo-compute-1", "somebody", "other-compute-1"} {
		if id := c.fleet.Register(home, identity, name); int(id) != want+1 {
			t.Fatalf("%s is client %d", name, id)
		}
	}
	c.settled("demo")
	if calls := fmt.Sprint(c.fences()); calls != "[]" {
		t.Fatalf("fenced while all pods are there: %s", calls)
	}
	c.deletePod("demo-compute-1")
	c.equal("calls", "[fence demo-memory-1 [2 3] fence demo-memory-0 [2 3]]", c.fences)
	c.available("demo")

	// A pod that ended is gone, too.
	c.podStatus("demo-compute-0", func(s *corev1.PodStatus) { s.Phase = corev1.PodFailed })
	c.equal("fenced at the home", "[1 2 3]", func() any { return c.fleet.Fenced(home, identity) })
	c.settled("demo")
	if calls := c.fences().([]string); len(calls) != 4 {
		t.Errorf("calls: %v", calls)
	}
}

// TestFencesWhenItCan: a memory server that does not answer is named, holds up nothing else, and is
// asked again, by another operator if need be: the home is the last to fence, so that it is not
// forgotten.
func TestFencesWhenItCan(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	home, other, identity := string(c.pod("demo-memory-0").UID), string(c.pod("demo-memory-1").UID), c.index("demo").Status.Identity
	c.fleet.Register(home, identity, "demo-compute-1")
	c.fleet.SetAway(c.namespace, "demo-memory-1", true)
	c.deletePod("demo-compute-1")
	c.condition("demo", dmv1.ConditionProgressing, metav1.ConditionTrue, dmv1.ReasonFencing,
		"fence clients 1 of pods that are gone (demo-compute-1): no answer from memory server 2 (pod demo-memory-1)")
	c.eventually("the map has the new server", func() string {
		if slices.Contains(c.owners("demo").([]string), "demo-compute-2") {
			return ""
		}
		return fmt.Sprint(c.owners("demo"))
	})
	c.stop()
	if calls := fmt.Sprint(c.fences()); calls != "[]" {
		t.Errorf("the home was not the last: %s", calls)
	}
	c.fleet.SetAway(c.namespace, "demo-memory-1", false)
	c.start(0)
	c.equal("fenced at both", "[1] [1]", func() any { return fmt.Sprint(c.fleet.Fenced(other, identity), c.fleet.Fenced(home, identity)) })
	c.available("demo")
	c.condition("demo", dmv1.ConditionProgressing, metav1.ConditionFalse, dmv1.ReasonAsDesired, "")
	c.settled("demo")
}
