package envtest

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// claim is an index on the shared pool that asks for so much of each server, and for so many locks.
func (c *cluster) claim(name, quota string, locks int) {
	c.t.Helper()
	text := strings.Replace(shared, "quota: 320Mi", fmt.Sprintf("quota: %s, locks: %d", quota, locks), 1)
	c.create(text, name)
}

func (c *cluster) setQuota(name, quota string) {
	c.t.Helper()
	index := &dmv1.DMIndex{}
	c.patch(name, index, func() {
		q := resource.MustParse(quota)
		index.Spec.MemoryPools[0].Quota = &q
	})
}

// grants are what a pool's status says it granted: name, chunks, locks, on the chip.
func (c *cluster) grants(pool string) string {
	object := &dmv1.DMMemoryPool{}
	if err := c.get(pool, object); err != nil {
		return err.Error()
	}
	names := map[string]string{}
	for _, g := range object.Status.Grants {
		names[g.Index] = fmt.Sprintf("%d/%d/%d on %d", g.Chunks, g.Locks, g.OnChipLocks, g.Servers)
	}
	s := object.Status
	return fmt.Sprintf("%v of %s: granted %s, used %s, free %s, on the chip %s", names, s.Capacity, s.Granted, s.Used, s.Free, s.OnChip)
}

// TestGrants: indexes share a pool of two servers with 64 chunks each, 1024 locks and 512 of them
// on the chip. The oldest that waits goes first; what waits says what is missing and for whom it is
// kept; quotas are raised, and lowered as far as possible, while indexes are served.
func TestGrants(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.fleet.OnChip = 512
	c.start(0)
	c.create(memoryPool, "pool")
	c.claim("i1", "320Mi", 400)
	c.available("i1")
	c.claim("i2", "64Mi", 200)
	c.available("i2")
	c.equal("the pool's accounts", "map[i1:80/800/800 on 2 i2:16/400/0 on 2] of 1Gi: granted 768Mi, used 0, free 256Mi, on the chip 1600/2Ki", func() any { return c.grants("pool") })
	for name, want := range map[string]dmv1.LockPlacement{"i1": dmv1.LocksOnChip, "i2": dmv1.LocksInHost} {
		c.equal("locks of "+name, want, func() any { return c.index(name).Status.MemoryServers[0].LockPlacement })
	}

	// An index that does not fit waits. A younger one that would fit waits behind it, also if it is
	// looked at first.
	c.claim("i3", "160Mi", 4)
	c.condition("i3", dmv1.ConditionAvailable, metav1.ConditionFalse, dmv1.ReasonMemoryPending,
		"memory server 1 (pod pool-0) has 16 chunks of 8388608 bytes left, the index asks for 20: 4 are missing; lower quota")
	c.claim("i4", "8Mi", 4)
	c.condition("i4", dmv1.ConditionAvailable, metav1.ConditionFalse, dmv1.ReasonMemoryPending, "1 are missing, since 16 are reserved for older indexes that wait (i3)")
	c.claim("i5", "1Gi", 4)
	c.condition("i5", dmv1.ConditionAvailable, metav1.ConditionFalse, dmv1.ReasonMemoryPending, "has 64 chunks of 8388608 bytes in all, the index asks for 128: lower quota, or use a pool of larger servers")

	// Lowering below what is in use is refused, with the figure; what is served goes on being
	// served.
	uid, one := string(c.pod("pool-1").UID), string(c.index("i1").UID)
	c.fleet.Use(uid, one, 30)
	c.setQuota("i1", "232Mi")
	c.condition("i1", dmv1.ConditionProgressing, metav1.ConditionTrue, dmv1.ReasonQuotaRefused,
		"memory server 2 (pod pool-1) cannot lower the quota to 29 chunks: the index uses 30, and keeps its quota of 40")
	c.condition("i1", dmv1.ConditionAvailable, metav1.ConditionTrue, dmv1.ReasonServing, "")
	c.setQuota("i1", "240Mi")
	c.condition("i1", dmv1.ConditionProgressing, metav1.ConditionFalse, dmv1.ReasonAsDesired, "")

	// There is room now: 64 - 30 - 8 = 26 of each server.
	c.available("i3")
	c.available("i4")
	c.equal("admitted", 30+8+20+1, func() any {
		sum := uint64(0)
		for _, quota := range c.fleet.Admitted(uid) {
			sum += quota
		}
		return int(sum)
	})

	// Raising takes what is there, and says what is not.
	c.setQuota("i2", "80Mi")
	c.equal("raised", uint64(10), func() any { return c.fleet.Admitted(uid)[string(c.index("i2").UID)] })
	c.setQuota("i2", "120Mi")
	c.condition("i2", dmv1.ConditionProgressing, metav1.ConditionTrue, dmv1.ReasonMemoryPending, "has 3 chunks of 8388608 bytes left, the index has 10 and asks for 15: 2 are missing")
	c.condition("i2", dmv1.ConditionAvailable, metav1.ConditionTrue, dmv1.ReasonServing, "")
	if err := api.Delete(t.Context(), c.index("i3")); err != nil {
		t.Fatal(err)
	}
	c.gone("i3", &dmv1.DMIndex{})
	c.equal("raised", uint64(15), func() any { return c.fleet.Admitted(uid)[string(c.index("i2").UID)] })
	c.condition("i2", dmv1.ConditionProgressing, metav1.ConditionFalse, dmv1.ReasonAsDesired, "")
}
