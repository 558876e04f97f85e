package controllers

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// Statuses are written by the reconcilers themselves, with figures that change as long as an index
// is used. If such a write woke the one who made it, or another one whose status follows from it,
// they would write as fast as they can. So an object whose status alone changed wakes nobody,
// unless the part changed that is acted upon.

// changed lets those updates through that change more of an object than its status, or what matters
// of it.
func changed[T client.Object](matters func(T) any) builder.Predicates {
	return builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		if !sameButStatus(e.ObjectOld, e.ObjectNew) {
			return true
		}
		before, ok := e.ObjectOld.(T)
		after, ok2 := e.ObjectNew.(T)
		return !ok || !ok2 || !equality.Semantic.DeepEqual(matters(before), matters(after))
	}})
}

// comeAndGo lets no updates through.
var comeAndGo = builder.WithPredicates(predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }})

// sameButStatus reports whether two versions of an object differ in nothing but the status. The
// generation counts the specifications.
func sameButStatus(a, b client.Object) bool {
	return a.GetUID() == b.GetUID() && a.GetGeneration() == b.GetGeneration() &&
		a.GetDeletionTimestamp().Equal(b.GetDeletionTimestamp()) &&
		maps.Equal(a.GetLabels(), b.GetLabels()) && maps.Equal(a.GetAnnotations(), b.GetAnnotations()) &&
		slices.Equal(a.GetFinalizers(), b.GetFinalizers()) && equality.Semantic.DeepEqual(a.GetOwnerReferences(), b.GetOwnerReferences())
}

// nothing of the status matters to the object's own reconciler, and to pools of an index's memory.
func nothing[T client.Object](T) any { return nil }

// problemsOf is what compute pools read of the status of their index.
func problemsOf(index *dmv1.DMIndex) any {
	problems := map[string]string{}
	for _, c := range index.Status.ComputeServers {
		if c.Problem != "" {
			problems[c.Pod] = c.Problem
		}
	}
	return problems
}

// poolState is the part of a pool's status that indexes read.
type poolState struct {
	Observed   int64
	Conditions []metav1.Condition
}

func stateOfMemoryPool(p *dmv1.DMMemoryPool) any {
	return poolState{p.Status.ObservedGeneration, p.Status.Conditions}
}

func stateOfComputePool(p *dmv1.DMComputePool) any {
	return poolState{p.Status.ObservedGeneration, p.Status.Conditions}
}
