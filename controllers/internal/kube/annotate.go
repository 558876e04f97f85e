package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Annotate sets annotations (empty values remove them), unless the object changed since it was
// read: then it fails with a conflict, and whoever decided decides again. object is up to date
// afterwards.
func (w *Writer) Annotate(ctx context.Context, object client.Object, values map[string]string) error {
	base := object.DeepCopyObject().(client.Object)
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	changed := false
	for key, value := range values {
		was, there := annotations[key]
		switch {
		case value == "" && there:
			delete(annotations, key)
			changed = true
		case value != "" && was != value:
			annotations[key] = value
			changed = true
		}
	}
	if !changed {
		return nil
	}
	object.SetAnnotations(annotations)
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	if err := w.Patch(ctx, object, patch, Owner); err != nil {
		return fmt.Errorf("annotate %s: %w", object.GetName(), err)
	}
	return nil
}

// DeletePrecisely deletes this very object and not a namesake. It is no error if it is gone.
func (w *Writer) DeletePrecisely(ctx context.Context, object client.Object) error {
	uid := object.GetUID()
	err := w.Delete(ctx, object, client.Preconditions{UID: &uid})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", object.GetName(), err)
	}
	return nil
}
