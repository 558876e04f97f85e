package kube

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// ApplyStatus writes the status of object if it differs from what it was. before and after are the
// statuses.
func ApplyStatus[S any](ctx context.Context, w *Writer, object client.Object, before, after *S) error {
	if equality.Semantic.DeepEqual(before, after) {
		return nil
	}
	gvk, err := apiutil.GVKForObject(object, w.Scheme())
	if err != nil {
		return err
	}
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(after)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	u.SetGroupVersionKind(gvk)
	u.SetName(object.GetName())
	u.SetNamespace(object.GetNamespace())
	u.SetUID(object.GetUID()) // never the status of a namesake
	err = w.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), Owner, client.ForceOwnership)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("write the status of %s: %w", object.GetName(), err)
	}
	return nil
}
