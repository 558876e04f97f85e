package decision

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
)

// Reader reads objects of ours with the annotations that are in force. It reads the records from
// where it reads the objects: of a cache both may be behind.
type Reader struct{ client.Reader }

// Client is a client that reads as Reader does.
type Client struct{ client.Client }

// Get implements client.Reader.
func (r Reader) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if err := r.Reader.Get(ctx, key, object, options...); err != nil {
		return err
	}
	return witness(ctx, r.Reader, object)
}

// List implements client.Reader.
func (r Reader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if err := r.Reader.List(ctx, list, options...); err != nil {
		return err
	}
	return witnessAll(ctx, r.Reader, list, options)
}

// Get implements client.Reader.
func (c Client) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	return Reader{c.Client}.Get(ctx, key, object, options...)
}

// List implements client.Reader.
func (c Client) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return Reader{c.Client}.List(ctx, list, options...)
}

// Patch gives object what the API server has afterwards, as Get does.
func (c Client) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	if err := c.Client.Patch(ctx, object, patch, options...); err != nil {
		return err
	}
	return witness(ctx, c.Client, object)
}

// witness gives an object that was read the annotations that are in force.
func witness(ctx context.Context, from client.Reader, object client.Object) error {
	if stateOf(object) == nil {
		return nil
	}
	record, err := readRecord(ctx, from, object)
	if err != nil {
		return err
	}
	takeInForce(object, record)
	return nil
}

// readRecord is the record of an object; nil = there is none.
func readRecord(ctx context.Context, from client.Reader, object client.Object) (*corev1.ConfigMap, error) {
	record := &corev1.ConfigMap{}
	err := from.Get(ctx, types.NamespacedName{Namespace: object.GetNamespace(), Name: build.StateRecordName(object.GetUID())}, record)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return record, err
}

// ReadKnown reads an object with the annotations that are in force, and fails if that is not known.
func ReadKnown(ctx context.Context, from client.Reader, key client.ObjectKey, object client.Object) error {
	if w, is := from.(Reader); is {
		from = w.Reader // it gives what it has where that is not known
	}
	if err := from.Get(ctx, key, object); err != nil {
		return err
	}
	record, err := readRecord(ctx, from, object)
	if err != nil {
		return err
	}
	s, err := stateInForce(object, record)
	if err == nil {
		takeState(object, s)
	}
	return err
}

// takeInForce gives an object the annotations that are in force. Where that is not known it keeps
// those that it has, and gets those that only the record has: what they protect stays protected,
// and its own reconciler decides nothing.
func takeInForce(object client.Object, record *corev1.ConfigMap) {
	s, err := stateInForce(object, record)
	if err == nil {
		takeState(object, s)
		return
	}
	if record == nil {
		return
	}
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	_, values := build.ReadStateRecord(record, stateOf(object))
	for key, value := range values {
		if annotations[key] == "" {
			annotations[key] = value
		}
	}
	object.SetAnnotations(annotations)
}

// witnessAll does the same for a list, with one more List.
func witnessAll(ctx context.Context, from client.Reader, list client.ObjectList, options []client.ListOption) error {
	switch list.(type) {
	case *dmv1.DMIndexList, *dmv1.DMMemoryPoolList, *dmv1.DMComputePoolList, *dmv1.DMBackupList:
	default:
		return nil
	}
	where := client.ListOptions{}
	where.ApplyOptions(options)
	records := &corev1.ConfigMapList{}
	if err := from.List(ctx, records, client.InNamespace(where.Namespace), client.MatchingLabels{dmv1.LabelManagedBy: dmv1.ManagedBy, dmv1.LabelComponent: dmv1.ComponentState}); err != nil {
		return err
	}
	byName := map[types.NamespacedName]*corev1.ConfigMap{}
	for i := range records.Items {
		byName[client.ObjectKeyFromObject(&records.Items[i])] = &records.Items[i]
	}
	return apimeta.EachListItem(list, func(item runtime.Object) error {
		if object, ok := item.(client.Object); ok {
			takeInForce(object, byName[types.NamespacedName{Namespace: object.GetNamespace(), Name: build.StateRecordName(object.GetUID())}])
		}
		return nil
	})
}
