package controllers

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// tryCopies makes pods, and tries again after a while what the API server refuses: a quota does not
// keep other volumes from being looked at.
func (r *DMMemoryPoolReconciler) tryCopies(ctx context.Context, s *memoryPoolScope, v *volumeScope, tls string) error {
	last, now := r.remembered.refusedCopy(s.pool.UID), r.now()
	if last.why != "" && now.Sub(last.at) < joinBackoff {
		v.refused = last.why
		return nil
	}
	err := r.makeCopies(ctx, s, v, tls)
	if err == nil || !refused(err) {
		return err
	}
	v.refused = err.Error()
	r.remembered.refuseCopy(s.pool.UID, refusedCopy{v.refused, now})
	return nil
}

// makeCopies makes pods for further copies of a volume. Their numbers are taken in the record
// first, so that none is used twice; those of pods that were refused are tried again.
func (r *DMMemoryPoolReconciler) makeCopies(ctx context.Context, s *memoryPoolScope, v *volumeScope, tls string) error {
	if err := r.labelVolume(ctx, v); err != nil {
		return err
	}
	ids := r.spare.take(s.pool.UID, v.actions.MakePods)
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
		pod := build.MemoryCopy(s.pool, id, v.number, s.imageOfCopy(v))
		build.UseLog(pod, s.log)
		pod.Annotations[dmv1.AnnotationTLS], pod.Annotations[dmv1.AnnotationTemplate] = tls, s.template
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(s.pool, kindOf(s.pool))}
		r.equip(pod)
		err := r.Create(ctx, pod)
		switch {
		case err == nil:
			logf.FromContext(ctx).Info("create pod", "pod", pod.Name, "reason", fmt.Sprintf("volume %d is to have another copy", v.number))
		case refused(err):
			r.spare.put(s.pool.UID, ids[i:])
			return err
		default: // it may be there, or its name is somebody else's
			r.spare.put(s.pool.UID, ids[i+1:])
			return err
		}
	}
	return nil
}

// labelVolume gives the pods of a volume the label by which the scheduler keeps copies apart.
func (r *DMMemoryPoolReconciler) labelVolume(ctx context.Context, v *volumeScope) error {
	for _, p := range v.pods {
		if p.Labels[dmv1.LabelVolume] == strconv.Itoa(v.number) {
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

// deleteCopy deletes a pod that the volume does not need, unless its object changed since it was
// looked at: a view may name it since.
func (r *DMMemoryPoolReconciler) deleteCopy(ctx context.Context, v *volumeScope, p volumes.Pod) error {
	pod := v.podOf(p.Name)
	if pod == nil || going(pod) {
		return nil
	}
	uid := pod.UID
	err := r.Delete(ctx, pod, client.Preconditions{UID: &uid, ResourceVersion: &p.Version})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete pod %s, which volume %d does not need any more: %w", pod.Name, v.number, err)
	}
	logf.FromContext(ctx).Info("delete pod", "pod", pod.Name, "reason", fmt.Sprintf("volume %d does not need it any more", v.number))
	return nil
}

// imageOfCopy is the image of a further copy: of a volume with two copies, or one that leaves an
// old template, the wanted one. A copy that does not start leaves the others as they are.
func (s *memoryPoolScope) imageOfCopy(v *volumeScope) string {
	if (v.view.Backup != nil || v.renewed) && s.image != "" {
		return s.image
	}
	return s.imageOfNew()
}
