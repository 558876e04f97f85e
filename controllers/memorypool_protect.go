package controllers

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
	"github.com/dmindex/dmindex/controllers/internal/report"
)

// memoryPoolUse is who would lose what with a memory pool.
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
type memoryPoolUse struct {
	users    []string         // indexes that have memory in the pool
	keptFor  map[int][]string // by pod: indexes with onDataLoss: Block that have memory there
	released map[string]bool  // pods, by name
	unknown  []string         // names of AnnotationRelease that no pod of the pool can have

	// indexes with durability Replicated, which have memory in the pool or are to get some
	replicated []string
}

// newMemoryPoolUse is how indexes use a pool.
func newMemoryPoolUse(pool *dmv1.DMMemoryPool, indexes []dmv1.DMIndex) memoryPoolUse {
	u := memoryPoolUse{keptFor: map[int][]string{}, released: map[string]bool{}}
	for i := range indexes {
		index := &indexes[i]
		if !index.DeletionTimestamp.IsZero() {
			continue
		}
		if index.Spec.Durability == dmv1.DurabilityReplicated && usesMemoryPool(index, pool.Name) {
			u.replicated = append(u.replicated, index.Name)
		}
		pods := podsOf(index, pool.Name)
		if len(pods) == 0 {
			continue
		}
		u.users = append(u.users, index.Name)
		for _, id := range pods {
			if index.Spec.Recovery.OnDataLoss != dmv1.OnDataLossRecreate {
				u.keptFor[id] = append(u.keptFor[id], index.Name)
			}
		}
	}
	slices.Sort(u.users)
	slices.Sort(u.replicated)
	for _, names := range u.keptFor {
		slices.Sort(names)
	}
	for _, name := range strings.FieldsFunc(pool.Annotations[dmv1.AnnotationRelease], func(r rune) bool { return r == ',' || r == ' ' }) {
		if u.released[name] = true; !build.IsPodName(pool.Name, name) {
			u.unknown = append(u.unknown, name)
		}
	}
	return u
}

// podsOf are the pods of a pool, by number, that an index has recorded memory on.
func podsOf(index *dmv1.DMIndex, pool string) (pods []int) {
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
	for _, id := range ids {
		if ordinal, pod := build.MemoryServerVolume(id); ordinal < len(index.Spec.MemoryPools) && build.MemoryPoolOf(index, index.Spec.MemoryPools[ordinal]) == pool {
			pods = append(pods, pod)
		}
	}
	return pods
}

// keeps are the indexes that a pod is kept for; none if it is released.
func (u *memoryPoolUse) keeps(p *corev1.Pod) []string {
	if u.released[p.Name] {
		return nil
	}
	return u.keptFor[podstate.VolumeOf(p)]
}

// protect sees to it that nothing ends the pool, or a pod with data, that nobody asked for. It
// works on paused pools, too.
func (r *DMMemoryPoolReconciler) protect(ctx context.Context, s *memoryPoolScope) error {
	if err := holdPool(ctx, &r.Base, s.pool, len(s.use.users) > 0); err != nil {
		return err
	}
	if controllerutil.ContainsFinalizer(s.pool, metav1.FinalizerDeleteDependents) {
		return nil // the garbage collector is deleting all of it
	}
	var problems outcome.List
	// The pods of disks that have no other copy come back, and may be evicted. Where there are two
	// copies a drain waits until another one has taken the place of the pod's.
	keeps := len(s.use.keptFor) > 0 && (!isPersistent(s.pool) || s.copies() > 1)
	needed, counted := s.neededPods()
	budget := func(pods int) {
		if keeps || !s.pool.Spec.Paused {
			problems.Add(r.Apply(ctx, s.pool, build.MemoryBudget(s.pool, keeps, pods)))
		}
	}
	// It is raised before it counts more pods, and lowered behind it: a pod with data that is not
	// needed for the number could be evicted.
	budget(max(needed, counted))
	for _, p := range s.pods {
		if podstate.Going(p) || podstate.Ended(p) {
			continue
		}
		kept := p.DeepCopy()
		// A pod without data does not keep its node from being drained.
		empty := keeps && (len(s.use.keptFor[podstate.VolumeOf(p)]) == 0 || !s.needs(p))
		build.KeepMemoryPod(kept, s.pool, strings.Join(s.keeps(p), ", "), empty || s.use.released[p.Name])
		kept.Annotations[dmv1.AnnotationTemplate] = cmp.Or(p.Annotations[dmv1.AnnotationTemplate], s.template)
		if equality.Semantic.DeepEqual(kept, p) {
			continue
		}
		patch := client.MergeFromWithOptions(p, client.MergeFromWithOptimisticLock{})
		if err := r.Patch(ctx, kept, patch, kube.Owner); err != nil {
			if client.IgnoreNotFound(err) != nil {
				problems.Add(fmt.Errorf("protect pod %s: %w", p.Name, err))
			}
			continue
		}
		if names := s.use.keptFor[podstate.VolumeOf(p)]; keeps && !isPersistent(s.pool) && len(names) > 0 && s.needs(p) && kept.Labels[dmv1.LabelReleased] != p.Labels[dmv1.LabelReleased] {
			r.tellReleased(ctx, s, p, kept.Labels[dmv1.LabelReleased] != "", strings.Join(names, ", "))
		}
		kept.DeepCopyInto(p)
	}
	if needed, counted = s.neededPods(); problems.Err() == nil {
		budget(max(needed, counted))
	}
	return problems.Err()
}

// needs reports whether data may be lost with a pod: the view of its volume names it, or no pod
// that the view names is there. Then a copy that was cut off may be all that is left, and somebody
// may accept it (volumeScope.acceptCopy).
func (s *memoryPoolScope) needs(p *corev1.Pod) bool {
	return s.needsCopy(podstate.VolumeOf(p), s.claims.copyOf(p))
}

// needsCopy is needs of a copy of a volume.
func (s *memoryPoolScope) needsCopy(volume int, c *volumeCopy) bool {
	view, recorded := s.record.Views[volume]
	if !recorded {
		return c.id() <= build.MaxVolume
	}
	left := func(named volumeProc) bool {
		q := named.among(s.pods, s.claims)
		return s.isThere(named) && (s.claims != nil || !podstate.Ended(q))
	}
	return s.record.names(volume, c.uid) || !slices.ContainsFunc(view.named(), left)
}

// isThere reports whether what a view names is there: the pod, or the claim.
func (s *memoryPoolScope) isThere(named volumeProc) bool {
	if s.claims == nil {
		return named.among(s.pods, nil) != nil
	}
	c := s.claims[podstate.NumberIn(named.Pod)]
	return c != nil && string(c.UID) == named.UID
}

// keeps are the indexes that a pod is kept for: none if data is not lost with it, as where it is on
// a disk.
func (s *memoryPoolScope) keeps(p *corev1.Pod) []string {
	if !s.needs(p) || isPersistent(s.pool) {
		return nil
	}
	return s.use.keeps(p)
}

// neededPods is with how many pods of the pool data may be lost, and how many the budget counts, as
// their labels say; 0 if no volume has a view.
func (s *memoryPoolScope) neededPods() (needed, counted int) {
	if len(s.record.Views) == 0 {
		return 0, 0
	}
	for _, p := range s.pods {
		if podstate.Going(p) || podstate.Ended(p) {
			continue
		}
		if s.needs(p) {
			needed++
		}
		if p.Labels[dmv1.LabelReleased] == "" {
			counted++
		}
	}
	return needed, counted
}

// tellReleased tells of a pod with data that was released, or is kept again.
func (r *DMMemoryPoolReconciler) tellReleased(ctx context.Context, s *memoryPoolScope, p *corev1.Pod, released bool, indexes string) {
	if released {
		r.Events.Eventf(s.pool, p, corev1.EventTypeWarning, "MemoryPodReleased", "Release", "pod %s may be evicted and deleted; data of %s is lost with it", p.Name, indexes)
		logf.FromContext(ctx).Info("release pod", "pod", p.Name, "reason", "annotation "+dmv1.AnnotationRelease+" of the pool names it")
		return
	}
	r.Events.Eventf(s.pool, p, corev1.EventTypeNormal, "MemoryPodKept", "Keep", "pod %s is neither evicted nor deleted any more: it has data of %s", p.Name, indexes)
	logf.FromContext(ctx).Info("keep pod", "pod", p.Name, "reason", "annotation "+dmv1.AnnotationRelease+" of the pool does not name it any more")
}

// holdPool adds FinalizerInUse to a pool that is used and takes it off one that is not.
func holdPool(ctx context.Context, b *reconciler.Base, pool *dmv1.DMMemoryPool, used bool) error {
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

// protectedCondition says for which indexes the pool's pods are kept, and how they are released.
func (s *memoryPoolScope) protectedCondition() {
	kept := s.keptClaims()
	for _, p := range s.pods {
		if names := s.keeps(p); len(names) > 0 && !podstate.Going(p) {
			kept = append(kept, p.Name+" ("+strings.Join(names, ", ")+")")
		}
	}
	reason, message := dmv1.ReasonNotInUse, "no index with onDataLoss: Block has memory in the pool"
	switch {
	case len(kept) > 0 && isPersistent(s.pool):
		reason = dmv1.ReasonInUse
		message = fmt.Sprintf("data of indexes is in claims %s: they are not deleted. Their pods may be evicted and deleted, and come back with it. Annotate the pool with %s=CLAIM,... to let claims be deleted", strings.Join(kept, ", "), dmv1.AnnotationRelease)
	case len(kept) > 0:
		reason = dmv1.ReasonInUse
		message = fmt.Sprintf("data of indexes would be lost with pods %s: they are neither evicted nor deleted. Annotate the pool with %s=POD,... to release some", strings.Join(kept, ", "), dmv1.AnnotationRelease)
	case slices.ContainsFunc(s.pods, func(p *corev1.Pod) bool {
		return s.use.released[p.Name] && len(s.use.keptFor[podstate.VolumeOf(p)]) > 0
	}):
		reason, message = dmv1.ReasonReleased, "all pods with data are released"
	case len(s.use.keptFor) > 0:
		message = "the pods on which indexes had memory are gone"
	}
	if !s.pool.DeletionTimestamp.IsZero() {
		reason = dmv1.ReasonDeleting
		message = fmt.Sprintf("the pool is deleted once no index has memory in it. Delete %s first", strings.Join(s.use.users, ", ")) + "; " + message
	}
	if len(s.use.unknown) > 0 {
		message += fmt.Sprintf("; annotation %s names %s, and no pod of the pool has such a name", dmv1.AnnotationRelease, strings.Join(s.use.unknown, ", "))
	}
	if names := s.unknownLosses(); len(names) > 0 {
		message += fmt.Sprintf("; annotation %s names %s, and no server of the pool that has a disk has such a name", dmv1.AnnotationAcceptLoss, strings.Join(names, ", "))
	}
	report.SetCondition(&s.pool.Status.Conditions, s.pool.Generation, dmv1.ConditionProtected, len(kept) > 0, reason, message)
}

// usesMemoryPool reports whether an index holds memory of a pool.
func usesMemoryPool(index *dmv1.DMIndex, pool string) bool {
	for _, p := range index.Spec.MemoryPools {
		if build.MemoryPoolOf(index, p) == pool {
			return true
		}
	}
	return false
}
