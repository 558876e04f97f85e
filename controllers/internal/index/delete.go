package index

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/authority"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
	"github.com/dmindex/dmindex/controllers/internal/serverpod"
	"github.com/dmindex/dmindex/controllers/internal/servers"
	"github.com/dmindex/dmindex/controllers/internal/volume"
)

// finalize gives the memory of a deleted index back, then lets it go. Memory whose pod is gone, or
// goes, is given back already. A server that stays but does not answer holds the index, and the
// condition names it: its memory would be lost to everybody.
func (r *Reconciler) finalize(ctx context.Context, s *scope) error {
	if !controllerutil.ContainsFinalizer(s.index, dmv1.Finalizer) {
		return nil
	}
	var held []string
	for _, spec := range s.index.Spec.MemoryPools {
		names, err := r.evictFrom(ctx, s, build.MemoryPoolOf(s.index, spec))
		if err != nil {
			return err
		}
		held = append(held, names...)
	}
	if len(held) > 0 {
		return outcome.WaitFor(dmv1.ReasonDeleting, "the index's memory is not yet released by "+strings.Join(held, ", ")+": no answer comes from there. If none ever will, delete the pod; on a node that is silent the pod stays until the node is back or, once its machine is off, its Node object is deleted", outcome.RequeueSoon*2)
	}
	if err := r.releasePools(ctx, s.index); err != nil {
		return err
	}
	base := s.index.DeepCopy()
	controllerutil.RemoveFinalizer(s.index, dmv1.Finalizer)
	err := r.Patch(ctx, s.index, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}), kube.Owner)
	return client.IgnoreNotFound(err)
}

// evictFrom evicts the index from the servers of one pool and names the pods that did not answer.
func (r *Reconciler) evictFrom(ctx context.Context, s *scope, name string) (held []string, err error) {
	pool := &dmv1.DMMemoryPool{}
	switch err := r.Live.Get(ctx, types.NamespacedName{Namespace: s.index.Namespace, Name: name}, pool); {
	case client.IgnoreNotFound(err) != nil:
		return nil, err
	case err != nil:
		return nil, nil
	}
	if !pool.DeletionTimestamp.IsZero() { // it may have to wait for other indexes
		if users, err := usersOf(ctx, &r.Base, pool); err != nil || len(users) == 0 {
			return nil, err
		}
	}
	// A pool that was made for this index goes with it, unless somebody else uses it too, or the
	// garbage collector leaves it behind (--cascade=orphan). Then the finalizer is there until the
	// collector has taken off the pool's ownerReferences, and pool was read after the finalizer.
	shared, err := r.usedByOthers(ctx, s.index, name)
	goes := metav1.IsControlledBy(pool, s.index) && !controllerutil.ContainsFinalizer(s.index, metav1.FinalizerOrphanDependents)
	if err != nil || goes && !shared {
		return nil, err
	}
	m := memoryPool{pool: pool}
	if err := m.gatherServers(ctx, r.Live); err != nil {
		return nil, err
	}
	recorded := volume.RecordedBy(s.index, name)
	for _, number := range m.missing() {
		if volume.IsPersistent(pool) && !slices.Contains(recorded, number) {
			continue // nothing of the index is on that disk
		}
		held = append(held, fmt.Sprintf("volume %d of pool %s (none of its copies serves)", number, name))
	}
	pods := slices.DeleteFunc(m.pods, func(p *corev1.Pod) bool {
		down := podstate.Going(p) || podstate.Ended(p) || p.Status.Phase == corev1.PodPending
		if down && volume.IsPersistent(pool) && slices.Contains(recorded, podstate.VolumeOf(p)) {
			held = append(held, fmt.Sprintf("%s (it is not back with its disk)", p.Name))
		}
		return down
	})
	if len(pods) == 0 {
		return held, nil // also where somebody else's Secret keeps the pool from being made
	}
	authority, err := authority.Read(ctx, &r.Base, pool)
	if err != nil {
		return nil, err
	}
	for _, p := range pods {
		if err := r.evictAll(ctx, s, func(f func(servers.Memory) error) error { return serverpod.WithMemory(&r.Base, p, authority, f) }); err != nil {
			held = append(held, fmt.Sprintf("%s (%v)", p.Name, err))
		}
	}
	return held, nil
}

// evictAll evicts every incarnation of the index from one server.
func (r *Reconciler) evictAll(ctx context.Context, s *scope, with func(func(servers.Memory) error) error) error {
	return with(func(m servers.Memory) error {
		described, err := m.Describe(ctx)
		if err != nil {
			return err
		}
		for _, identity := range earlier(described, string(s.index.UID), "") {
			if err := m.Evict(ctx, identity); err != nil {
				return err
			}
		}
		return nil
	})
}

// releasePools lets the memory pools go in which only this index had memory, before it goes itself:
// whoever saw that it is gone may remove the operator, and no finalizer may be left then.
func (r *Reconciler) releasePools(ctx context.Context, index *dmv1.DMIndex) error {
	for _, spec := range index.Spec.MemoryPools {
		pool := &dmv1.DMMemoryPool{}
		err := r.Live.Get(ctx, types.NamespacedName{Namespace: index.Namespace, Name: build.MemoryPoolOf(index, spec)}, pool)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		if err != nil {
			continue
		}
		users, err := usersOf(ctx, &r.Base, pool)
		if err != nil {
			return err
		}
		if len(users) == 0 {
			if err := volume.HoldPool(ctx, &r.Base, pool, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// usersOf are the indexes that have memory in a pool and are not being deleted.
func usersOf(ctx context.Context, b *reconciler.Base, pool *dmv1.DMMemoryPool) ([]string, error) {
	list := &dmv1.DMIndexList{}
	if err := b.List(ctx, list, client.InNamespace(pool.Namespace)); err != nil {
		return nil, err
	}
	return volume.UseOf(pool, list.Items).Users, nil
}

func (r *Reconciler) usedByOthers(ctx context.Context, index *dmv1.DMIndex, pool string) (bool, error) {
	list := &dmv1.DMIndexList{}
	if err := r.List(ctx, list, client.InNamespace(index.Namespace)); err != nil {
		return false, err
	}
	for i := range list.Items {
		if list.Items[i].UID != index.UID && build.UsesMemoryPool(&list.Items[i], pool) {
			return true, nil
		}
	}
	return false, nil
}
