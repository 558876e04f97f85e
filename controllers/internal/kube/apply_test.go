package kube

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// TestPoolWithoutOwner: nobody is told to delete a memory pool that lost its owner.
func TestPoolWithoutOwner(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := dmv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	index := &dmv1.DMIndex{ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: "ns", UID: "u"}}
	pool := &dmv1.DMMemoryPool{ObjectMeta: metav1.ObjectMeta{Name: "demo-memory", Namespace: "ns"}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(pool).Build()
	err := (&Writer{Client: c, Live: c}).Apply(t.Context(), index, pool)
	if !errors.Is(err, ErrNameTaken) || !strings.Contains(err.Error(), "do not delete it") || !strings.Contains(err.Error(), "uid: u") {
		t.Error(err)
	}
}

func TestWithin(t *testing.T) {
	type m = map[string]any
	type l = []any
	f := func(name string, wanted, live any, want bool) {
		t.Helper()
		if got := within(wanted, live); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	f("equal", m{"a": "1"}, m{"a": "1"}, true)
	f("defaulted", m{"a": "1"}, m{"a": "1", "b": "2"}, true)
	f("changed", m{"a": "1"}, m{"a": "2"}, false)
	f("missing", m{"a": "1"}, m{}, false)
	f("zero is a value", m{"a": int64(0)}, m{"a": int64(1)}, false)
	f("empty and not there", m{"a": m{}, "b": l{}}, m{}, true)
	f("list with defaults", l{m{"a": "1"}}, l{m{"a": "1", "b": "2"}}, true)
	f("longer list", l{m{"a": "1"}}, l{m{"a": "1"}, m{"a": "2"}}, false)
	f("other kind", m{"a": m{"b": "1"}}, m{"a": "x"}, false)
}
