package volume

import (
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
)

// Use says which indexes would lose what with a memory pool.
//
// A pool in which an index has memory carries FinalizerInUse, whatever the index says of lost data:
// without its pool it could never be served again. The pool's reconciler adds it as soon as it sees
// that the index recorded its memory servers, and takes it off when no index has memory there. An
// index that is being deleted does not count, and takes it off itself before its own finalizer is
// removed: once no index is left no pool has a finalizer, so neither namespaces nor the removal of
// the operator wait for one.
//
// The pods with memory of indexes with onDataLoss: Block are kept (build.KeepMemoryPod,
// build.MemoryBudget), but for those that AnnotationRelease names. Pods are named and not nodes:
// the name of a pod with data is never used again, so that an annotation which is forgotten
// releases nothing else.
type Use struct {
	Users    []string         // indexes that have memory in the pool
	KeptFor  map[int][]string // by volume: indexes with onDataLoss: Block that have memory there
	Released map[string]bool  // pods, by name
	Unknown  []string         // names of AnnotationRelease that no pod of the pool can have

	// indexes with durability Replicated, which have memory in the pool or are to get some
	Replicated []string
}

// UseOf is how indexes use a pool.
func UseOf(pool *dmv1.DMMemoryPool, indexes []dmv1.DMIndex) Use {
	u := Use{KeptFor: map[int][]string{}, Released: map[string]bool{}}
	for i := range indexes {
		index := &indexes[i]
		if !index.DeletionTimestamp.IsZero() {
			continue
		}
		if index.Spec.Durability == dmv1.DurabilityReplicated && build.UsesMemoryPool(index, pool.Name) {
			u.Replicated = append(u.Replicated, index.Name)
		}
		recorded := RecordedBy(index, pool.Name)
		if len(recorded) == 0 {
			continue
		}
		u.Users = append(u.Users, index.Name)
		for _, number := range recorded {
			if index.Spec.Recovery.OnDataLoss != dmv1.OnDataLossRecreate {
				u.KeptFor[number] = append(u.KeptFor[number], index.Name)
			}
		}
	}
	slices.Sort(u.Users)
	slices.Sort(u.Replicated)
	for _, names := range u.KeptFor {
		slices.Sort(names)
	}
	for _, name := range strings.FieldsFunc(pool.Annotations[dmv1.AnnotationRelease], func(r rune) bool { return r == ',' || r == ' ' }) {
		if u.Released[name] = true; !build.IsPodName(pool.Name, name) {
			u.Unknown = append(u.Unknown, name)
		}
	}
	return u
}

// RecordedBy are the volumes of a pool, by number, that an index has recorded memory on.
func RecordedBy(index *dmv1.DMIndex, pool string) []int {
	recorded, err := decision.Memory(index)
	joined, err2 := decision.JoinedTo(index)
	if err != nil || err2 != nil {
		return nil // the index says so
	}
	ids := slices.Collect(maps.Keys(recorded))
	if index.Status.Map != nil && len(decision.ValuesOf(index)) == 0 {
		// It is not known what was decided (StateConflict): what was seen last is protected.
		for _, server := range index.Status.MemoryServers {
			ids = append(ids, uint16(server.ID))
		}
	}
	for id, j := range joined {
		if j.State != decision.Left {
			ids = append(ids, id)
		}
	}
	return volumesIn(index, pool, ids)
}

// volumesIn are the volumes of those of an index's memory servers that are in a pool.
func volumesIn(index *dmv1.DMIndex, pool string, ids []uint16) (volumes []int) {
	for _, id := range ids {
		if ordinal, volume := build.MemoryServerVolume(id); ordinal < len(index.Spec.MemoryPools) && build.MemoryPoolOf(index, index.Spec.MemoryPools[ordinal]) == pool {
			volumes = append(volumes, volume)
		}
	}
	return volumes
}

// Keeps are the indexes that a pod is kept for; none if it is released.
func (u *Use) Keeps(p *corev1.Pod) []string {
	if u.Released[p.Name] {
		return nil
	}
	return u.KeptFor[podstate.VolumeOf(p)]
}

// HoldPool adds FinalizerInUse to a pool that is used and takes it off one that is not.
func HoldPool(ctx context.Context, b *reconciler.Base, pool *dmv1.DMMemoryPool, used bool) error {
	if used == controllerutil.ContainsFinalizer(pool, dmv1.FinalizerInUse) || used && !pool.DeletionTimestamp.IsZero() {
		return nil // none can be added to a pool that is being deleted
	}
	was := pool.DeepCopy()
	if used {
		controllerutil.AddFinalizer(pool, dmv1.FinalizerInUse)
	} else {
		controllerutil.RemoveFinalizer(pool, dmv1.FinalizerInUse)
	}
	err := b.Patch(ctx, pool, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}), kube.Owner)
	return client.IgnoreNotFound(err)
}
