package envtest

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
)

// refuseAll makes a node's kubelet refuse all pods of a namespace, until ctx is done.
func (c *cluster) refuseAll(ctx context.Context, refused *atomic.Int64) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		list := &corev1.PodList{}
		if err := api.List(ctx, list, client.InNamespace(c.namespace)); err != nil {
			continue
		}
		for i := range list.Items {
			p := &list.Items[i]
			if p.Status.Phase != corev1.PodPending || p.DeletionTimestamp != nil {
				continue
			}
			binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace}, Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}
			_ = api.SubResource("binding").Create(ctx, p, binding) // it may be bound already
			status := p.DeepCopy()
			status.Status.Phase, status.Status.Reason, status.Status.Message = corev1.PodFailed, "UnexpectedAdmissionError", "no healthy devices present"
			if api.Status().Patch(ctx, status, client.MergeFrom(p)) == nil {
				refused.Add(1)
			}
		}
	}
}

// TestManyRefusedMemoryPods: a memory pool whose pods were refused more often than it has numbers
// has some left, and has its servers once a kubelet takes them.
func TestManyRefusedMemoryPods(t *testing.T) {
	t.Parallel()
	const servers = 64
	c := newCluster(t)
	c.startable.Store(false)
	// so far ahead that each refused pod is replaced at once
	c.now = func() time.Time { return time.Now().Add(time.Hour) }
	pool := &dmv1.DMMemoryPool{}
	pool.Name, pool.Namespace = "pool", c.namespace
	pool.Spec.Servers, pool.Spec.Memory = servers, resource.MustParse("64Mi")
	if refusedBefore > 0 {
		pool.Annotations = map[string]string{dmv1.AnnotationNextID: fmt.Sprint(refusedBefore), "dmindex.io/used-ids": "-"}
	}
	if err := api.Create(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	if refusedBefore > 0 {
		c.seenBefore("pool")
	}
	c.start(0)
	var refused atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { c.refuseAll(ctx, &refused); close(done) }()
	for want := int64(0); want <= refusals; want += servers / 2 {
		c.eventually(fmt.Sprint(want, " refused pods"), func() string {
			if n := refused.Load(); n < want {
				return fmt.Sprint(n, " so far, the next number is ", c.memoryPool("pool").Annotations[dmv1.AnnotationNextID])
			}
			return ""
		})
	}
	stop()
	<-done
	c.startable.Store(true)
	c.memoryPoolReady("pool", dmv1.ReasonAsDesired, fmt.Sprintf("all %d memory servers answer", servers))
}

func (c *cluster) memoryPool(name string) *dmv1.DMMemoryPool {
	c.t.Helper()
	pool := &dmv1.DMMemoryPool{}
	if err := c.get(name, pool); err != nil {
		c.t.Fatal(err)
	}
	return pool
}

// TestNumbersAreUsedOnce: the number of a memory pod on which an index was made is not given out
// again, that of another one is.
func TestNumbersAreUsedOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	if used := c.memoryPool("demo-memory").Annotations["dmindex.io/used-ids"]; used != "0-1" {
		t.Errorf("used numbers: %q", used)
	}
	c.deletePod("demo-memory-1")
	c.equal("memory pods", "[demo-memory-0 demo-memory-2]", func() any { return c.pods("demo-memory") })
	uid := c.pod("demo-memory-2").UID // nobody uses it
	c.deletePod("demo-memory-2")
	c.equal("memory pods", "[demo-memory-0 demo-memory-2]", func() any { return c.pods("demo-memory") })
	if c.pod("demo-memory-2").UID == uid {
		t.Error("the pod is still there")
	}
	i := &dmv1.DMIndex{}
	c.patch("demo", i, func() { i.Spec.Recovery.OnDataLoss = dmv1.OnDataLossRecreate })
	c.available("demo")
	c.equal("used numbers", "0-2", func() any { return c.memoryPool("demo-memory").Annotations["dmindex.io/used-ids"] })
}

// TestComputePoolMadeAgain: a compute pool that is deleted and made again under its name gives its
// pods other names. So the clients of a pod that was deleted by force, whose process may go on, are
// known to be of a pod that is gone.
func TestComputePoolMadeAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(twoComputePools, "demo")
	c.create(otherComputePool, "other")
	c.available("demo")
	home, identity := string(c.pod("demo-memory-0").UID), c.index("demo").Status.Identity
	pool := &dmv1.DMComputePool{} // the last one that is gone; none has this UID at first
	for n, first := range []string{"other-0", "other-64", "other-128"} {
		c.equal("pods", []string{first}, func() any {
			c.collectOwned(pool)
			return c.pods("other")
		})
		c.eventually("it has keys", func() string {
			if owners := c.owners("demo").([]string); !slices.Contains(owners, first) {
				return fmt.Sprint(owners)
			}
			return ""
		})
		if n == 2 {
			break
		}
		dead := c.fleet.Register(home, identity, first)
		if err := c.get("other", pool); err != nil {
			t.Fatal(err)
		}
		if err := api.Delete(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		c.gone("other", &dmv1.DMComputePool{})
		c.collectOwned(pool)
		c.makeLate(pool)
		c.deletePod(first)
		c.create(otherComputePool, "other")
		c.equal("the client of the pod that is gone is fenced", true, func() any { return slices.Contains(c.fleet.Fenced(home, identity), dead) })
	}
	c.available("demo")
	c.settled("demo")
}

// TestNumbersWithoutWitnesses: of a compute pool of which neither witness says anything no number
// is given out again.
func TestNumbersWithoutWitnesses(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	c.deletePod("demo-compute-1")
	c.equal("compute pods", "[demo-compute-0 demo-compute-2]", func() any { return c.pods("demo-compute") })
	c.lookAgain("demo")
	c.stop()
	pool := &dmv1.DMComputePool{}
	c.patch("demo-compute", pool, func() { pool.Annotations = nil })
	c.deleteRecord(pool)
	c.deletePod("demo-compute-2")
	c.start(0)
	c.equal("compute pods", "[demo-compute-0 demo-compute-64]", func() any { return c.pods("demo-compute") })
	c.available("demo")
}

// makeLate makes the Secret of a pool that is gone once more, as a reconciler does that read the
// pool before. It stands in the way of the next pool of the name until the collector comes again.
func (c *cluster) makeLate(pool *dmv1.DMComputePool) {
	c.t.Helper()
	secret := &corev1.Secret{}
	secret.Name, secret.Namespace = build.ServerTLSName(pool.Name), pool.Namespace
	secret.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pool, dmv1.GroupVersion.WithKind("DMComputePool"))}
	if err := api.Create(c.t.Context(), secret); err != nil && !apierrors.IsAlreadyExists(err) {
		c.t.Fatal(err)
	}
}

// collectOwned deletes what a pool owned but its pods, as the garbage collector does.
func (c *cluster) collectOwned(pool *dmv1.DMComputePool) {
	c.t.Helper()
	for _, list := range []client.ObjectList{&corev1.ServiceList{}, &corev1.SecretList{}, &policyv1.PodDisruptionBudgetList{}} {
		if err := api.List(c.t.Context(), list, client.InNamespace(c.namespace)); err != nil {
			c.t.Fatal(err)
		}
		err := apimeta.EachListItem(list, func(o runtime.Object) error {
			object := o.(client.Object)
			if owner := metav1.GetControllerOf(object); owner == nil || owner.UID != pool.UID {
				return nil
			}
			return client.IgnoreNotFound(api.Delete(c.t.Context(), object))
		})
		if err != nil {
			c.t.Fatal(err)
		}
	}
}
