package index

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/authority"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/operatortest"
	"github.com/dmindex/dmindex/controllers/internal/serverpod"
	"github.com/dmindex/dmindex/controllers/internal/servers"
	"github.com/dmindex/dmindex/controllers/internal/serverstest"
)

// TestWhatADeletedIndexHad is given back by servers of pools that stay. A pool that goes with the
// index needs no call, and need not answer.
func TestWhatADeletedIndexHad(t *testing.T) {
	f := func(name string, evicted bool, change func(*dmv1.DMIndex, *dmv1.DMMemoryPool)) {
		t.Helper()
		b, index := ownerOf(t)
		fleet := serverstest.New()
		b.Dialer = fleet
		index.Spec.MemoryPools = []dmv1.IndexMemoryPool{{Name: "memory", Template: &dmv1.MemoryPoolTemplate{}}}
		pool := build.MemoryPool(index, index.Spec.MemoryPools[0], "i")
		pool.UID = "p"
		pool.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(index, kube.KindOf(index))}
		change(index, pool)
		if err := b.Create(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		authority, err := authority.Ensure(t.Context(), b, pool, nil)
		if err != nil {
			t.Fatal(err)
		}
		server := operatortest.Pod(build.PodName(pool.Name, 0), 0)
		server.Namespace, server.OwnerReferences = pool.Namespace, []metav1.OwnerReference{*metav1.NewControllerRef(pool, kube.KindOf(pool))}
		for key, value := range build.MemoryPod(pool, 0, "i").Labels {
			server.Labels[key] = value
		}
		runs := server.Status
		if err := b.Create(t.Context(), server); err != nil {
			t.Fatal(err)
		}
		server.Status = runs
		if err := b.Status().Update(t.Context(), server); err != nil {
			t.Fatal(err)
		}
		if err := serverpod.WithMemory(b, server, authority, func(m servers.Memory) error { return m.Admit(t.Context(), "u", 1, 1, true) }); err != nil {
			t.Fatal(err)
		}
		held, err := (&Reconciler{Base: *b}).evictFrom(t.Context(), &scope{index: index}, pool.Name)
		if err != nil || len(held) > 0 {
			t.Errorf("%s: held by %v: %v", name, held, err)
		}
		if left := fleet.Admitted(string(server.UID)); (len(left) == 0) != evicted {
			t.Errorf("%s: the server has granted %v", name, left)
		}
	}
	f("the pool goes with the index", false, func(*dmv1.DMIndex, *dmv1.DMMemoryPool) {})
	f("the pool will be left behind", true, func(i *dmv1.DMIndex, _ *dmv1.DMMemoryPool) { i.Finalizers = []string{metav1.FinalizerOrphanDependents} })
	f("the pool was left behind", true, func(_ *dmv1.DMIndex, p *dmv1.DMMemoryPool) { p.OwnerReferences = nil })
	f("the pool is another one's", true, func(_ *dmv1.DMIndex, p *dmv1.DMMemoryPool) { p.OwnerReferences[0].UID = "other" })
}

// TestDeletedBeforeItsPoolIsMade: an index whose pool has no servers, since somebody else's Secret
// has the name of its authority, has nothing to give back.
func TestDeletedBeforeItsPoolIsMade(t *testing.T) {
	b, index := ownerOf(t)
	pool := &dmv1.DMMemoryPool{ObjectMeta: metav1.ObjectMeta{Name: "shared", Namespace: index.Namespace, UID: "p"}}
	foreign := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: build.AuthorityName(pool.Name), Namespace: index.Namespace}}
	if err := errors.Join(b.Create(t.Context(), pool), b.Create(t.Context(), foreign)); err != nil {
		t.Fatal(err)
	}
	held, err := (&Reconciler{Base: *b}).evictFrom(t.Context(), &scope{index: index}, pool.Name)
	if err != nil || len(held) > 0 {
		t.Errorf("held by %v: %v", held, err)
	}
}
