package memorypool

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// TestBudgetDuringMoves: between any two writes of a move the budget of a pool with data lets no
// pod be evicted that it counts: a pod which is not needed for the number would make room for one
// with data. An operator may die there.
func TestBudgetDuringMoves(t *testing.T) {
	var m *movingPool
	writes := 0
	look := func(err error) error {
		if m == nil || err != nil {
			return err
		}
		budget := &policyv1.PodDisruptionBudget{}
		if m.r.Get(t.Context(), m.pool, budget) != nil {
			return nil // it is not made yet
		}
		pods := &corev1.PodList{}
		if err := m.r.List(t.Context(), pods, client.MatchingLabels(budget.Spec.Selector.MatchLabels)); err != nil {
			t.Fatal(err)
		}
		counted := 0
		for _, p := range pods.Items {
			if p.Labels[dmv1.LabelReleased] == "" {
				counted++
			}
		}
		if writes++; counted > budget.Spec.MinAvailable.IntValue() {
			t.Errorf("after write %d the budget keeps %d of %d pods", writes, budget.Spec.MinAvailable.IntValue(), counted)
		}
		return nil
	}
	m = newMovingPool(t, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			return look(c.Create(ctx, o, options...))
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			return look(c.Patch(ctx, o, patch, options...))
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			return look(c.Apply(ctx, o, options...))
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			return look(c.Delete(ctx, o, options...))
		},
	})
	m.indexed()
	protect := func() {
		if err := m.r.protect(t.Context(), m.scope()); err != nil {
			t.Fatal(err)
		}
	}
	protect()
	m.ask("pool-0")
	for range 10 {
		protect()
		if _, err := m.look(); err != nil {
			t.Fatal(err)
		}
	}
	if got := m.state(); got != moved || writes < 10 {
		t.Errorf("%s after %d writes, want %s", got, writes, moved)
	}
	for _, copies := range []int32{2, 1} { // the second copy is named, and then it is not
		m.copies(copies)
		for range 10 {
			protect()
			if _, err := m.look(); err != nil {
				t.Fatal(err)
			}
		}
	}
	kept := m.scope().pods
	if len(kept) != 2 || kept[1].Annotations[dmv1.AnnotationKeptFor] != "demo" || kept[1].Labels[dmv1.LabelReleased] != "" {
		t.Errorf("the pod that has the volume is not kept: %v", kept[1].Annotations)
	}
}

// indexed makes an index that has memory in the pool.
func (m *movingPool) indexed() {
	m.t.Helper()
	index := &dmv1.DMIndex{ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: "ns", UID: "i", Annotations: map[string]string{dmv1.AnnotationMemory: `{"1":7,"2":8}`}}}
	index.Spec.MemoryPools = []dmv1.IndexMemoryPool{{Name: "p", Ref: &dmv1.LocalReference{Name: "pool"}}}
	if err := m.r.Create(m.t.Context(), index); err != nil {
		m.t.Fatal(err)
	}
}
