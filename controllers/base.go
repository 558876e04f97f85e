// Package controllers makes DMIndex objects true: it owns pools and pods, admits indexes to memory
// servers and moves their partition maps. Each reconciler gathers, decides with pure functions,
// then acts; everything it does can be repeated.
package controllers

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/pki"
	"github.com/dmindex/dmindex/controllers/internal/servers"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/logs"
)

// How long until something is looked at again that nobody tells of.
const (
	recheck     = 20 * time.Second // a settled object: do the servers still have what they had?
	requeueSoon = 2 * time.Second  // a server was asked for something and is not done
)

// base is what all reconcilers have.
type base struct {
	kube.Writer
	dialer    servers.Dialer
	events    events
	image     string      // --server-image
	imageRDMA string      // --server-image-rdma; empty = none
	pprof     bool        // --pprof
	anyUser   bool        // --cluster-user-ids
	policies  string      // --network-policies
	logs      logs.Config // --server-log-level, --server-log-format
	now       func() time.Time
	settle    time.Duration // Options.Settle
	spare     *spareIDs
	turns     *turns // to have indexes admitted

	remembered *remembered
	handovers  *handovers
	watch      *volumeWatch
	nodes      *nodes
	logged     *logged // of decisions
	served     *served // for the metrics
	figures    *figures

	volumeEvents *volumeEvents // for the metrics

	leases *namespaceLeases // nil = without Leases
}

// events is what the reconcilers need of an event recorder.
type events interface {
	Eventf(regarding runtime.Object, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// waitFor ends a list of steps: something must happen first. It is no failure.
type waitFor struct {
	reason, message string
	after           time.Duration // look again then; 0 = an event will tell
}

func (h *waitFor) Error() string { return h.message }

// collected are the outcomes of several steps that do not need each other.
type collected []error

func (c *collected) add(err error) {
	if err != nil {
		*c = append(*c, err)
	}
}

// err is nil if nothing was collected.
func (c collected) err() error {
	if len(c) == 0 {
		return nil
	}
	return c
}

func (c collected) Error() string {
	var texts []string
	for _, err := range c {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}

func (c collected) Unwrap() []error { return c }

// flat are the outcomes of err, one by one.
func flat(err error) (all []error) {
	var c collected
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &c):
		return []error{err}
	}
	for _, err := range c {
		all = append(all, flat(err)...)
	}
	return all
}

// result turns the outcome of a list of steps into what the controller's queue does.
// Of several it is what comes first.
func result(err error) (ctrl.Result, error) {
	next := recheck
	for _, err := range flat(err) {
		var h *waitFor
		switch {
		case errors.As(err, &h):
			if h.after != 0 {
				next = min(next, h.after)
			}
		case terminating(err): // all of it will be gone
		case apierrors.IsConflict(err):
			// read something old; look again
			next = min(next, 200*time.Millisecond)
		default:
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{RequeueAfter: next}, nil
}

// explain is the reason and the message of the outcome of a list of steps: the reason of the first
// that went wrong, and what all say.
func explain(err error) (reason, message string) {
	all := flat(err)
	if len(all) == 0 {
		return dmv1.ReasonAsDesired, ""
	}
	var texts []string
	for i, err := range all {
		r, text := explainOne(err)
		if i == 0 {
			reason = r
		}
		if !slices.Contains(texts, text) { // steps may meet with the same
			texts = append(texts, text)
		}
	}
	return reason, strings.Join(texts, "; ")
}

func explainOne(err error) (reason, message string) {
	var h *waitFor
	switch {
	case errors.As(err, &h):
		return h.reason, h.message
	case errors.Is(err, kube.ErrNameTaken):
		return dmv1.ReasonNameTaken, err.Error()
	case terminating(err):
		return dmv1.ReasonDeleting, "the namespace is being deleted"
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
		return dmv1.ReasonPoolRefused, err.Error()
	}
	return dmv1.ReasonFailed, err.Error()
}

// terminating reports whether something could not be made since its namespace is being deleted.
func terminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// passing reports whether an object changed under the reconciler: it is called again for it.
func passing(err error) bool { return slices.ContainsFunc(flat(err), apierrors.IsConflict) }

// ensureAuthority reads the certificate authority of owner, and makes it if there is none that can be
// used.
func ensureAuthority(ctx context.Context, b *base, owner client.Object, labels map[string]string) (*pki.Authority, error) {
	secret, err := authoritySecret(ctx, b, owner)
	if err != nil {
		return nil, err
	}
	if secret != nil {
		return mendAuthority(ctx, b, owner, secret)
	}
	pair, err := newAuthority(owner, b.now())
	if err != nil {
		return nil, err
	}
	secret = build.AuthoritySecret(owner.GetName(), owner.GetNamespace(), labels, pair)
	if err := ctrl.SetControllerReference(owner, secret, b.Scheme()); err != nil {
		return nil, err
	}
	// Created, not applied: an authority is never written over.
	if err := b.Create(ctx, secret, kube.Owner); err != nil {
		return nil, err
	}
	return pki.ParseAuthority(pair)
}

// readAuthority is nil if there is none.
func readAuthority(ctx context.Context, b *base, owner client.Object) (*pki.Authority, error) {
	secret, err := authoritySecret(ctx, b, owner)
	if err != nil || secret == nil {
		return nil, err
	}
	return parseAuthority(secret)
}

func pair(s *corev1.Secret) pki.Pair {
	return pki.Pair{Cert: s.Data[identity.CertFile], Key: s.Data[identity.KeyFile]}
}

// serverTLS makes the TLS Secret of a pool's servers as it should be and returns the hash of its
// content. complete adds what only one kind of server has.
func serverTLS(ctx context.Context, b *base, owner client.Object, component string, a *pki.Authority, leaf pki.Leaf, trusted []identity.Authority, complete func(*corev1.Secret)) (string, error) {
	secret := &corev1.Secret{}
	secret.Name, secret.Namespace = build.ServerTLSName(owner.GetName()), owner.GetNamespace()
	if err := b.Find(ctx, secret, secret); client.IgnoreNotFound(err) != nil {
		return "", err
	}
	p := pair(secret)
	if a.Review(p, leaf, b.now(), kube.Written(secret, kube.Owner)) != "" {
		var err error
		if p, err = a.Issue(leaf, b.now()); err != nil {
			return "", err
		}
	}
	desired, err := build.TLSSecret(owner.GetName(), owner.GetNamespace(), component, p, trusted)
	if err != nil {
		return "", err
	}
	complete(desired)
	desired.UID = secret.UID // a Secret that was deleted since does not return with its key
	if err := b.Apply(ctx, owner, desired); err != nil {
		return "", err
	}
	return kube.Hash(desired.Data)
}

// keptTLS is the hash of the TLS Secret of a pool's servers as it is, and the certificate in it;
// empty if there is none, or it cannot be read.
func keptTLS(ctx context.Context, b *base, owner client.Object) (hash string, cert []byte) {
	secret := &corev1.Secret{}
	secret.Name, secret.Namespace = build.ServerTLSName(owner.GetName()), owner.GetNamespace()
	if b.Find(ctx, secret, secret) != nil || !metav1.IsControlledBy(secret, owner) || len(secret.Data) == 0 {
		return "", nil
	}
	hash, err := kube.Hash(secret.Data)
	if err != nil {
		return "", nil
	}
	return hash, secret.Data[identity.CertFile]
}

// condition sets a condition.
func condition(conditions *[]metav1.Condition, generation int64, kind string, is bool, reason, message string) {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	const longest = 2000
	apimeta.SetStatusCondition(conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: cut(message, longest), ObservedGeneration: generation})
}
