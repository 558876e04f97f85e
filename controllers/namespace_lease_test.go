package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/index"
	"github.com/dmindex/dmindex/controllers/internal/memorypool"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
)

// operatorsOf are operators by their names, of one API server, with one clock.
type operatorsOf struct {
	t       *testing.T
	api     client.WithWatch
	passed  time.Duration
	failing error // of all that is asked about Leases
}

func newOperatorsOf(t *testing.T) *operatorsOf {
	scheme, err := NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	o := &operatorsOf{t: t}
	index := &dmv1.DMIndex{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "demo"}}
	o.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(index).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if _, is := object.(*coordinationv1.Lease); is && o.failing != nil {
				return o.failing
			}
			return c.Get(ctx, key, object, options...)
		},
	}).Build()
	return o
}

func (o *operatorsOf) operator(name string) *namespaceLeases {
	begun := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return newNamespaceLeases(name, o.api, o.api, func() time.Time { return begun.Add(o.passed) })
}

// pass lets time pass, in which these operators run.
func (o *operatorsOf) pass(while time.Duration, running ...*namespaceLeases) {
	for end := o.passed + while; o.passed < end; {
		o.passed += leaseRenew
		for _, l := range running {
			l.holder(o.t.Context(), "shop")
			l.renew(o.t.Context())
		}
	}
}

func (o *operatorsOf) works(what string, l *namespaceLeases, other string) {
	o.t.Helper()
	if got := l.holder(o.t.Context(), "shop"); got != other {
		o.t.Errorf("%s: %q looks after the namespace, want %q (empty = %s itself)", what, got, other, l.self)
	}
}

// TestTwoReleases: of two operators that watch a namespace the first one works there, also after it
// was started anew, and the other one once the first is gone.
func TestTwoReleases(t *testing.T) {
	o := newOperatorsOf(t)
	first, second := o.operator("dmindex-system/dmindex"), o.operator("bank/two")
	o.works("the first", first, "")
	o.works("the second", second, first.self)
	o.pass(10*leaseSeconds*time.Second, first, second)
	o.works("the first goes on", first, "")
	o.works("the second goes on", second, first.self)

	again := o.operator(first.self)
	o.works("the first is started anew", again, "")
	o.works("it is another release of its namespace, after an upgrade", o.operator("dmindex-system/renamed"), "")

	o.pass(leaseSeconds*time.Second/2, second)
	o.works("the first is away for a while", second, "dmindex-system/renamed")
	o.pass(leaseSeconds*time.Second, second)
	o.works("the first is gone", second, "")
	o.pass(leaseRenew, again, second)
	o.works("the first is back", again, second.self)
	o.works("the second had it by then", second, "")

	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: namespaceLease}}
	if err := o.api.Delete(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	o.pass(leaseRenew, again, second)
	o.works("the Lease was deleted", again, "")
	o.works("the Lease was deleted", second, again.self)
}

// TestNoLeases: an operator that cannot see Leases works, as one that never knew of them, unless it
// has seen one of another operator.
func TestNoLeases(t *testing.T) {
	o := newOperatorsOf(t)
	first, second := o.operator("dmindex-system/dmindex"), o.operator("bank/two")
	o.failing = errors.New("forbidden")
	o.works("nothing was seen", first, "")
	o.failing = nil
	o.pass(leaseRenew, first)
	o.works("the second", second, first.self)
	o.failing = errors.New("the API server is away")
	o.pass(10*leaseSeconds*time.Second, first, second)
	o.works("the first goes on", first, "")
	o.works("the second goes on", second, first.self)
}

// TestUnusedNamespace: a namespace in which nothing is reconciled any more is left to others.
func TestUnusedNamespace(t *testing.T) {
	o := newOperatorsOf(t)
	first, second := o.operator("dmindex-system/dmindex"), o.operator("bank/two")
	o.works("the first", first, "")
	for range (leaseUnused + leaseSeconds*time.Second) / leaseRenew * 2 {
		o.passed += leaseRenew
		first.renew(t.Context())
		second.holder(t.Context(), "shop")
		second.renew(t.Context())
	}
	o.works("the second", second, "")
	if len(first.all) > 0 {
		t.Errorf("the first remembers %v", first.all)
	}
}

// TestGate: objects of a namespace that another operator looks after are not reconciled, and an
// event says so once, with both names and what to do.
func TestGate(t *testing.T) {
	o := newOperatorsOf(t)
	o.works("the first", o.operator("dmindex-system/dmindex"), "")
	reconciled := 0
	inner := reconcile.Func(func(context.Context, ctrl.Request) (ctrl.Result, error) { reconciled++; return ctrl.Result{}, nil })
	notes := &notedEvents{}
	g := &gate{inner, o.operator("bank/"), notes, o.api, &dmv1.DMIndex{}}
	for range 3 {
		if r, err := g.Reconcile(t.Context(), reconciler.Request("shop", "demo")); err != nil || r.RequeueAfter == 0 {
			t.Errorf("%v, %v: it is not looked at again", r, err)
		}
	}
	if want := "Warning OtherRelease demo: release dmindex of namespace dmindex-system looks after namespace shop, and the operator of namespace bank watches it as well, so that one leaves it alone: take shop out"; reconciled > 0 || len(notes.all) != 1 || !strings.HasPrefix(notes.all[0], want) {
		t.Errorf("reconciled %d times, said %q", reconciled, notes.all)
	}
	elected := make(chan struct{})
	close(elected)
	demo := dmv1.DMIndex{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "demo", Generation: 1}}
	shown := func(leases *namespaceLeases) int {
		cache := &lists{indexes: []dmv1.DMIndex{demo}}
		return testutil.CollectAndCount(&collector{reader: cache, elected: elected, indexes: index.New(reconciler.Base{Now: time.Now}, 0), memory: &memorypool.Reconciler{}, leases: leases}, "dmindex_index_generation")
	}
	if mine, others := shown(o.operator("bank/")), shown(g.leases); mine == 0 || others > 0 {
		t.Errorf("there are %d metrics of an index of this operator, and %d of another one's", mine, others)
	}
	o.passed += leaseToldAgain
	if _, err := g.Reconcile(t.Context(), reconciler.Request("shop", "demo")); err != nil || len(notes.all) != 2 {
		t.Errorf("%v, said %q", err, notes.all)
	}
	if _, err := g.Reconcile(t.Context(), reconciler.Request("bank", "other")); err != nil || reconciled != 1 {
		t.Errorf("%v: in a namespace of its own it reconciled %d times", err, reconciled)
	}
}

// notedEvents keeps events.
type notedEvents struct{ all []string }

func (n *notedEvents) Eventf(regarding, _ runtime.Object, kind, reason, _, note string, args ...any) {
	if kind != corev1.EventTypeWarning {
		kind = "not a warning"
	}
	n.all = append(n.all, kind+" "+reason+" "+regarding.(client.Object).GetName()+": "+fmt.Sprintf(note, args...))
}
