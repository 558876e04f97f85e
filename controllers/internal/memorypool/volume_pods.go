package memorypool

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/serverpod"
	"github.com/dmindex/dmindex/controllers/internal/volume"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// tryCopies makes pods, and tries again after a while what the API server refuses: a quota does not
// keep other volumes from being looked at.
func (r *Reconciler) tryCopies(ctx context.Context, s *scope, v *volumeScope, tls string) error {
	last, now := r.remembered.refusedCopy(s.pool.UID), r.Now()
	if last.why != "" && now.Sub(last.at) < joinBackoff {
		v.refused = last.why
		return nil
	}
	err := r.makeCopies(ctx, s, v, tls)
	if err == nil || !serverpod.Refused(err) {
		return err
	}
	v.refused = err.Error()
	r.remembered.refuseCopy(s.pool.UID, refusedCopy{v.refused, now})
	return nil
}

// makeCopies makes pods for further copies of a volume. Their numbers are taken in the record
// first, so that none is used twice; those of pods that were refused are tried again.
func (r *Reconciler) makeCopies(ctx context.Context, s *scope, v *volumeScope, tls string) error {
	if err := r.labelVolume(ctx, v); err != nil {
		return err
	}
	ids := r.Spare.Take(s.pool.UID, v.actions.MakePods)
	if fresh := v.actions.MakePods - len(ids); fresh > 0 {
		next := s.record
		next.Views = maps.Clone(s.record.Views)
		for range fresh {
			ids = append(ids, next.Next)
			next.Next++
		}
		if err := r.Annotate(ctx, s.pool, map[string]string{dmv1.AnnotationVolumes: next.String()}); err != nil {
			return err
		}
		s.record = next
	}
	for i, id := range ids {
		err := r.makeCopy(ctx, s, v, id, tls)
		switch {
		case err == nil:
		case serverpod.Refused(err) && s.claims[id] != nil:
			// the claim is there: its pod is made later
			r.Spare.Put(s.pool.UID, ids[i+1:])
			return err
		case serverpod.Refused(err):
			r.Spare.Put(s.pool.UID, ids[i:])
			return err
		default: // it may be there, or its name is somebody else's
			r.Spare.Put(s.pool.UID, ids[i+1:])
			return err
		}
	}
	return nil
}

// makeCopy makes a further copy of a volume: in a pool with persistence its claim first.
func (r *Reconciler) makeCopy(ctx context.Context, s *scope, v *volumeScope, id int, tls string) error {
	if volume.IsPersistent(s.pool) {
		if err := r.makeClaim(ctx, s, id, v.number); err != nil {
			return err
		}
	}
	return r.makePod(ctx, s, v, id, s.imageOfCopy(v), tls, fmt.Sprintf("volume %d is to have another copy", v.number))
}

// makePod makes the pod of a copy.
func (r *Reconciler) makePod(ctx context.Context, s *scope, v *volumeScope, id int, image, tls, reason string) error {
	pod := build.MemoryCopy(s.pool, id, v.number, image, s.claims[id])
	build.UseLog(pod, s.log)
	pod.Annotations[dmv1.AnnotationTLS], pod.Annotations[dmv1.AnnotationTemplate] = tls, s.template
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(s.pool, kube.KindOf(s.pool))}
	s.tellDisk(pod)
	if err := serverpod.Equip(&r.Base, s.pool, pod, &s.pool.Spec.Pod); err != nil {
		return err
	}
	if err := r.Create(ctx, pod); err != nil {
		return err
	}
	logf.FromContext(ctx).Info("create pod", "pod", pod.Name, "reason", reason)
	return nil
}

// returnPods lets the pods of a volume with a view come back that is on disks: each claim that has
// none gets one, and one that ended, or cannot start as it is and would now be made otherwise, is
// deleted. A pod that was made of an old template and found its node stays.
func (r *Reconciler) returnPods(ctx context.Context, s *scope, v *volumeScope, tls string) error {
	if s.claims == nil || v.view.Number == 0 || !s.pool.DeletionTimestamp.IsZero() {
		return nil
	}
	var problems outcome.List
	for _, c := range v.copies {
		p := c.pod
		switch {
		case c.going(), slices.ContainsFunc(v.actions.DeletePods, func(d volumes.Pod) bool { return d.Name == c.uid }):
		case p == nil:
			if last := r.remembered.refusedCopy(s.pool.UID); last.why != "" && r.Now().Sub(last.at) < joinBackoff {
				v.refused = last.why
				continue
			}
			err := r.makePod(ctx, s, v, c.id(), s.imageOfNew(), tls, fmt.Sprintf("a copy of volume %d is on its disk", v.number))
			if serverpod.Refused(err) {
				v.refused = err.Error()
				r.remembered.refuseCopy(s.pool.UID, refusedCopy{v.refused, r.Now()})
			} else if !apierrors.IsAlreadyExists(err) { // the cache may be behind
				problems.Add(err)
			}
		case podstate.Going(p):
		case podstate.Ended(p) && r.Now().Sub(kube.Stamp(p, "", p.CreationTimestamp.Time, r.Now())) >= returnAfter,
			podstate.Stuck(p) && podstate.Asked(p) != s.imageOfNew(),
			p.Spec.NodeName == "" && s.oldTemplate(p):
			problems.Add(serverpod.Delete(ctx, &r.Base, p, "it comes back with its disk"))
		}
	}
	return problems.Err()
}

// labelVolume gives the pods of a volume the label by which the scheduler keeps copies apart.
func (r *Reconciler) labelVolume(ctx context.Context, v *volumeScope) error {
	for _, c := range v.copies {
		p := c.pod
		if p == nil || p.Labels[dmv1.LabelVolume] == strconv.Itoa(v.number) {
			continue
		}
		labelled := p.DeepCopy()
		metav1.SetMetaDataLabel(&labelled.ObjectMeta, dmv1.LabelVolume, strconv.Itoa(v.number))
		if err := r.Patch(ctx, labelled, client.MergeFromWithOptions(p, client.MergeFromWithOptimisticLock{}), kube.Owner); err != nil {
			return fmt.Errorf("label pod %s with its volume: %w", p.Name, err)
		}
		labelled.DeepCopyInto(p)
	}
	return nil
}

// deleteCopy deletes a copy that the volume does not need, unless one of its objects changed since
// they were looked at: a view may name it since. A claim is deleted before its pod, and is there
// until that is gone: a pod by itself would come back.
func (r *Reconciler) deleteCopy(ctx context.Context, v *volumeScope, p volumes.Pod) error {
	c := v.copyOf(p.Name)
	if c == nil || c.version() != p.Version {
		return nil
	}
	for _, object := range c.objects() {
		if object.GetDeletionTimestamp() != nil {
			continue
		}
		uid, version := object.GetUID(), object.GetResourceVersion()
		err := r.Delete(ctx, object, client.Preconditions{UID: &uid, ResourceVersion: &version})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		what := "pod"
		if object == client.Object(c.claim) {
			what = "claim"
		}
		if err != nil {
			return fmt.Errorf("delete %s %s, which volume %d does not need any more: %w", what, c.name, v.number, err)
		}
		logf.FromContext(ctx).Info("delete "+what, what, c.name, "reason", fmt.Sprintf("volume %d does not need it any more", v.number))
	}
	return nil
}

// imageOfCopy is the image of a further copy: of a volume with two copies, or one that leaves an
// old template, the wanted one. A copy that does not start leaves the others as they are.
func (s *scope) imageOfCopy(v *volumeScope) string {
	if (v.view.Backup != nil || v.renewed) && s.image != "" {
		return s.image
	}
	return s.imageOfNew()
}
