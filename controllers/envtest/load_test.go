package envtest

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// load makes every compute server of a pool say that it does so many operations a second, of such
// keys.
func (c *cluster) load(pool string, rate float64, keys ...string) {
	c.t.Helper()
	load := &rpcv1.ComputeLoad{OperationsPerSecond: rate, HitRatio: 1}
	for _, k := range keys {
		load.Keys = append(load.Keys, &rpcv1.KeyLoad{Key: []byte(k), OperationsPerSecond: rate / float64(len(keys))})
	}
	c.fleet.SetLoad(c.namespace, load, c.pods(pool)...)
}

func (c *cluster) replicas(pool string) int32 {
	c.t.Helper()
	object := &dmv1.DMComputePool{}
	if err := c.get(pool, object); err != nil {
		c.t.Fatal(err)
	}
	return object.Spec.Replicas
}

// event waits for an event with a reason whose note contains something.
func (c *cluster) event(reason, note string) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("event %s %q", reason, note), func() string {
		list := &corev1.EventList{}
		if err := api.List(c.t.Context(), list, client.InNamespace(c.namespace)); err != nil {
			return err.Error()
		}
		var notes []string
		for _, e := range list.Items {
			if e.Reason == reason && strings.Contains(e.Message, note) {
				return ""
			}
			notes = append(notes, e.Reason+": "+e.Message)
		}
		return strings.Join(notes, "\n")
	})
}

// TestAutoscaling: the operator writes replicas if it is asked to, within the bounds; not while a
// server says nothing; and a settled index is not written to.
func TestAutoscaling(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(strings.Replace(index, "replicas: 2", `replicas: 2, minReplicas: 1, maxReplicas: 3,
      autoscaling: {operationsPerSecond: 1000, scaleDown: {stabilizationWindowSeconds: 0}}`, 1), "demo")
	c.available("demo")
	c.load("demo-compute", 1000)
	c.settled("demo")
	c.load("demo-compute", 2000)
	c.equal("compute pods", 3, func() any { return len(c.pods("demo-compute")) })
	c.event(dmv1.ReasonAutoscaled, "2 -> 3 servers: 4000 operations a second, the target is 1000 a server")
	c.available("demo")
	c.event("MapChanged", "compute server demo-compute-2 joined")

	pods := c.pods("demo-compute")
	c.fleet.SetLoad(c.namespace, &rpcv1.ComputeLoad{OperationsPerSecond: 10}, pods[:2]...)
	c.settled("demo") // the third says nothing
	if n := c.replicas("demo-compute"); n != 3 {
		t.Errorf("%d servers, though one says nothing", n)
	}
	c.load("demo-compute", 10)
	c.equal("compute pods", pods[:1], func() any { return c.pods("demo-compute") })
	c.available("demo")
	c.settled("demo")

	index := &dmv1.DMIndex{}
	c.patch("demo", index, func() { index.Spec.ComputePools[0].Template.Autoscaling = nil })
	c.equal("autoscaling is off", true, func() any {
		pool := &dmv1.DMComputePool{}
		return c.get("demo-compute", pool) == nil && pool.Spec.Autoscaling == nil
	})
	c.load("demo-compute", 9000)
	c.settled("demo")
	if n := c.replicas("demo-compute"); n != 1 {
		t.Errorf("%d servers without autoscaling", n)
	}
}

// TestSkew: when one server has too much, keys move, once; unless that is turned off.
func TestSkew(t *testing.T) {
	t.Parallel()
	for _, policy := range []dmv1.RebalancePolicy{dmv1.RebalanceNever, dmv1.RebalanceOnSkew} {
		t.Run(string(policy), func(t *testing.T) {
			c := newCluster(t)
			// since when the clock of the operator is; the start has its own time
			var fast atomic.Pointer[time.Time]
			c.now = func() time.Time {
				if since := fast.Load(); since != nil {
					return since.Add(10 * time.Since(*since))
				}
				return time.Now()
			}
			c.start(0)
			c.create(strings.Replace(showingKeys(index), "spec:", "spec:\n  partitioning: {rebalance: {policy: "+string(policy)+", minIntervalSeconds: 30}}", 1), "demo")
			c.available("demo")
			if r := c.index("demo").Spec.Partitioning.Rebalance; r.MaxLoadPercent != 150 {
				t.Errorf("%+v", r)
			}
			now := time.Now()
			fast.Store(&now)
			// all below 0x80: the first server's
			c.load("demo-compute", 1000, "alpha", "beta", "gamma", "delta", "epsilon", "zeta")
			if policy == dmv1.RebalanceNever {
				c.settled("demo")
				if m := c.index("demo").Status.Map; m.Generation != 1 {
					t.Errorf("the map has generation %d", m.Generation)
				}
				return
			}
			c.event("MapChanged", "compute server demo-compute-0 had 200% of the mean load")
			c.equal("owners", []string{"demo-compute-0", "demo-compute-1"}, func() any { return slices.Compact(c.owners("demo").([]string)) })
			// the event comes before the status
			c.eventually("the keys are divided", func() string {
				start := c.index("demo").Status.Map.Ranges[1].Start
				if start == "ZXBzaWxvbg==" || start == "ZGVsdGE=" {
					return ""
				}
				return "at " + start + ", in base64"
			})
			generation := c.index("demo").Status.Map.Generation
			c.settled("demo")
			if m := c.index("demo").Status.Map; m.Generation != generation {
				t.Errorf("the map went on from generation %d to %d", generation, m.Generation)
			}
		})
	}
}
