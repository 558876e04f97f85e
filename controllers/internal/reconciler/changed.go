package reconciler

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Statuses are written by the reconcilers themselves, with figures that change as long as an index
// is used. If such a write woke the one who made it, or another one whose status follows from it,
// they would write as fast as they can. So an object whose status alone changed wakes nobody,
// unless the part changed that is acted upon.

// Changed lets those updates through that change more of an object than its status, or what matters
// of it.
func Changed[T client.Object](matters func(T) any) builder.Predicates {
	return builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		if !sameButStatus(e.ObjectOld, e.ObjectNew) {
			return true
		}
		before, ok := e.ObjectOld.(T)
		after, ok2 := e.ObjectNew.(T)
		return !ok || !ok2 || !equality.Semantic.DeepEqual(matters(before), matters(after))
	}})
}

// ComeAndGo lets no updates through.
var ComeAndGo = builder.WithPredicates(predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }})

// sameButStatus reports whether two versions of an object differ in nothing but the status. The
// generation counts the specifications.
func sameButStatus(a, b client.Object) bool {
	return a.GetUID() == b.GetUID() && a.GetGeneration() == b.GetGeneration() &&
		a.GetDeletionTimestamp().Equal(b.GetDeletionTimestamp()) &&
		maps.Equal(a.GetLabels(), b.GetLabels()) && maps.Equal(a.GetAnnotations(), b.GetAnnotations()) &&
		slices.Equal(a.GetFinalizers(), b.GetFinalizers()) && equality.Semantic.DeepEqual(a.GetOwnerReferences(), b.GetOwnerReferences())
}

// Nothing of the status matters to the object's own reconciler, and to pools of an index's memory.
func Nothing[T client.Object](T) any { return nil }

// Request asks for the reconciliation of an object.
func Request(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}
