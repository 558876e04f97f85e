package controllers

import (
	"context"
	"os"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
	"github.com/dmindex/dmindex/controllers/internal/report"
)

// gate reconciles objects of the namespaces that this operator looks after, and no others
// (namespaceLeases).
type gate struct {
	reconcile.Reconciler
	leases *namespaceLeases
	events report.Events
	reader client.Reader
	kind   client.Object // an empty one
}

// gated is a reconciler of a kind that leaves alone what another operator looks after.
func gated(b *reconciler.Base, leases *namespaceLeases, r reconcile.Reconciler, kind client.Object) reconcile.Reconciler {
	if leases == nil {
		return r
	}
	return &gate{r, leases, b.Events, b.Client, kind}
}

// Reconcile implements reconcile.Reconciler.
func (g *gate) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	other := g.leases.holder(ctx, request.Namespace)
	if other == "" {
		return g.Reconciler.Reconcile(ctx, request)
	}
	object := g.kind.DeepCopyObject().(client.Object)
	name := reflect.TypeOf(g.kind).String() + request.Name
	if g.leases.tells(request.Namespace, name) && g.reader.Get(ctx, request.NamespacedName, object) == nil {
		g.events.Eventf(object, nil, corev1.EventTypeWarning, dmv1.ReasonOtherRelease, "Reconcile", "%s", g.leases.refusal(request.Namespace, other))
	}
	return ctrl.Result{RequeueAfter: outcome.Recheck}, nil
}

// mostTold is how many objects of a namespace are remembered that an event was written about.
const mostTold = 1000

// tells reports whether an event about another holder is to be written about an object.
func (l *namespaceLeases) tells(namespace, object string) bool {
	l.mu.Lock()
	h := l.all[namespace]
	l.mu.Unlock()
	if h == nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := l.now()
	if at, told := h.told[object]; told && now.Sub(at) < leaseToldAgain {
		return false
	}
	if len(h.told) >= mostTold {
		clear(h.told)
	}
	h.told[object] = now
	return true
}

// ownName is how this operator calls itself in Leases (Options.Holder): its namespace and its
// release, or the host of one that runs in no pod.
func ownName() string {
	if namespace := os.Getenv(envNamespace); namespace != "" {
		return namespace + "/" + os.Getenv(envRelease)
	}
	host, err := os.Hostname()
	if err != nil {
		return ""
	}
	return "on host " + host
}
