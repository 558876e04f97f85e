package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// options are the flags that kubectl has, too.
type options struct {
	kubeconfig, context, namespace, as string
	system                             string // namespace of the operator
	all                                bool   // namespaces
}

func (o *options) flags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "path to the kubeconfig file; default: that of kubectl")
	f.StringVar(&o.context, "context", "", "context of the kubeconfig; default: the current one")
	f.StringVarP(&o.namespace, "namespace", "n", "", "namespace; default: that of the context")
	f.BoolVarP(&o.all, "all-namespaces", "A", false, "status and top without a name: of all namespaces")
	f.StringVar(&o.as, "as", "", "user to impersonate")
	f.StringVar(&o.system, "operator-namespace", "dmindex-system", "namespace of the operator")
}

// cluster is the namespace of a cluster, or all of them if it has no name.
type cluster struct {
	namespace string
	system    string // namespace of the operator
	objects   client.Client
	pods      kubernetes.Interface
}

func (o *options) connect() (*cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.context})
	c, err := loaded.ClientConfig()
	if err != nil {
		return nil, err
	}
	namespace := o.namespace
	if namespace == "" {
		if namespace, _, err = loaded.Namespace(); err != nil {
			return nil, err
		}
	}
	if o.all {
		namespace = metav1.NamespaceAll
	}
	c.Impersonate = rest.ImpersonationConfig{UserName: o.as}
	c.QPS, c.Burst = 100, 100
	return connect(c, namespace, o.system)
}

func connect(c *rest.Config, namespace, system string) (*cluster, error) {
	scheme := runtime.NewScheme()
	if err := dmv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	objects, err := client.New(c, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	pods, err := kubernetes.NewForConfig(c)
	return &cluster{namespace: namespace, system: system, objects: objects, pods: pods}, err
}

// view is what there is to see of an index.
type view struct {
	index  *dmv1.DMIndex
	memory []*dmv1.DMMemoryPool // its pools, as far as they are there
	asked  []asked              // its compute servers, as in its status
	events []corev1.Event       // the last ones about it and its memory pools, oldest first

	backups   []dmv1.DMBackup // of the index, the newest first
	schedules []dmv1.DMBackupSchedule

	leaderless string   // not empty: no operator leads
	notes      []string // what could not be seen

	digests bool // keys are not shown
}

// asked is what a compute server said; without keys, of which it gives digests.
type asked struct {
	dmv1.IndexComputeServer
	said *rpcv1.DescribeComputeReply // nil = it did not answer
	err  error                       // why not
}

// Bounds.
const (
	answerLimit  = 5 * time.Second // for a compute server
	askedAtOnce  = 16
	eventsShown  = 8
	eventsListed = 500
)

// errNoNamespace is returned when one index is asked for in all namespaces.
var errNoNamespace = errors.New("an index is of one namespace: name it with --namespace instead of --all-namespaces")

// gather looks at an index.
func (c *cluster) gather(ctx context.Context, name string) (*view, error) {
	v, err := c.readIndex(ctx, name)
	if err != nil {
		return nil, err
	}
	c.askServers(ctx, v)
	backups, schedules, err := c.listBackups(ctx)
	if err != nil {
		v.notes = append(v.notes, err.Error())
	}
	v.keepBackups(backups, schedules)
	if err := c.listEvents(ctx, v); err != nil {
		v.notes = append(v.notes, err.Error())
	}
	if v.leaderless, err = c.leaderless(ctx, time.Now()); err != nil {
		v.notes = append(v.notes, err.Error())
	}
	return v, nil
}

// readIndex reads an index and its memory pools.
func (c *cluster) readIndex(ctx context.Context, name string) (*view, error) {
	if c.namespace == metav1.NamespaceAll {
		return nil, errNoNamespace
	}
	v := &view{index: &dmv1.DMIndex{}}
	if err := c.objects.Get(ctx, types.NamespacedName{Namespace: c.namespace, Name: name}, v.index); err != nil {
		return nil, err
	}
	for _, p := range v.index.Spec.MemoryPools {
		pool, poolName := &dmv1.DMMemoryPool{}, v.index.Name+"-"+p.Name
		if p.Ref != nil {
			poolName = p.Ref.Name
		}
		switch err := c.objects.Get(ctx, types.NamespacedName{Namespace: c.namespace, Name: poolName}, pool); {
		case err == nil:
			v.memory = append(v.memory, pool)
		case !apierrors.IsNotFound(err):
			v.notes = append(v.notes, err.Error())
		}
	}
	return v, nil
}

// list reads the indexes of the namespace, or of all.
func (c *cluster) list(ctx context.Context) (*dmv1.DMIndexList, error) {
	list := &dmv1.DMIndexList{}
	return list, c.objects.List(ctx, list, client.InNamespace(c.namespace))
}

// listAll reads the indexes of the namespace, or of all, with their backups. Whoever may not see
// those sees the indexes.
func (c *cluster) listAll(ctx context.Context) (views []*view, err error) {
	list, err := c.list(ctx)
	if err != nil {
		return nil, err
	}
	backups, schedules, failed := c.listBackups(ctx)
	if failed != nil && !apierrors.IsForbidden(failed) && !apimeta.IsNoMatchError(failed) {
		return nil, failed
	}
	for i := range list.Items {
		v := &view{index: &list.Items[i]}
		v.keepBackups(backups, schedules)
		views = append(views, v)
	}
	return views, nil
}

// gatherAll looks at the indexes of these names, or at all of the namespace.
func (c *cluster) gatherAll(ctx context.Context, names []string) (views []*view, err error) {
	list := &dmv1.DMIndexList{}
	if len(names) == 0 {
		list, err = c.list(ctx)
	} else if c.namespace == metav1.NamespaceAll {
		err = errNoNamespace
	}
	for _, name := range names {
		if err != nil {
			break
		}
		index := dmv1.DMIndex{}
		if err = c.objects.Get(ctx, types.NamespacedName{Namespace: c.namespace, Name: name}, &index); err != nil {
			break
		}
		list.Items = append(list.Items, index)
	}
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		v := &view{index: &list.Items[i]}
		c.askServers(ctx, v)
		views = append(views, v)
	}
	return views, nil
}

// askServers asks all compute servers of an index, some at once.
func (c *cluster) askServers(ctx context.Context, v *view) {
	v.asked = make([]asked, len(v.index.Status.ComputeServers))
	slots := make(chan struct{}, askedAtOnce)
	var wg sync.WaitGroup
	for i, server := range v.index.Status.ComputeServers {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			v.asked[i].IndexComputeServer = server
			v.asked[i].said, v.asked[i].err = c.describe(ctx, v.index.Namespace, server.Pod)
		})
	}
	wg.Wait()
}

// describe asks one compute server, through the API server.
func (c *cluster) describe(ctx context.Context, namespace, pod string) (*rpcv1.DescribeComputeReply, error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	text, err := c.pods.CoreV1().Pods(namespace).ProxyGet("http", pod, fmt.Sprint(config.PortMetrics), "describe", nil).DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	said := &rpcv1.DescribeComputeReply{}
	return said, protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, said)
}

// listEvents lists the last events of an index and its memory pools.
func (c *cluster) listEvents(ctx context.Context, v *view) error {
	objects := []string{"DMIndex,involvedObject.name=" + v.index.Name}
	for _, p := range v.memory {
		objects = append(objects, "DMMemoryPool,involvedObject.name="+p.Name)
	}
	for _, o := range objects {
		list, err := c.pods.CoreV1().Events(c.namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=" + o, Limit: eventsListed})
		if err != nil {
			return err
		}
		v.events = append(v.events, list.Items...)
	}
	slices.SortStableFunc(v.events, func(a, b corev1.Event) int { return cmp.Compare(lastSeen(&a).UnixNano(), lastSeen(&b).UnixNano()) })
	v.events = v.events[max(0, len(v.events)-eventsShown):]
	return nil
}

// lastSeen an event was seen last.
func lastSeen(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}
