package envtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers"
	"github.com/dmindex/dmindex/controllers/internal/serverstest"
)

// cluster is a namespace of the API server with servers and an operator of its own. A goroutine
// plays the kubelet.
type cluster struct {
	t         *testing.T
	namespace string
	fleet     *serverstest.Fleet
	startable atomic.Bool // new pods become ready
	operator  *operator
	now       func() time.Time // of operators that are started; nil = the real time
	policies  string           // their namespace, if they make NetworkPolicies
	holder    string           // of Leases; see controllers.Options
}

// operator is one run of the operator.
type operator struct {
	stop   context.CancelFunc
	done   chan struct{}
	writes atomic.Int64
	events atomic.Int64 // that were written; they are not among writes
	limit  atomic.Int64 // writes that it may make before it is cut off; 0 = any number

	mu   sync.Mutex
	log  []string // of the writes
	told []string // the events

	lines   lines // of its log
	metrics *prometheus.Registry
}

var namespaces atomic.Int64 // and other names, so that each is used once, however often a test runs

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, namespace: fmt.Sprintf("test-%d", namespaces.Add(1)), fleet: serverstest.New()}
	c.startable.Store(true)
	if err := api.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}); err != nil {
		t.Fatal(err)
	}
	go c.kubelet(t.Context())
	t.Cleanup(func() {
		if c.operator != nil {
			c.stop()
		}
	})
	return c
}

// operatorUser is who the operator is to the API server, and to the admission policies.
const operatorUser = "system:serviceaccount:dmindex-system:dmindex"

var errCutOff = errors.New("the operator is cut off")

// transport counts what is written, and cuts off.
type transport struct {
	o    *operator
	next http.RoundTripper
}

func (tr transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/events") {
		tr.o.events.Add(1)
		tr.o.noted(r)
	} else if r.Method != http.MethodGet {
		n := tr.o.writes.Add(1)
		tr.o.mu.Lock()
		tr.o.log = append(tr.o.log, r.Method+" "+r.URL.Path)
		tr.o.mu.Unlock()
		if limit := tr.o.limit.Load(); limit > 0 && n > limit {
			return nil, errCutOff
		}
	}
	return tr.next.RoundTrip(r)
}

// noted keeps what an event says.
func (o *operator) noted(r *http.Request) {
	text := r.Method + " " + r.URL.Path
	if r.GetBody != nil {
		if body, err := r.GetBody(); err == nil {
			b, _ := io.ReadAll(body)
			text += " " + string(b)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.told = append(o.told, text)
}

// said is the events behind the first n.
func (o *operator) said(n int64) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.told[n:], "\n")
}

// start runs an operator that may make limit writes; 0 = any number.
func (c *cluster) start(limit int64) {
	c.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	o := &operator{stop: stop, done: make(chan struct{}), metrics: prometheus.NewPedanticRegistry()}
	o.limit.Store(limit)
	mine := rest.CopyConfig(config)
	mine.QPS = -1
	mine.Impersonate = rest.ImpersonationConfig{UserName: operatorUser, Groups: []string{"system:masters"}}
	mine.Wrap(func(next http.RoundTripper) http.RoundTripper { return transport{o, next} })
	mgr, err := ctrl.NewManager(mine, ctrl.Options{
		Scheme:  scheme.Scheme,
		Cache:   controllers.CacheOptions([]string{c.namespace}),
		Metrics: metricsserver.Options{BindAddress: "0"},
		Logger:  logr.FromSlogHandler(slog.NewJSONHandler(io.MultiWriter(&o.lines, logTo), nil)),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	err = controllers.SetupWithManager(mgr, controllers.Options{
		ServerImage: "server:1", ServerImageRDMA: "rdma:1", Dialer: c.fleet, SharedProcess: true, Now: c.now, Metrics: o.metrics, NetworkPolicies: c.policies, Holder: c.holder,
		Settle: -1, // pkg/partition tests the wait
	})
	if err != nil {
		c.t.Fatal(err)
	}
	go func() {
		defer close(o.done)
		if err := mgr.Start(ctx); err != nil {
			fmt.Println("operator:", err)
		}
	}()
	c.operator = o
}

// wrote are the writes from the n-th on.
func (o *operator) wrote(n int64) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.log[max(0, min(int(n), len(o.log))):], "\n")
}

func (c *cluster) stop() {
	c.operator.stop()
	<-c.operator.done
	c.operator = nil
}

// kubelet makes new pods ready, unless their servers cannot start, and compute servers follow the
// newest map in the index's status.
func (c *cluster) kubelet(ctx context.Context) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		pods := &corev1.PodList{}
		if err := api.List(ctx, pods, client.InNamespace(c.namespace)); err != nil {
			continue
		}
		indexes := &dmv1.DMIndexList{}
		if err := api.List(ctx, indexes, client.InNamespace(c.namespace)); err != nil {
			continue
		}
		for i := range pods.Items {
			p := &pods.Items[i]
			for _, index := range indexes.Items {
				if p.Labels[dmv1.LabelIndex] == index.Name && index.Status.Map != nil {
					c.fleet.Follow(string(p.UID), uint64(index.Status.Map.Generation))
				}
			}
			if p.Labels[dmv1.LabelComponent] == dmv1.ComponentProbe {
				if !strings.HasPrefix(p.Spec.Containers[0].Image, "typo") && len(p.Status.ContainerStatuses) == 0 {
					ended := corev1.ContainerStatus{Name: dmv1.ComponentProbe, Image: p.Spec.Containers[0].Image}
					ended.State.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed"}
					p.Status.Phase, p.Status.ContainerStatuses = corev1.PodSucceeded, []corev1.ContainerStatus{ended}
					_ = api.Status().Update(ctx, p) // a conflict is tried again at the next tick
				}
				continue
			}
			is := corev1.ConditionTrue
			if c.fleet.Problem(c.namespace, p.Name) != "" {
				is = corev1.ConditionFalse
			}
			// a container that restarts in place is ready again a second later
			restarted, _ := time.Parse(time.RFC3339, p.Annotations["dmindex.io/restarted"])
			settled := p.Status.PodIP != "" && p.Status.Conditions[0].Status == is &&
				(p.Status.Conditions[0].LastTransitionTime.After(restarted) || time.Since(restarted) < time.Second)
			if settled || p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded || p.DeletionTimestamp != nil || !c.startable.Load() {
				continue
			}
			if !c.mounted(ctx, p) {
				continue
			}
			if p.Labels[dmv1.LabelComponent] == dmv1.ComponentCompute {
				c.fleet.Serve(string(p.UID), p.Annotations[dmv1.AnnotationIdentity])
			}
			p.Status.Phase = corev1.PodRunning
			p.Status.PodIP = fmt.Sprintf("10.0.%d.%d", n/250%250, n%250+1)
			p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: is, LastTransitionTime: metav1.Now()}}
			_ = api.Status().Update(ctx, p) // a conflict is tried again at the next tick
		}
	}
}

// create makes an object of the tests' texts in the namespace.
func (c *cluster) create(text, name string) client.Object {
	c.t.Helper()
	object := parse(c.t, text, name)
	object.SetNamespace(c.namespace)
	if err := api.Create(c.t.Context(), object); err != nil {
		c.t.Fatal(err)
	}
	return object
}

func (c *cluster) get(name string, object client.Object) error {
	return api.Get(c.t.Context(), types.NamespacedName{Namespace: c.namespace, Name: name}, object)
}

func (c *cluster) index(name string) *dmv1.DMIndex {
	c.t.Helper()
	index := &dmv1.DMIndex{}
	if err := c.get(name, index); err != nil {
		c.t.Fatal(err)
	}
	return index
}

// patch changes an object until it is not disturbed in it.
func (c *cluster) patch(name string, object client.Object, change func()) {
	c.t.Helper()
	c.eventually("change "+name, func() string {
		if err := c.get(name, object); err != nil {
			return err.Error()
		}
		change()
		if err := api.Update(c.t.Context(), object); err != nil {
			return err.Error()
		}
		return ""
	})
}

// pods are the names of a pool's pods.
func (c *cluster) pods(pool string) (names []string) {
	c.t.Helper()
	list := &corev1.PodList{}
	if err := api.List(c.t.Context(), list, client.InNamespace(c.namespace), client.MatchingLabels{dmv1.LabelPool: pool}); err != nil {
		c.t.Fatal(err)
	}
	for _, p := range list.Items {
		if p.Labels[dmv1.LabelComponent] != dmv1.ComponentProbe {
			names = append(names, p.Name)
		}
	}
	return names
}

func (c *cluster) pod(name string) *corev1.Pod {
	c.t.Helper()
	p := &corev1.Pod{}
	if err := c.get(name, p); err != nil {
		c.t.Fatal(err)
	}
	return p
}

func (c *cluster) deletePod(name string) {
	c.t.Helper()
	if err := api.Delete(c.t.Context(), c.pod(name), client.GracePeriodSeconds(0)); err != nil {
		c.t.Fatal(err)
	}
}

// podStatus changes what a pod's status says, as its kubelet does, until it is not disturbed in it.
func (c *cluster) podStatus(name string, change func(*corev1.PodStatus)) {
	c.t.Helper()
	c.eventually("change the status of "+name, func() string {
		p := c.pod(name)
		change(&p.Status)
		if err := api.Status().Update(c.t.Context(), p); err != nil {
			return err.Error()
		}
		return ""
	})
}

// condition waits for a condition, with a reason unless that is empty, and a message that contains
// something.
func (c *cluster) condition(name, kind string, status metav1.ConditionStatus, reason, message string) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("%s of %s %s %s %q", kind, name, status, reason, message), func() string {
		has := []string{"it has:"}
		for _, cond := range c.index(name).Status.Conditions {
			if cond.Type == kind && cond.Status == status && (reason == "" || cond.Reason == reason) && strings.Contains(cond.Message, message) {
				return ""
			}
			has = append(has, fmt.Sprintf("%s=%s %s: %s", cond.Type, cond.Status, cond.Reason, cond.Message))
		}
		return strings.Join(has, "\n")
	})
}

func (c *cluster) available(name string) {
	c.t.Helper()
	c.condition(name, dmv1.ConditionAvailable, metav1.ConditionTrue, dmv1.ReasonServing, "")
}

// look is how long eventually waits between two looks.
const look = 50 * time.Millisecond

// eventually waits until problem is empty.
func (c *cluster) eventually(what string, problem func() string) {
	c.t.Helper()
	const limit = 2 * time.Minute
	last := ""
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		if last = problem(); last == "" {
			return
		}
		select {
		case <-deadline.C:
			c.t.Fatalf("%s: not within %v:\n%s\ncalls: %v", what, limit, last, c.fleet.Changes())
		case <-tick.C:
		}
	}
}

// equal waits until two renderings are equal.
func (c *cluster) equal(what string, want any, got func() any) {
	c.t.Helper()
	c.eventually(what, func() string {
		if g := fmt.Sprint(got()); g != fmt.Sprint(want) {
			return fmt.Sprintf("got %v, want %v", g, want)
		}
		return ""
	})
}

// gone waits until an object is not there any more.
func (c *cluster) gone(name string, object client.Object) {
	c.t.Helper()
	c.eventually(name+" gone", func() string {
		if err := c.get(name, object); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("it is there (%v)", err)
		}
		return ""
	})
}

// owners are the owners of the ranges of an index's map, in key order.
func (c *cluster) owners(name string) any {
	var owners []string
	if m := c.index(name).Status.Map; m != nil {
		for _, r := range m.Ranges {
			owners = append(owners, r.Owner)
		}
	}
	return owners
}
