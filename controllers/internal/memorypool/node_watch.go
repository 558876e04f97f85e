package memorypool

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// nodeWatch hears at once of nodes that begin, or end, to take no new pods, and lets the memory
// pools that have pods there be looked at: a drain waits for what they hold to be moved. The API
// server sends cordoned nodes alone, of which there are few. Their states are not read from here:
// the look asks the API server (nodes).
//
// Without the right to watch nodes a cordon is seen by the next look, as long as they may be read.
type nodeWatch struct {
	cache  cache.Cache
	pods   client.Reader
	nodes  *nodes
	events chan<- event.TypedGenericEvent[*dmv1.DMMemoryPool] // to the queue of the reconciler
}

// CordonedNodes is what the manager's cache has of nodes: the names of those that are cordoned.
func CordonedNodes() cache.ByObject {
	return cache.ByObject{
		Field: fields.OneTermEqualSelector("spec.unschedulable", "true"),
		Transform: func(object any) (any, error) {
			if n, is := object.(*corev1.Node); is {
				return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion}}, nil
			}
			return object, nil
		},
	}
}

// Start implements manager.Runnable: it runs while this operator leads. It does not wait for the
// first list, which never comes without the right to it.
func (w *nodeWatch) Start(ctx context.Context) error {
	informer, err := w.cache.GetInformer(ctx, &corev1.Node{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch nodes: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { w.changed(ctx, object) },
		DeleteFunc: func(object any) { w.changed(ctx, object) }, // it takes pods again, or is gone
	})
	if err != nil {
		return fmt.Errorf("watch nodes: %w", err)
	}
	<-ctx.Done()
	return nil
}

// changed puts the pools with pods on a node into the queue. What was read of the node before is
// forgotten first, since the looks go by it.
func (w *nodeWatch) changed(ctx context.Context, object any) {
	if unknown, is := object.(toolscache.DeletedFinalStateUnknown); is {
		object = unknown.Obj
	}
	node, is := object.(*corev1.Node)
	if !is {
		return
	}
	w.nodes.forget(node.Name)
	pods := &corev1.PodList{}
	if w.pods.List(ctx, pods, client.MatchingLabels{dmv1.LabelComponent: dmv1.ComponentMemory}) != nil {
		return // the next look sees it
	}
	told := map[client.ObjectKey]bool{}
	for _, p := range pods.Items {
		key := client.ObjectKey{Namespace: p.Namespace, Name: p.Labels[dmv1.LabelPool]}
		if p.Spec.NodeName != node.Name || told[key] {
			continue
		}
		told[key] = true
		pool := &dmv1.DMMemoryPool{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		select {
		case w.events <- event.TypedGenericEvent[*dmv1.DMMemoryPool]{Object: pool}:
		case <-ctx.Done():
			return
		}
	}
}
