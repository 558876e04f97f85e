// Package computepool makes DMComputePools true: as many compute servers as a pool asks for, each
// of its template. A server that is not wanted any more hands over its keys before its pod is
// deleted.
package computepool

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/authority"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
	"github.com/dmindex/dmindex/controllers/internal/serverpod"
)

// Reconciler reconciles DMComputePool: it makes pods and says who leaves. Those that
// leave are drained and deleted by the reconciler of the index, which moves the partition map
// first.
type Reconciler struct{ reconciler.Base }

// scope is what was gathered about one compute pool.
type scope struct {
	pool     *dmv1.DMComputePool
	index    *dmv1.DMIndex
	ordinal  int    // of the pool in the index
	identity string // of the index, once it can be served
	image    string
	template string
	pods     []*corev1.Pod
	size     int // servers that there shall be
}

// Reconcile makes one compute pool true.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (_ ctrl.Result, err error) {
	s := &scope{pool: &dmv1.DMComputePool{}}
	if err := r.Get(ctx, request.NamespacedName, s.pool); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !s.pool.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // everything goes with its owner
	}
	before := s.pool.Status.DeepCopy()
	if err = r.gather(ctx, s); err == nil {
		err = r.work(ctx, s)
	}
	if outcome.Passing(err) {
		return outcome.Result(err)
	}
	s.summarize(err)
	if err := kube.ApplyStatus(ctx, &r.Writer, s.pool, before, &s.pool.Status); err != nil {
		return ctrl.Result{}, err
	}
	return outcome.Result(err)
}

// work is all that follows from what was gathered.
func (r *Reconciler) work(ctx context.Context, s *scope) error {
	var problems outcome.List
	switch err := r.Keep(ctx, s.pool); {
	case err == nil:
		return r.reconcile(ctx, s)
	case errors.Is(err, decision.ErrNoRecord):
		problems.Add(err)
		problems.Add(r.reconcile(ctx, s))
	case outcome.Passing(err):
		return err
	default: // it is not known what was decided: the servers keep their certificates
		problems.Add(err)
		problems.Add(r.keepServing(ctx, s))
	}
	return problems.Err()
}

func (r *Reconciler) gather(ctx context.Context, s *scope) (err error) {
	if s.pods, err = podstate.List(ctx, r, s.pool, dmv1.ComponentCompute); err != nil {
		return err
	}
	index := &dmv1.DMIndex{}
	switch err := r.Get(ctx, types.NamespacedName{Namespace: s.pool.Namespace, Name: s.pool.Spec.IndexName}, index); {
	case apierrors.IsNotFound(err):
		return outcome.WaitFor(dmv1.ReasonWaitingForIndex, "there is no DMIndex "+s.pool.Spec.IndexName+": make it, or delete this pool", 0)
	case err != nil:
		return err
	case !index.DeletionTimestamp.IsZero():
		return outcome.WaitFor(dmv1.ReasonDeleting, "index "+index.Name+" is being deleted", 0)
	}
	s.index = index
	s.ordinal = slices.IndexFunc(index.Spec.ComputePools, func(p dmv1.IndexComputePool) bool {
		return build.ComputePoolOf(index, p) == s.pool.Name
	})
	if s.ordinal < 0 {
		return outcome.WaitFor(dmv1.ReasonWaitingForIndex, "index "+index.Name+" does not name this pool in spec.computePools: make the index with a ref to it", 0)
	}
	s.image = s.pool.Spec.Image
	if s.image == "" {
		if s.image = decision.ImageFor(index, s.pool.Spec.Transport); s.image == "" && s.pool.Spec.Transport == dmv1.TransportRDMA {
			return serverpod.NoRDMAImage("the pool")
		}
	}
	s.template, err = kube.Hash(templateOf(s.pool, s.index, s.image))
	return err
}

// templateOf is what pods are made of. What is said of pools that use nothing new must stay as it
// was, or an upgrade would replace their pods.
func templateOf(pool *dmv1.DMComputePool, index *dmv1.DMIndex, image string) map[string]any {
	t := map[string]any{"pod": pool.Spec.Pod, "image": image}
	maps.Copy(t, build.TemplateOf(index))
	if pool.Spec.Transport == dmv1.TransportRDMA {
		t["transport"], t["rdma"] = pool.Spec.Transport, pool.Spec.RDMA
	}
	if pool.Spec.Spread != nil {
		t["spread"] = pool.Spec.Spread
	}
	if n := pool.Spec.Settings.MaxSessions; n > 0 {
		t["maxSessions"] = n
	}
	if cache := pool.Spec.Cache; cache != nil {
		t["cache"] = cache.Value()
	}
	return t
}

func (r *Reconciler) reconcile(ctx context.Context, s *scope) error {
	// Objects that cannot be made do not keep lost servers from being replaced.
	var problems outcome.List
	objects := []client.Object{build.Headless(s.pool.Name, s.pool.Namespace, dmv1.ComponentCompute)}
	if !s.pool.Spec.Paused {
		objects = append(objects, build.Budget(s.pool.Name, s.pool.Namespace, dmv1.ComponentCompute, s.pool.Spec.Replicas))
	}
	if r.NetworkPolicies != "" {
		objects = append(objects, build.NetworkPolicy(s.pool.Name, s.pool.Namespace, dmv1.ComponentCompute, r.NetworkPolicies))
	}
	for _, object := range objects {
		problems.Add(r.Apply(ctx, s.pool, object))
	}
	if err := r.identify(ctx, s); err != nil {
		problems.Add(err)
		return problems.Err()
	}
	tls, err := r.security(ctx, s)
	if err != nil {
		problems.Add(err)
		// the certificate names the index's identity: only one that a server of it has
		if tls, _ = authority.KeptTLS(ctx, &r.Base, s.pool); !slices.ContainsFunc(s.pods, func(p *corev1.Pod) bool {
			return p.Annotations[dmv1.AnnotationIdentity] == s.identity && p.Annotations[dmv1.AnnotationTLS] == tls
		}) {
			return problems.Err()
		}
	}
	problems.Add(serverpod.RenewTLS(ctx, &r.Base, s.pods, tls))
	problems.Add(serverpod.Patch(&r.Base, s.pool, &build.ComputePod(s.pool, s.ordinal, 0, s.identity, s.image, s.template).Spec, &s.pool.Spec.Pod))
	if s.size, err = serverpod.PausedSize(ctx, &r.Base, s.pool, s.pool.Spec.Paused, int(s.pool.Spec.Replicas), max(int(s.pool.Status.Replicas), podstate.Staying(s.pods))); err == nil {
		err = r.act(ctx, s, tls)
	}
	problems.Add(err)
	return problems.Err()
}

// identify finds out which incarnation of the index there is to be served.
func (r *Reconciler) identify(ctx context.Context, s *scope) error {
	configMap := &corev1.ConfigMap{}
	switch err := r.Get(ctx, types.NamespacedName{Namespace: s.pool.Namespace, Name: build.ConfigMapName(s.index.Name)}, configMap); {
	case apierrors.IsNotFound(err):
		return outcome.WaitFor(dmv1.ReasonWaitingForIndex, "index "+s.index.Name+" has no memory yet", 0)
	case err != nil:
		return err
	case configMap.Annotations[dmv1.AnnotationIdentity] != decision.Identity(s.index):
		return outcome.WaitFor(dmv1.ReasonWaitingForIndex, "index "+s.index.Name+" is made anew", 0)
	}
	s.identity = decision.Identity(s.index)
	return nil
}

// keepServing renews certificates, and does nothing else.
func (r *Reconciler) keepServing(ctx context.Context, s *scope) error {
	if err := r.identify(ctx, s); err != nil {
		return err
	}
	tls, err := r.security(ctx, s)
	if err != nil {
		return err
	}
	return serverpod.RenewTLS(ctx, &r.Base, s.pods, tls)
}

// security makes the TLS Secret of the pool's servers. The index's authority speaks to them for the
// operator and the index, the authority of a memory pool for its servers alone.
func (r *Reconciler) security(ctx context.Context, s *scope) (string, error) {
	a, err := authority.Read(ctx, &r.Base, s.index)
	if err != nil {
		return "", err
	}
	if a == nil {
		return "", outcome.WaitFor(dmv1.ReasonWaitingForIndex, "the certificate authority of index "+s.index.Name+" does not exist yet", 0)
	}
	trusted := build.OwnSpeaks(s.index, a)
	for _, p := range s.index.Spec.MemoryPools {
		pool := &dmv1.DMMemoryPool{}
		if err := r.Get(ctx, types.NamespacedName{Namespace: s.pool.Namespace, Name: build.MemoryPoolOf(s.index, p)}, pool); err != nil {
			return "", err
		}
		memory, err := authority.Read(ctx, &r.Base, pool)
		if err != nil {
			return "", err
		}
		if memory == nil {
			return "", outcome.WaitFor(dmv1.ReasonWaitingForIndex, "the certificate authority of memory pool "+pool.Name+" does not exist yet", outcome.RequeueSoon)
		}
		trusted = append(trusted, build.MemorySpeaks(pool, memory)...)
	}
	salt, err := build.KeySalt(a)
	if err != nil {
		return "", err
	}
	return authority.ServerTLS(ctx, &r.Base, s.pool, dmv1.ComponentCompute, a, build.ComputeLeaf(s.pool, s.index, s.identity), trusted, func(secret, before *corev1.Secret) error {
		secret.Data[config.KeySaltFile] = salt
		return build.Settle(secret, before, s.pool.Spec.Paused, build.ComputeSettings(s.pool))
	})
}

// act does what decide says.
func (r *Reconciler) act(ctx context.Context, s *scope, tls string) (err error) {
	actions := decide(s.view(r.Now()))
	if actions.create > 0 {
		// The cache may not have seen pods that were made a moment ago: ask the API server before
		// making more.
		if s.pods, err = podstate.List(ctx, r.Live, s.pool, dmv1.ComponentCompute); err != nil {
			return err
		}
		actions = decide(s.view(r.Now()))
	}
	for _, p := range s.pods {
		switch id := podstate.ID(p); {
		case slices.Contains(actions.remove, id):
			if err := serverpod.Delete(ctx, &r.Base, p, podstate.UselessBecause(p)); err != nil {
				return err
			}
		case slices.Contains(actions.leave, id):
			r.Events.Eventf(s.pool, p, corev1.EventTypeNormal, "ComputeServerLeaving", "Leave", "pod %s hands over its ranges, then ends", p.Name)
			if err := r.Annotate(ctx, p.DeepCopy(), map[string]string{dmv1.AnnotationLeaving: r.Now().UTC().Format(time.RFC3339)}); err != nil {
				return err
			}
			if r.Logged.Once(p.UID, "leave") {
				logf.FromContext(ctx).Info("let pod leave", "pod", p.Name, "reason", actions.leaveWhy)
			}
		}
	}
	if wait := podstate.Refusal(s.pods, actions.next, r.Now()); wait != nil {
		return wait
	}
	if err := r.reserveIDs(ctx, s, actions.create); err != nil {
		return err
	}
	former, formerTemplate, err := s.former()
	if err != nil {
		return err
	}
	serverpod.TellReserved(&r.Base, s.pool, &s.pool.Spec.Pod)
	made := 0
	return serverpod.Create(ctx, &r.Base, s.pool, actions.create, actions.createWhy, serverpod.Numbers{Next: podstate.NextID(s.pool, s.pods)}, func(id int) (*corev1.Pod, error) {
		image, template := s.image, s.template
		if made++; made <= actions.former {
			image, template = former, formerTemplate
		}
		pod := build.ComputePod(s.pool, s.ordinal, id, s.identity, image, template)
		build.UseIndex(pod, s.index)
		pod.Annotations[dmv1.AnnotationTLS] = tls
		return pod, serverpod.Equip(&r.Base, s.pool, pod, &s.pool.Spec.Pod)
	})
}

// former is the image of a server that runs an old template, and the template with it: of one that
// is ready, if there is one.
func (s *scope) former() (image, template string, err error) {
	image = s.image
	for _, p := range s.pods {
		if podstate.Going(p) || podstate.Ended(p) || podstate.Leaving(p) || podstate.NeverRan(p) || p.Annotations[dmv1.AnnotationIdentity] != s.identity || p.Annotations[dmv1.AnnotationTemplate] == s.template {
			continue
		}
		image = podstate.Asked(p)
		if is, _ := podstate.Ready(p); is {
			break
		}
	}
	template, err = kube.Hash(templateOf(s.pool, s.index, image))
	return image, template, err
}

func (s *scope) view(now time.Time) view {
	v := view{replicas: s.size, paused: s.pool.Spec.Paused, identity: s.identity, template: s.template, now: now}
	for _, p := range s.pods {
		is, since := podstate.Ready(p)
		v.pods = append(v.pods, podView{id: podstate.ID(p), going: podstate.Going(p), ended: podstate.Ended(p), leaving: podstate.Leaving(p), neverRan: podstate.NeverRan(p), ready: is, readySince: kube.Stamp(p, "", since, now), attempt: podstate.AttemptOf(p),
			identity: p.Annotations[dmv1.AnnotationIdentity], template: p.Annotations[dmv1.AnnotationTemplate], image: podstate.Asked(p)})
	}
	return v
}
