package volume

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// TestMemoryPoolUse: who has memory on which pods of a pool, and for whom they are kept.
func TestUse(t *testing.T) {
	index := func(name, memory string, onLoss dmv1.OnDataLoss, pools ...string) dmv1.DMIndex {
		i := dmv1.DMIndex{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if memory != "" {
			i.Annotations = map[string]string{dmv1.AnnotationMemory: memory}
		}
		i.Spec.Recovery.OnDataLoss = onLoss
		for n, pool := range pools {
			i.Spec.MemoryPools = append(i.Spec.MemoryPools, dmv1.IndexMemoryPool{Name: fmt.Sprint("p", n), Ref: &dmv1.LocalReference{Name: pool}})
		}
		return i
	}
	deleted := index("d", `{"1":7}`, dmv1.OnDataLossBlock, "pool")
	now := metav1.Now()
	deleted.DeletionTimestamp = &now
	f := func(release, want string, indexes ...dmv1.DMIndex) {
		t.Helper()
		pool := &dmv1.DMMemoryPool{ObjectMeta: metav1.ObjectMeta{Name: "pool", Annotations: map[string]string{dmv1.AnnotationRelease: release}}}
		u := UseOf(pool, indexes)
		if got := fmt.Sprint(u.Users, u.KeptFor, u.Released, u.Unknown); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	f("", "[] map[] map[] []")
	f("", "[] map[] map[] []", index("waits", "", dmv1.OnDataLossBlock, "pool"))
	f("", "[] map[] map[] []", index("other", `{"1":7}`, dmv1.OnDataLossBlock, "others"))
	f("", "[] map[] map[] []", index("damaged", `{`, dmv1.OnDataLossBlock, "pool"))
	f("", "[one] map[0:[one] 2:[one]] map[] []", index("one", `{"1":7,"3":8}`, dmv1.OnDataLossBlock, "pool"))
	f("", "[two] map[2:[two]] map[] []", index("two", `{"1":7,"1027":8}`, dmv1.OnDataLossBlock, "others", "pool"))
	f("", "[cache] map[] map[] []", index("cache", `{"1":7}`, dmv1.OnDataLossRecreate, "pool"))
	f("", "[old one] map[0:[old one]] map[] []", index("one", `{"1":7}`, dmv1.OnDataLossBlock, "pool"), index("old", `{"1":7}`, "", "pool"))
	f("", "[] map[] map[] []", *deleted.DeepCopy())
	f("pool-0, pool-12", "[] map[] map[pool-0:true pool-12:true] []")
	f("node1,pool-x", "[] map[] map[node1:true pool-x:true] [node1 pool-x]")
}
