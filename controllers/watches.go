package controllers

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
)

// watches finds the objects that an event concerns.
type watches struct{ client.Reader }

func memoryPoolsOfIndex(_ context.Context, object client.Object) (requests []reconcile.Request) {
	index, ok := object.(*dmv1.DMIndex)
	if !ok {
		return nil
	}
	for _, p := range index.Spec.MemoryPools {
		requests = append(requests, reconciler.Request(index.Namespace, build.MemoryPoolOf(index, p)))
	}
	return requests
}

func computePoolsOfIndex(_ context.Context, object client.Object) (requests []reconcile.Request) {
	index, ok := object.(*dmv1.DMIndex)
	if !ok {
		return nil
	}
	for _, p := range index.Spec.ComputePools {
		requests = append(requests, reconciler.Request(index.Namespace, build.ComputePoolOf(index, p)))
	}
	return requests
}

// viaIndex is for objects that carry the name of their index: what concerns it concerns its pools.
func (w watches) viaIndex(pools handler.MapFunc) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
		name := object.GetLabels()[dmv1.LabelIndex]
		if name == "" {
			return nil
		}
		index := &dmv1.DMIndex{}
		if err := w.Get(ctx, types.NamespacedName{Namespace: object.GetNamespace(), Name: name}, index); err != nil {
			return nil
		}
		return pools(ctx, index)
	})
}

// computePoolsOfAuthority are the pools whose servers trust the authority of a memory pool, which
// is in a Secret.
func (w watches) computePoolsOfAuthority(ctx context.Context, object client.Object) (requests []reconcile.Request) {
	owner := metav1.GetControllerOf(object)
	if owner == nil || owner.Kind != dmv1.KindMemoryPool || object.GetName() != build.AuthorityName(owner.Name) {
		return nil
	}
	list := &dmv1.DMIndexList{}
	if w.List(ctx, list, client.InNamespace(object.GetNamespace())) != nil {
		return nil
	}
	for i := range list.Items {
		if build.UsesMemoryPool(&list.Items[i], owner.Name) {
			requests = append(requests, computePoolsOfIndex(ctx, &list.Items[i])...)
		}
	}
	return requests
}

// indexesOfPool are the indexes that name a pool.
func (w watches) indexesOfPool(ctx context.Context, object client.Object) []reconcile.Request {
	if pool, ok := object.(*dmv1.DMComputePool); ok {
		return []reconcile.Request{reconciler.Request(pool.Namespace, pool.Spec.IndexName)}
	}
	return w.indexesOfMemoryPool(ctx, object.GetNamespace(), object.GetName())
}

// indexesOfPod are the indexes that a pod serves.
func (w watches) indexesOfPod(ctx context.Context, object client.Object) []reconcile.Request {
	l := object.GetLabels()
	if l[dmv1.LabelComponent] == dmv1.ComponentCompute {
		return []reconcile.Request{reconciler.Request(object.GetNamespace(), l[dmv1.LabelIndex])}
	}
	return w.indexesOfMemoryPool(ctx, object.GetNamespace(), l[dmv1.LabelPool])
}

func (w watches) indexesOfMemoryPool(ctx context.Context, namespace, pool string) (requests []reconcile.Request) {
	list := &dmv1.DMIndexList{}
	if pool == "" || w.List(ctx, list, client.InNamespace(namespace)) != nil {
		return nil
	}
	for i := range list.Items {
		if build.UsesMemoryPool(&list.Items[i], pool) {
			requests = append(requests, reconciler.Request(namespace, list.Items[i].Name))
		}
	}
	return requests
}

// indexesFromBackup are the indexes that may wait for a backup.
func (w watches) indexesFromBackup(ctx context.Context, object client.Object) (requests []reconcile.Request) {
	list := &dmv1.DMIndexList{}
	if w.List(ctx, list, client.InNamespace(object.GetNamespace())) != nil {
		return nil
	}
	for i := range list.Items {
		from := list.Items[i].Spec.Recovery.FromBackup
		if from != nil && decision.Loading(&list.Items[i]) && (from.Name == object.GetName() || from.Schedule != "" && from.Schedule == object.GetLabels()[dmv1.LabelSchedule]) {
			requests = append(requests, reconciler.Request(object.GetNamespace(), list.Items[i].Name))
		}
	}
	return requests
}

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
