package controllers

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/pkg/logs"
	"github.com/dmindex/dmindex/pkg/profile"
)

// RunOptions are the flags of the operator.
type RunOptions struct {
	ServerImage     string
	ServerImageRDMA string
	MetricsAddr     string
	HealthAddr      string
	LeaderElect     bool
	// profiles beside the metrics, also of the servers that are made from now on
	Pprof bool
	// the cluster says as whom new pods run
	ClusterUserIDs bool
	Namespaces     []string // watched; none = all
	// the operator's own namespace, if it is to make NetworkPolicies
	NetworkPolicies string
	Log             logs.Config // of the operator
	ServerLog       logs.Config // of the servers that are made from now on
}

// AddFlags defines the flags.
func (o *RunOptions) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.ServerImage, "server-image", os.Getenv("DMINDEX_SERVER_IMAGE"), "image of servers for indexes and pools that name none (or DMINDEX_SERVER_IMAGE); empty = that of the operator's own pod")
	flags.StringVar(&o.ServerImageRDMA, "server-image-rdma", os.Getenv("DMINDEX_SERVER_IMAGE_RDMA"), "image of servers for pools with transport RDMA (or DMINDEX_SERVER_IMAGE_RDMA); empty = such pools must name one")
	flags.StringVar(&o.MetricsAddr, "metrics-addr", ":8080", "host:port of /metrics; 0 = none")
	flags.StringVar(&o.HealthAddr, "health-addr", ":8081", "host:port of /healthz and /readyz; 0 = none")
	o.Log = logs.FromEnv(logs.JSON)
	o.Log.Add(flags)
	flags.StringVar(&o.ServerLog.Level, "server-"+logs.FlagLevel, "", "least level of the log of new server pods: debug, info, warn or error; empty = as their images have it")
	flags.StringVar(&o.ServerLog.Format, "server-"+logs.FlagFormat, "", "format of the log of new server pods: text or json; empty = as their images have it")
	flags.BoolVar(&o.Pprof, profile.Flag, profile.FromEnv(), profile.Usage+"; new server pods do the same")
	flags.BoolVar(&o.ClusterUserIDs, "cluster-user-ids", false, "leave user and group ids out of new pods, where the cluster gives each namespace its own, as OpenShift does; else they are 65532")
	flags.BoolVar(&o.LeaderElect, "leader-elect", false, "elect a leader, so that only one of several operators acts")
	flags.StringVar(&o.NetworkPolicies, "network-policies", "", "make NetworkPolicies for the pods of servers; they admit the operator's pods of this namespace. Empty = make none")
	flags.Func("namespace", "namespace to watch, may be repeated or separated by commas; none = all", func(v string) error {
		for _, n := range strings.Split(v, ",") {
			if n = strings.TrimSpace(n); n != "" {
				o.Namespaces = append(o.Namespaces, n)
			}
		}
		return nil
	})
}

// NewScheme knows all types that the operator reads and writes.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(clientgoscheme.AddToScheme(scheme), dmv1.AddToScheme(scheme))
}

// Run is the operator. It returns when ctx is done, or with an error. If it loses the lead the
// process begins anew instead (beginAnew).
func Run(ctx context.Context, o RunOptions) error {
	if err := run(ctx, o); err != nil {
		return fmt.Errorf("the operator: %w", err)
	}
	return nil
}

func run(ctx context.Context, o RunOptions) error {
	handler, err := o.Log.Handler(os.Stderr)
	if err != nil {
		return err
	}
	// they would not start with what they do not understand
	if _, err := o.ServerLog.Handler(os.Stderr); err != nil {
		return fmt.Errorf("of new servers: %w", err)
	}
	ctrl.SetLogger(logr.FromSlogHandler(handler))
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	scheme, err := NewScheme()
	if err != nil {
		return err
	}
	live, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	rights := &reads{from: live, namespaces: o.Namespaces}
	ports, err := openPorts(&o, ctrlmetrics.Registry, rights.check)
	if err != nil {
		return err
	}
	stopPorts := ports.serve(ctx)
	defer stopPorts()
	if err := pauseAfterLoss(ctx); err != nil {
		return nil // ctx is done
	}
	var mgr ctrl.Manager
	err = patiently(ctx, func() error {
		mgr, err = newManager(config, scheme, &o)
		if err == nil && o.ServerImage == "" {
			o.ServerImage, err = ownImage(ctx, live)
		}
		return err
	})
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if err := mgr.Add(rights); err != nil {
		return err
	}
	if err := SetupWithManager(mgr, Options{ServerImage: o.ServerImage, ServerImageRDMA: o.ServerImageRDMA, Pprof: o.Pprof, ClusterUserIDs: o.ClusterUserIDs, NetworkPolicies: o.NetworkPolicies, Holder: ownName(), ServerLogs: o.ServerLog, Metrics: ctrlmetrics.Registry}); err != nil {
		return err
	}
	err = mgr.Start(ctx)
	if isLeadLost(err) && ctx.Err() == nil {
		err = errors.Join(err, beginAnew(err)) // before anything is waited for
	}
	return err
}

func newManager(config *rest.Config, scheme *runtime.Scheme, o *RunOptions) (ctrl.Manager, error) {
	return ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme,
		Cache:                         CacheOptions(o.Namespaces),
		Metrics:                       metricsserver.Options{BindAddress: "0"}, // see openPorts
		HealthProbeBindAddress:        "0",
		LeaderElection:                o.LeaderElect,
		LeaderElectionID:              "operator.dmindex.io",
		LeaderElectionNamespace:       os.Getenv(envNamespace), // empty = that of the pod's account
		LeaderElectionReleaseOnCancel: true,                    // nothing goes on after Run
		LeaseDuration:                 &leadFor,
		RenewDeadline:                 &renewWithin,
		RetryPeriod:                   &leadRetry,
	})
}

// How the lead passes on. A node that is lost may have had the leader and the primaries of volumes,
// of which nobody answers until the next leader has found that they are silent: clients wait for
// all of that, and shall be answered within 15 s. With the usual 15 s, 10 s and 2 s the next leader
// alone would take up to 19 s.
//
// A leader that cannot renew for renewWithin stops. Before that it tries to give the lease back,
// which takes another renewWithin/2 of an API server that does not answer: then another one may
// lead for 2 s already. Nothing is safe only by the lease (docs/design/operator.md). An API server
// that stands still for less than renewWithin costs nobody the lead.
var (
	leadFor     = 6 * time.Second // after the last renewal that others saw
	renewWithin = 5 * time.Second
	leadRetry   = 500 * time.Millisecond // nobody decides for up to 2.2 of these more
)

// Main runs the operator with command-line arguments, until ctx is done.
func Main(ctx context.Context, args []string) error {
	var o RunOptions
	flags := flag.NewFlagSet("operator", flag.ContinueOnError)
	o.AddFlags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("operator: %q is not understood; it takes flags only", flags.Arg(0))
	}
	return Run(ctx, o)
}
