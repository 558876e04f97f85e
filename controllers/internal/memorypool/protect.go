package memorypool

import (
	"cmp"
	"context"
	"fmt"
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
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/report"
	"github.com/dmindex/dmindex/controllers/internal/volume"
)

// protect sees to it that nothing ends the pool, or a pod with data, that nobody asked for. It
// works on paused pools, too.
func (r *Reconciler) protect(ctx context.Context, s *scope) error {
	if err := volume.HoldPool(ctx, &r.Base, s.pool, len(s.use.Users) > 0); err != nil {
		return err
	}
	if controllerutil.ContainsFinalizer(s.pool, metav1.FinalizerDeleteDependents) {
		return nil // the garbage collector is deleting all of it
	}
	var problems outcome.List
	// The pods of disks that have no other copy come back, and may be evicted. Where there are two
	// copies a drain waits until another one has taken the place of the pod's.
	keeps := len(s.use.KeptFor) > 0 && (!volume.IsPersistent(s.pool) || s.copies() > 1)
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
		empty := keeps && (len(s.use.KeptFor[podstate.VolumeOf(p)]) == 0 || !s.needs(p))
		build.KeepMemoryPod(kept, s.pool, strings.Join(s.keeps(p), ", "), empty || s.use.Released[p.Name])
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
		if names := s.use.KeptFor[podstate.VolumeOf(p)]; keeps && !volume.IsPersistent(s.pool) && len(names) > 0 && s.needs(p) && kept.Labels[dmv1.LabelReleased] != p.Labels[dmv1.LabelReleased] {
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
func (s *scope) needs(p *corev1.Pod) bool {
	return s.needsCopy(podstate.VolumeOf(p), copyOf(p, s.claims))
}

// needsCopy is needs of a copy of a volume.
func (s *scope) needsCopy(number int, c *volumeCopy) bool {
	view, recorded := s.record.Views[number]
	if !recorded {
		return c.id() <= build.MaxVolume
	}
	left := func(named volume.Proc) bool {
		q := named.Among(s.pods, s.claims)
		return s.isThere(named) && (s.claims != nil || !podstate.Ended(q))
	}
	return s.record.Names(number, c.uid) || !slices.ContainsFunc(view.Named(), left)
}

// isThere reports whether what a view names is there: the pod, or the claim.
func (s *scope) isThere(named volume.Proc) bool {
	if s.claims == nil {
		return named.Among(s.pods, nil) != nil
	}
	c := s.claims[podstate.NumberIn(named.Pod)]
	return c != nil && string(c.UID) == named.UID
}

// keeps are the indexes that a pod is kept for: none if data is not lost with it, as where it is on
// a disk.
func (s *scope) keeps(p *corev1.Pod) []string {
	if !s.needs(p) || volume.IsPersistent(s.pool) {
		return nil
	}
	return s.use.Keeps(p)
}

// neededPods is with how many pods of the pool data may be lost, and how many the budget counts, as
// their labels say; 0 if no volume has a view.
func (s *scope) neededPods() (needed, counted int) {
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
func (r *Reconciler) tellReleased(ctx context.Context, s *scope, p *corev1.Pod, released bool, indexes string) {
	if released {
		r.Events.Eventf(s.pool, p, corev1.EventTypeWarning, "MemoryPodReleased", "Release", "pod %s may be evicted and deleted; data of %s is lost with it", p.Name, indexes)
		logf.FromContext(ctx).Info("release pod", "pod", p.Name, "reason", "annotation "+dmv1.AnnotationRelease+" of the pool names it")
		return
	}
	r.Events.Eventf(s.pool, p, corev1.EventTypeNormal, "MemoryPodKept", "Keep", "pod %s is neither evicted nor deleted any more: it has data of %s", p.Name, indexes)
	logf.FromContext(ctx).Info("keep pod", "pod", p.Name, "reason", "annotation "+dmv1.AnnotationRelease+" of the pool does not name it any more")
}

// protectedCondition says for which indexes the pool's pods are kept, and how they are released.
func (s *scope) protectedCondition() {
	kept := s.keptClaims()
	for _, p := range s.pods {
		if names := s.keeps(p); len(names) > 0 && !podstate.Going(p) {
			kept = append(kept, p.Name+" ("+strings.Join(names, ", ")+")")
		}
	}
	reason, message := dmv1.ReasonNotInUse, "no index with onDataLoss: Block has memory in the pool"
	switch {
	case len(kept) > 0 && volume.IsPersistent(s.pool):
		reason = dmv1.ReasonInUse
		message = fmt.Sprintf("data of indexes is in claims %s: they are not deleted. Their pods may be evicted and deleted, and come back with it. Annotate the pool with %s=CLAIM,... to let claims be deleted", strings.Join(kept, ", "), dmv1.AnnotationRelease)
	case len(kept) > 0:
		reason = dmv1.ReasonInUse
		message = fmt.Sprintf("data of indexes would be lost with pods %s: they are neither evicted nor deleted. Annotate the pool with %s=POD,... to release some", strings.Join(kept, ", "), dmv1.AnnotationRelease)
	case slices.ContainsFunc(s.pods, func(p *corev1.Pod) bool {
		return s.use.Released[p.Name] && len(s.use.KeptFor[podstate.VolumeOf(p)]) > 0
	}):
		reason, message = dmv1.ReasonReleased, "all pods with data are released"
	case len(s.use.KeptFor) > 0:
		message = "the pods on which indexes had memory are gone"
	}
	if !s.pool.DeletionTimestamp.IsZero() {
		reason = dmv1.ReasonDeleting
		message = fmt.Sprintf("the pool is deleted once no index has memory in it. Delete %s first", strings.Join(s.use.Users, ", ")) + "; " + message
	}
	if len(s.use.Unknown) > 0 {
		message += fmt.Sprintf("; annotation %s names %s, and no pod of the pool has such a name", dmv1.AnnotationRelease, strings.Join(s.use.Unknown, ", "))
	}
	if names := s.unknownLosses(); len(names) > 0 {
		message += fmt.Sprintf("; annotation %s names %s, and no server of the pool that has a disk has such a name", dmv1.AnnotationAcceptLoss, strings.Join(names, ", "))
	}
	report.SetCondition(&s.pool.Status.Conditions, s.pool.Generation, dmv1.ConditionProtected, len(kept) > 0, reason, message)
}
