// Package kube writes objects: only when something would change, and never over somebody else's.
package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// Owner is the field manager of all that the operator applies.
const Owner = client.FieldOwner("dmindex-operator")

// ErrNameTaken is returned when an object that must be written exists and belongs to somebody else.
var ErrNameTaken = errors.New("name is taken")

// Writer writes objects. Cached reads see only what the operator made; Live sees everything.
type Writer struct {
	client.Client
	Live client.Reader
}

// Apply makes object as desired, as owned by owner, with server-side apply. Fields listed in except
// are not written. It writes nothing if the object was applied like this before and has all that is
// desired. If desired has a UID, only that object is changed: once it is deleted, Apply fails with
// a conflict, and makes no other and changes no other of its name.
func (w *Writer) Apply(ctx context.Context, owner, desired client.Object, except ...[]string) error {
	_, err := w.ApplyTold(ctx, owner, desired, except...)
	return err
}

// ApplyTold is Apply, and reports whether it wrote anything: then what the cache has of the object
// may be older.
func (w *Writer) ApplyTold(ctx context.Context, owner, desired client.Object, except ...[]string) (wrote bool, err error) {
	content, hash, err := w.content(owner, desired, except)
	if err != nil {
		return false, err
	}
	live := desired.DeepCopyObject().(client.Object)
	what := fmt.Sprintf("%s %s", content.GetKind(), desired.GetName())
	switch err := w.Find(ctx, desired, live); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return false, fmt.Errorf("read %s: %w", what, err)
	case !metav1.IsControlledBy(live, owner):
		toDo := "rename one of them or delete it"
		if _, data := live.(*dmv1.DMMemoryPool); data && metav1.GetControllerOf(live) == nil {
			toDo = fmt.Sprintf("rename one of them. If it was made for %s and lost its owner, do not delete it, it has the data: put back its ownerReferences, with controller: true and uid: %s", owner.GetName(), owner.GetUID())
		}
		return false, fmt.Errorf("%w: %s exists and is not of %s: %s", ErrNameTaken, what, owner.GetName(), toDo)
	case live.GetAnnotations()[dmv1.AnnotationApplied] == hash && w.has(live, content):
		return false, nil
	}
	annotations := maps.Clone(content.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[dmv1.AnnotationApplied] = hash
	content.SetAnnotations(annotations)
	content.SetUID(desired.GetUID())
	if err := w.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(content), Owner, client.ForceOwnership); err != nil {
		if anotherObject(err) {
			err = apierrors.NewConflict(schema.GroupResource{Resource: content.GetKind()}, desired.GetName(), err)
		}
		return false, fmt.Errorf("apply %s: %w", what, err)
	}
	return true, nil
}

// anotherObject reports whether the API server refused a change since the object of that name has
// another UID.
func anotherObject(err error) bool {
	var s apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &s) || s.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(s.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
}

// Find reads an object from the cache and, if it is not there, from the API server: the cache holds
// only what carries the operator's label, and lags.
func (w *Writer) Find(ctx context.Context, desired, live client.Object) error {
	err := w.Get(ctx, client.ObjectKeyFromObject(desired), live)
	if apierrors.IsNotFound(err) {
		return w.Live.Get(ctx, client.ObjectKeyFromObject(desired), live)
	}
	return err
}

// content is what is sent, and its hash.
func (w *Writer) content(owner, desired client.Object, except [][]string) (*unstructured.Unstructured, string, error) {
	object := desired.DeepCopyObject().(client.Object)
	object.SetUID("")
	labels := maps.Clone(object.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	labels[dmv1.LabelManagedBy] = dmv1.ManagedBy
	object.SetLabels(labels)
	if err := controllerutil.SetControllerReference(owner, object, w.Scheme()); err != nil {
		return nil, "", err
	}
	gvk, err := apiutil.GVKForObject(object, w.Scheme())
	if err != nil {
		return nil, "", err
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, "", err
	}
	content := &unstructured.Unstructured{Object: fields}
	content.SetGroupVersionKind(gvk)
	unstructured.RemoveNestedField(fields, "status")
	unstructured.RemoveNestedField(fields, "metadata", "creationTimestamp")
	for _, path := range except {
		unstructured.RemoveNestedField(fields, path...)
	}
	hash, err := Hash(fields)
	return content, hash, err
}

// has reports whether live has every field of content. Both went through the same types, so equal
// values look the same.
func (w *Writer) has(live client.Object, content *unstructured.Unstructured) bool {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return false
	}
	wanted := content.DeepCopy().Object
	delete(wanted, "apiVersion") // objects that were read do not say
	delete(wanted, "kind")
	return within(wanted, fields)
}

// within reports whether all that is in wanted is in live too. Lists must have equal lengths.
func within(wanted, live any) bool {
	switch wanted := wanted.(type) {
	case map[string]any:
		has, ok := live.(map[string]any)
		if !ok {
			return len(wanted) == 0 && live == nil
		}
		for key, value := range wanted {
			if !within(value, has[key]) {
				return false
			}
		}
		return true
	case []any:
		has, ok := live.([]any)
		if !ok || len(has) != len(wanted) {
			return len(wanted) == 0 && live == nil
		}
		for i := range wanted {
			if !within(wanted[i], has[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(wanted, live)
}

// Hash is a short hash of a value's JSON.
func Hash(value any) (string, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8]), nil
}

// Refused reports whether an object that was to be made is not there for certain.
func Refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsNotFound(err)
}
