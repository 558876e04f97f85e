// Package controllers is the operator: it starts the reconcilers, each of which has a room of its
// own in internal, with what they are woken by, and shares the namespaces with other operators.
// Each reconciler gathers, decides with pure functions, then acts; everything it does can be
// repeated.
package controllers

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/backup"
	"github.com/dmindex/dmindex/controllers/internal/computepool"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/index"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/memorypool"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
	"github.com/dmindex/dmindex/controllers/internal/report"
	"github.com/dmindex/dmindex/controllers/internal/servers"
	"github.com/dmindex/dmindex/controllers/internal/user"
	"github.com/dmindex/dmindex/pkg/logs"
	"github.com/dmindex/dmindex/pkg/partition"
)

// Alphabetically, as everywhere:
//
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=create;get;list;patch;watch
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=create;delete;get;list;patch;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=create;delete;get;list;patch;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=create;get;list;patch;watch
// +kubebuilder:rbac:groups="",resources=services,verbs=create;get;list;patch;watch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,resourceNames=dmindex-operator,verbs=get;patch
// +kubebuilder:rbac:groups=dmindex.io,resources=dmcomputepools,verbs=create;get;list;patch;watch
// +kubebuilder:rbac:groups=dmindex.io,resources=dmcomputepools/finalizers,verbs=update
// +kubebuilder:rbac:groups=dmindex.io,resources=dmcomputepools/status,verbs=patch
// +kubebuilder:rbac:groups=dmindex.io,resources=dmindexes,verbs=get;list;patch;watch
// +kubebuilder:rbac:groups=dmindex.io,resources=dmindexes/finalizers,verbs=update
// +kubebuilder:rbac:groups=dmindex.io,resources=dmindexes/status,verbs=patch
// +kubebuilder:rbac:groups=dmindex.io,resources=dmmemorypools,verbs=create;get;list;patch;watch
// +kubebuilder:rbac:groups=dmindex.io,resources=dmmemorypools/finalizers,verbs=update
// +kubebuilder:rbac:groups=dmindex.io,resources=dmmemorypools/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=create;get;list;patch;watch
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=create;get;list;patch;watch

// A failed attempt is repeated after firstRetry, then after twice as long each time, up to
// slowestRetry: whoever made room, or mended what was in the way, does not wait longer for the
// operator to see it.
const (
	firstRetry   = 10 * time.Millisecond
	slowestRetry = time.Minute
)

// Options of the controllers.
type Options struct {
	// ServerImage is the image of servers whose index and pool name none. Required.
	ServerImage string

	// ServerImageRDMA is the image of servers of pools with transport RDMA whose index and pool
	// name none. Empty = there is none.
	ServerImageRDMA string

	// Pprof lets the servers of pods that are made serve profiles.
	Pprof bool

	// ClusterUserIDs leaves user and group ids out of pods that are made: the cluster gives them.
	ClusterUserIDs bool

	// NetworkPolicies is the namespace of the operator, if it is to make NetworkPolicies for the
	// pods of servers. Empty = it makes none, and needs no rights for them.
	NetworkPolicies string

	// Holder is how the operator calls itself in the Leases of the namespaces that it looks after:
	// its namespace, a slash, and its Helm release, which may be empty. Other operators leave these
	// namespaces alone. Empty = it makes no Leases, and looks at none.
	Holder string

	// ServerLogs is how the servers of pods that are made log. Empty = as their images do.
	ServerLogs logs.Config

	// Dialer reaches servers. Default: gRPC over mutual TLS.
	Dialer servers.Dialer

	// Now is the clock. Default: time.Now.
	Now func() time.Time

	// Settle is how long the compute servers that an index should have must have been the same
	// before its partition map changes because some join or leave. Default: partition.Settling.
	// Below 0 the map does not wait.
	Settle time.Duration

	// Concurrency is how many objects of a kind are worked on at once, and at most half of it in
	// one namespace. Default: 16. One whose servers begin to be silent keeps one of them busy for
	// some seconds, once (servers.Patient).
	Concurrency int

	// Metrics gets the metrics of indexes and memory pools. Default: nobody gets them.
	Metrics prometheus.Registerer

	// SharedProcess lets several managers run in one process, for tests: the names of controllers
	// need not be unique then.
	SharedProcess bool
}

// CacheOptions is what the manager's cache must be made with: of nodes it holds the cordoned ones,
// else only what the operator made, and above all not every Secret of the cluster. No namespaces =
// all.
func CacheOptions(namespaces []string) cache.Options {
	ours := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{dmv1.LabelManagedBy: dmv1.ManagedBy})}
	o := cache.Options{ByObject: map[client.Object]cache.ByObject{
		&batchv1.Job{}:                  ours,
		&corev1.ConfigMap{}:             ours,
		&corev1.Node{}:                  memorypool.CordonedNodes(),
		&corev1.PersistentVolumeClaim{}: ours,
		&corev1.Pod{}:                   ours,
		&corev1.Secret{}:                ours,
		&corev1.Service{}:               ours,
		&networkingv1.NetworkPolicy{}:   ours,
		&policyv1.PodDisruptionBudget{}: ours,
	}}
	if len(namespaces) > 0 {
		o.DefaultNamespaces = map[string]cache.Config{}
		for _, n := range namespaces {
			o.DefaultNamespaces[n] = cache.Config{}
		}
	}
	return o
}

// SetupWithManager adds the reconcilers of all kinds to a manager whose cache has CacheOptions.
func SetupWithManager(mgr ctrl.Manager, o Options) error {
	if o.Dialer == nil {
		o.Dialer = servers.NewGRPC()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Dialer = servers.NewPatient(o.Dialer)
	if o.Concurrency == 0 {
		o.Concurrency = 16
	}
	b := reconciler.Base{
		Keeper: decision.Keeper{Writer: kube.Writer{Client: decision.Client{Client: mgr.GetClient()}, Live: decision.Reader{Reader: mgr.GetAPIReader()}}},
		Dialer: o.Dialer, Image: o.ServerImage, ImageRDMA: o.ServerImageRDMA, Pprof: o.Pprof, ClusterUserIDs: o.ClusterUserIDs, NetworkPolicies: o.NetworkPolicies, Logs: o.ServerLogs, Now: o.Now,
		Spare: reconciler.NewSpareIDs(), Events: report.ShortNotes{Events: mgr.GetEventRecorder("dmindex-operator")}, Logged: report.NewLogged(), Figures: report.NewFigures(),
	}
	forIndexes := index.New(b, cmp.Or(o.Settle, partition.Settling))
	forMemory := memorypool.New(b)
	var leases *namespaceLeases // nil = without Leases
	if o.Holder != "" {
		leases = newNamespaceLeases(o.Holder, mgr.GetAPIReader(), mgr.GetClient(), time.Now)
	}
	if o.Metrics != nil {
		if err := o.Metrics.Register(&collector{reader: mgr.GetClient(), elected: mgr.Elected(), indexes: forIndexes, memory: forMemory, leases: leases}); err != nil {
			return err
		}
	}
	runnables := append(forMemory.Runnables(mgr), forIndexes.Runnables()...)
	if leases != nil {
		runnables = append(runnables, leases)
	}
	for _, runs := range runnables {
		if err := mgr.Add(runs); err != nil {
			return err
		}
	}
	options := func(limiter workqueue.TypedRateLimiter[reconcile.Request]) controller.Options {
		return controller.Options{MaxConcurrentReconciles: o.Concurrency, SkipNameValidation: &o.SharedProcess, RateLimiter: limiter}
	}
	w := watches{b.Client}
	memory := newFair(gated(&b, leases, forMemory, &dmv1.DMMemoryPool{}), o.Concurrency)
	compute := newFair(gated(&b, leases, &computepool.Reconciler{Base: b}, &dmv1.DMComputePool{}), o.Concurrency)
	indexes := newFair(gated(&b, leases, forIndexes, &dmv1.DMIndex{}), o.Concurrency)
	err := ctrl.NewControllerManagedBy(mgr).For(&dmv1.DMMemoryPool{}, reconciler.Changed(reconciler.Nothing[*dmv1.DMMemoryPool])).WithOptions(options(memory)).
		Owns(&corev1.Pod{}).Owns(&corev1.Service{}).Owns(&corev1.Secret{}).Owns(&policyv1.PodDisruptionBudget{}).Owns(&corev1.ConfigMap{}).Owns(&corev1.PersistentVolumeClaim{}).
		Watches(&dmv1.DMIndex{}, handler.EnqueueRequestsFromMapFunc(memoryPoolsOfIndex), reconciler.Changed(reconciler.Nothing[*dmv1.DMIndex])).
		Watches(&corev1.Secret{}, w.viaIndex(memoryPoolsOfIndex)).
		// of compute servers: see allOverTLS
		Watches(&corev1.Pod{}, w.viaIndex(memoryPoolsOfIndex), reconciler.ComeAndGo).
		WatchesRawSource(forMemory.Wakes()).
		Complete(memory)
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(mgr).For(&dmv1.DMComputePool{}, reconciler.Changed(reconciler.Nothing[*dmv1.DMComputePool])).WithOptions(options(compute)).
		Owns(&corev1.Pod{}).Owns(&corev1.Service{}).Owns(&corev1.Secret{}).Owns(&policyv1.PodDisruptionBudget{}).Owns(&corev1.ConfigMap{}).
		Watches(&dmv1.DMIndex{}, handler.EnqueueRequestsFromMapFunc(computePoolsOfIndex), reconciler.Changed(problemsOf)).
		Watches(&corev1.ConfigMap{}, w.viaIndex(computePoolsOfIndex)).
		Watches(&corev1.Secret{}, w.viaIndex(computePoolsOfIndex)).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(w.computePoolsOfAuthority)).
		Complete(compute)
	if err != nil {
		return err
	}
	alone := func() controller.Options {
		return options(workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, slowestRetry))
	}
	gate := func(r reconcile.Reconciler, kind client.Object) reconcile.Reconciler {
		return gated(&b, leases, r, kind)
	}
	if err := backup.Setup(mgr, b, gate, alone); err != nil {
		return err
	}
	if err := user.Setup(mgr, b, gate, alone()); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).For(&dmv1.DMIndex{}, reconciler.Changed(reconciler.Nothing[*dmv1.DMIndex])).WithOptions(options(indexes)).
		Owns(&dmv1.DMMemoryPool{}, reconciler.Changed(stateOfMemoryPool)).Owns(&dmv1.DMComputePool{}, reconciler.Changed(stateOfComputePool)).
		Owns(&corev1.Service{}).Owns(&corev1.Secret{}).Owns(&corev1.ConfigMap{}).Owns(&batchv1.Job{}).
		Watches(&dmv1.DMBackup{}, handler.EnqueueRequestsFromMapFunc(w.indexesFromBackup)).
		Watches(&dmv1.DMMemoryPool{}, handler.EnqueueRequestsFromMapFunc(w.indexesOfPool), reconciler.Changed(stateOfMemoryPool)).
		Watches(&dmv1.DMComputePool{}, handler.EnqueueRequestsFromMapFunc(w.indexesOfPool), reconciler.Changed(stateOfComputePool)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(w.indexesOfPod)).
		WatchesRawSource(forIndexes.Wakes()).
		Complete(indexes)
}
