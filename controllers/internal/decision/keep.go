// Package decision reads and writes what the operator decided about an object for good. Such a
// decision is in two places, an annotation of the object and a record beside it, and package state
// says which of them counts:
//
//   - Objects that are read have in their annotations what is in force, whatever the API server has
//     there (Reader). The annotations that others write are as they are.
//   - The reconciler of an object begins with Keep: it reads the record at the API server, and
//     restores what is behind. So nothing follows from a cache that is behind, and a decision that
//     was written by halves is complete before anything follows from it.
//   - Annotate writes a decision into both, unless it was made from what is not in force any more.
//
// What others read of the object meanwhile may be as old as their cache, as ever.
//
// The other files read what single annotations say.
package decision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/state"
	"github.com/dmindex/dmindex/pkg/grant"
)

// stateOf are the annotations of an object that are state; nil if it is of no kind that has any.
func stateOf(object client.Object) []string {
	switch object.(type) {
	case *dmv1.DMIndex:
		return []string{dmv1.AnnotationComputeIDs, dmv1.AnnotationCreated, dmv1.AnnotationImage, dmv1.AnnotationImageRDMA,
			dmv1.AnnotationIndexIncarnation, dmv1.AnnotationJoined, dmv1.AnnotationMemory, dmv1.AnnotationRestore}
	case *dmv1.DMMemoryPool:
		return []string{dmv1.AnnotationImage, dmv1.AnnotationNextID, dmv1.AnnotationPausedSize, dmv1.AnnotationUsedIDs, dmv1.AnnotationVolumes}
	case *dmv1.DMComputePool:
		return []string{dmv1.AnnotationNextID, dmv1.AnnotationPausedSize}
	case *dmv1.DMBackup:
		return []string{dmv1.AnnotationBackup, dmv1.AnnotationIdentity}
	}
	return nil
}

// ValuesOf are the annotations of an object that are state.
func ValuesOf(object client.Object) map[string]string {
	values, annotations := map[string]string{}, object.GetAnnotations()
	for _, key := range stateOf(object) {
		if value := annotations[key]; value != "" {
			values[key] = value
		}
	}
	return values
}

// stateConflict is an error of an object about which nothing is decided.
func stateConflict(object client.Object, what, toDo string) error {
	return outcome.WaitFor(dmv1.ReasonStateConflict, fmt.Sprintf("what was decided about %s is not known: %s. Nothing is taken back or made anew, and its servers go on: %s (record: ConfigMap %s)",
		object.GetName(), what, toDo, build.StateRecordName(object.GetUID())), outcome.Recheck)
}

// stateInForce is what is in force of an object, by its annotations and its record; nil = there is
// no record.
//
// Annotations that were not stamped are of an operator of an earlier version, or came with the
// manifest. The status tells: it is not made with an object, nor replaced with it. Those with the
// stamp of another object are that object's: only the result of a DMBackup counts.
func stateInForce(object client.Object, record *corev1.ConfigMap) (state.State, error) {
	keys, uid := stateOf(object), string(object.GetUID())
	var recorded *state.Witness
	if record != nil {
		recorded = &state.Witness{}
		recorded.Stamp, recorded.Values = build.ReadStateRecord(record, keys)
	}
	values := ValuesOf(object)
	shown := state.Witness{Stamp: object.GetAnnotations()[dmv1.AnnotationState], Values: values}
	if recorded != nil && !maps.Equal(values, recorded.Values) {
		shown.Predecessor = byPredecessor(object, values, recorded.Values)
	}
	s, err := state.Judge(uid, shown, recorded)
	switch {
	case errors.Is(err, state.ErrDiffer):
		return s, stateConflict(object, err.Error(), "remove the annotation "+dmv1.AnnotationState+" if the record is right, or delete the record if the annotations are; the admission policy of records refuses that while it is bound")
	case err != nil:
		return s, stateConflict(object, err.Error(), "replace the object by a manifest without annotations, then put them back from a copy of the object, with "+dmv1.AnnotationState+", or delete it")
	case s.Sequence > 0:
		return s, nil
	}
	if _, is := object.(*dmv1.DMBackup); !is && object.GetAnnotations()[dmv1.AnnotationState] != "" {
		values = nil
	}
	adopted, err := adopts(object, values)
	if err != nil || !adopted {
		return s, err
	}
	return s.With(values), nil
}

// adopts reports whether annotations without a stamp are the object's own. It fails if something
// was decided about the object, and they are not that. A status that names another object came with
// it from a backup: it says nothing of this one.
func adopts(object client.Object, values map[string]string) (bool, error) {
	switch object := object.(type) {
	case *dmv1.DMIndex:
		uid, shown := string(object.UID), object.Status.Identity
		if !grant.Of(shown, uid) {
			return false, nil
		}
		annotated := uid
		if n := values[dmv1.AnnotationIndexIncarnation]; n != "" {
			annotated += "/" + n
		}
		older := len(values) == 0 || grant.Incarnation(annotated, uid) < grant.Incarnation(shown, uid)
		if older && object.Status.Map != nil {
			return false, stateConflict(object, "the index was made as "+shown+", and neither its annotations nor the record say so", "put back the annotations from a copy of the object, or delete it and load a backup into another one")
		}
		return !older, nil
	case *dmv1.DMMemoryPool:
		return len(object.Status.Conditions) > 0 && len(values) > 0, nil
	case *dmv1.DMComputePool:
		return len(object.Status.Conditions) > 0 && len(values) > 0, nil
	case *dmv1.DMBackup:
		// One that is made with a result is complete at once (docs/design/backup.md).
		result, err := BackupResult(object)
		return result != nil, err
	}
	return false, nil
}

// Keeper is a kube.Writer that keeps decisions in both places. Its Client and its Live have to
// read as Reader does.
type Keeper struct{ kube.Writer }

// Keep gives an object the annotations that are in force, here and at the API server, and
// restores its record. It comes before everything that follows from them.
func (k *Keeper) Keep(ctx context.Context, object client.Object) error {
	record, err := readRecord(ctx, k.Live, object)
	if err != nil {
		return err
	}
	s, err := stateInForce(object, record)
	if err != nil {
		return err
	}
	return k.writeState(ctx, object, record, s)
}

// Annotate sets annotations (empty values remove them), unless the object changed since it was
// read: then it fails with a conflict, and whoever decided decides again. Of annotations that are
// state the record is written as well. So it fails while the record of what was decided before is
// not there: perhaps it cannot be made. Pools do without (goesOn).
func (k *Keeper) Annotate(ctx context.Context, object client.Object, values map[string]string) error {
	isState, changes := false, false
	for _, key := range stateOf(object) {
		value, is := values[key]
		isState, changes = isState || is, changes || is && value != object.GetAnnotations()[key]
	}
	switch {
	case !isState:
		return k.Writer.Annotate(ctx, object, values)
	case !changes:
		return nil
	}
	record, err := readRecord(ctx, k.Live, object)
	if err != nil {
		return err
	}
	_, views := values[dmv1.AnnotationVolumes] // cannot be found out from anything else
	goesOn := goesOn(object) && !views
	s, err := stateInForce(object, record)
	switch {
	case err != nil:
		return err
	case record == nil && s.Sequence > 0 && !goesOn:
		return outcome.WaitFor(dmv1.ReasonFailed, "nothing more is decided about "+object.GetName()+" before its record "+build.StateRecordName(object.GetUID())+" is made again", outcome.RequeueSoon)
	case !maps.Equal(s.Values, ValuesOf(object)):
		return apierrors.NewConflict(dmv1.GroupVersion.WithResource("").GroupResource(), object.GetName(), errors.New("more was decided about it meanwhile"))
	}
	err = k.writeState(ctx, object, record, s.With(values))
	if goesOn && errors.Is(err, ErrNoRecord) {
		return nil // Keep tells
	}
	return err
}

// goesOn reports whether more is decided about an object while its record cannot be made: about
// pools, whose servers are to be replaced and whose certificates are to be renewed. Should the
// object be replaced meanwhile, what pools need is found out from others: which numbers of memory
// pods were given out from the pods, from the indexes that were made on them and from incarnations,
// and those of compute pods from the bound in the index (computepool/ids.go). Views of volumes are
// an exception: two processes would answer for one.
func goesOn(object client.Object) bool {
	switch object.(type) {
	case *dmv1.DMMemoryPool, *dmv1.DMComputePool:
		return true
	}
	return false
}

// ErrNoRecord is returned when there is no record, and the API server refuses to make one: a quota
// of the namespace, or an admission policy.
var ErrNoRecord = errors.New("the record of what was decided cannot be made: raise the quota of ConfigMaps, or let the operator's user pass the admission policy")

// writeState writes what is behind: first the object, then the record, and each only if it is as it
// was read.
func (k *Keeper) writeState(ctx context.Context, object client.Object, record *corev1.ConfigMap, s state.State) error {
	if s.ObjectBehind {
		if err := k.writeAnnotations(ctx, object, s); err != nil {
			return fmt.Errorf("write down the state of %s: %w", object.GetName(), err)
		}
	}
	takeState(object, s)
	if s.Sequence == 0 || !s.RecordBehind && metav1.IsControlledBy(record, object) && record.Labels[dmv1.LabelComponent] == dmv1.ComponentState {
		return nil
	}
	if err := k.writeRecord(ctx, object, record, s); err != nil {
		return fmt.Errorf("write the record of %s: %w", object.GetName(), err)
	}
	return nil
}

// writeAnnotations writes all of the state, whatever the object has of it at the API server.
func (k *Keeper) writeAnnotations(ctx context.Context, object client.Object, s state.State) error {
	annotations := map[string]any{dmv1.AnnotationState: state.Stamp(string(object.GetUID()), s.Sequence, s.Values)}
	for _, key := range stateOf(object) {
		annotations[key] = nil
		if value, is := s.Values[key]; is {
			annotations[key] = value
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": object.GetResourceVersion(), "annotations": annotations,
	}})
	if err != nil {
		return err
	}
	return k.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), stateOwner)
}

func (k *Keeper) writeRecord(ctx context.Context, object client.Object, record *corev1.ConfigMap, s state.State) error {
	uid := object.GetUID()
	desired := build.StateRecord(kube.KindOf(object).Kind, object.GetName(), object.GetNamespace(), uid, state.Stamp(string(uid), s.Sequence, s.Values), s.Values)
	if err := ctrl.SetControllerReference(object, desired, k.Scheme()); err != nil {
		return err
	}
	if record == nil {
		err := k.Create(ctx, desired, kube.Owner)
		switch {
		case apierrors.IsAlreadyExists(err): // another operator was faster
			err = apierrors.NewConflict(corev1.Resource("configmaps"), desired.Name, err)
		case err != nil && kube.Refused(err):
			err = fmt.Errorf("%w: %w", ErrNoRecord, err)
		}
		return err
	}
	changed := record.DeepCopy()
	changed.Labels, changed.Annotations, changed.OwnerReferences = desired.Labels, desired.Annotations, desired.OwnerReferences
	changed.Data, changed.BinaryData = desired.Data, nil
	return k.Patch(ctx, changed, client.MergeFromWithOptions(record, client.MergeFromWithOptimisticLock{}), kube.Owner)
}

// takeState gives an object in memory the annotations that are in force. While the API server has
// others it has no stamp.
func takeState(object client.Object, s state.State) {
	annotations := maps.Clone(object.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	before := ValuesOf(object)
	for _, key := range stateOf(object) {
		delete(annotations, key)
	}
	maps.Copy(annotations, s.Values)
	if !maps.Equal(before, s.Values) {
		delete(annotations, dmv1.AnnotationState)
	}
	object.SetAnnotations(annotations)
}
