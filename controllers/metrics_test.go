package controllers

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/index"
	"github.com/dmindex/dmindex/controllers/internal/memorypool"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
)

// lists is a cache with these objects.
type lists struct {
	client.Reader
	indexes []dmv1.DMIndex
	pools   []dmv1.DMMemoryPool
	err     error
}

func (l *lists) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *dmv1.DMIndexList:
		list.Items = l.indexes
	case *dmv1.DMMemoryPoolList:
		list.Items = l.pools
	}
	return l.err
}

// TestMetrics: what the objects say is shown by the operator that leads, and by no other one;
// nothing of an object that is gone.
func TestMetrics(t *testing.T) {
	elected := make(chan struct{})
	cache := &lists{indexes: []dmv1.DMIndex{{ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: "shop", Generation: 4}}}}
	m := &collector{reader: cache, elected: elected, indexes: index.New(reconciler.Base{Now: time.Now}, 0), memory: &memorypool.Reconciler{}}
	f := func(when, want string) {
		t.Helper()
		if err := testutil.CollectAndCompare(m, strings.NewReader(want)); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	const leads, waits = `# HELP dmindex_operator_leading 1 of the operator that leads, 0 of those that wait. Only the one that leads shows indexes and memory pools.
# TYPE dmindex_operator_leading gauge
dmindex_operator_leading 1
`, `# HELP dmindex_operator_leading 1 of the operator that leads, 0 of those that wait. Only the one that leads shows indexes and memory pools.
# TYPE dmindex_operator_leading gauge
dmindex_operator_leading 0
`
	f("another one leads", waits)
	close(elected)
	f("it leads", leads+`# HELP dmindex_index_generation Generation of the spec: the newest, and the newest that the index was made to be.
# TYPE dmindex_index_generation gauge
dmindex_index_generation{index="demo",namespace="shop",of="observed"} 0
dmindex_index_generation{index="demo",namespace="shop",of="spec"} 4
`)
	cache.indexes = nil
	f("the index is gone", leads)
	cache.err = errors.New("no cache")
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	if _, err := registry.Gather(); err == nil || !strings.Contains(err.Error(), "no cache") {
		t.Errorf("a cache that cannot be read: %v", err)
	}
}
