package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// reads finds out whether the operator may read what it looks after, in each namespace that it
// watches. Until it may, it is not ready: without the lead it reads nothing else, and an install
// with rights in another namespace would look like one that works. Rights that are taken away later
// do not make it unready again: it would be no better for that.
type reads struct {
	from       client.Reader
	namespaces []string // none = all

	mu  sync.Mutex
	why error // nil = it may
	did bool  // it was found out once
}

// readsAgain is how long until rights that were missing are looked at again.
const readsAgain = 5 * time.Second

// NeedLeaderElection: an operator that stands by looks as well.
func (r *reads) NeedLeaderElection() bool { return false }

// Start looks until all can be read.
func (r *reads) Start(ctx context.Context) error {
	said := ""
	tick := time.NewTicker(readsAgain)
	defer tick.Stop()
	for {
		why := r.look(ctx)
		r.mu.Lock()
		r.why, r.did = why, true
		r.mu.Unlock()
		if why == nil {
			return nil
		}
		if why.Error() != said {
			said = why.Error()
			logf.FromContext(ctx).Error(why, "the operator is not ready")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// look reads one object of two kinds in each namespace: of ours, which want the CRDs as well, and
// of those of Kubernetes, whose rights are given with them.
func (r *reads) look(ctx context.Context) error {
	all := r.namespaces
	if len(all) == 0 {
		all = []string{""}
	}
	for _, namespace := range all {
		for _, list := range []client.ObjectList{&dmv1.DMIndexList{}, &corev1.PodList{}} {
			err := r.from.List(ctx, list, client.InNamespace(namespace), client.Limit(1))
			if err != nil {
				return fmt.Errorf("read %T in %s: %w%s", list, in(namespace), err, remedy(err, namespace))
			}
		}
	}
	return nil
}

// check is for the probe.
func (r *reads) check(*http.Request) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.did {
		return errors.New("not found out yet")
	}
	return r.why
}

func in(namespace string) string {
	if namespace == "" {
		return "all namespaces"
	}
	return "namespace " + namespace
}

// remedy is what to do about an error of the API server, behind it; empty if nobody knows.
func remedy(err error, namespace string) string {
	switch {
	case apierrors.IsNotFound(err), apimeta.IsNoMatchError(err):
		return ": install the CRDs of this version (config/crd; chart: crds.enabled)"
	case !apierrors.IsForbidden(err):
		return ""
	case namespace == "":
		return ": bind the operator's ClusterRole with a ClusterRoleBinding, or name the namespaces to watch with --namespace (chart: watchNamespaces)"
	}
	return ": bind the operator's ClusterRole there with a RoleBinding, or take the namespace out of --namespace (chart: watchNamespaces)"
}
