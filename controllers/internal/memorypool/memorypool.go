// Package memorypool makes DMMemoryPools true: as many memory servers as a pool asks for, each with
// a volume that is moved, kept twice or kept on a disk, and nothing that ends one with data.
package memorypool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/authority"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/pki"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
	"github.com/dmindex/dmindex/controllers/internal/report"
	"github.com/dmindex/dmindex/controllers/internal/serverpod"
	"github.com/dmindex/dmindex/controllers/internal/volume"
)

// annotationRestarted of a memory pod is when its image was last changed in place.
const annotationRestarted = "dmindex.io/restarted"

// Reconciler reconciles DMMemoryPool.
type Reconciler struct {
	reconciler.Base
	remembered   *remembered
	watch        *volumeWatch
	nodes        *nodes
	volumeEvents *volumeEvents // for the metrics
}

// New returns a reconciler that remembers nothing.
func New(b reconciler.Base) *Reconciler {
	return &Reconciler{Base: b, remembered: newRemembered(b.Now()), watch: newVolumeWatch(b.Dialer, time.Now), nodes: newNodes(), volumeEvents: &volumeEvents{}}
}

// Runnables are what has to run beside the reconciler while this operator leads.
func (r *Reconciler) Runnables(mgr ctrl.Manager) []manager.Runnable {
	return []manager.Runnable{r.watch, &nodeWatch{mgr.GetCache(), mgr.GetClient(), r.nodes, r.watch.events}}
}

// Wakes are the pools that the runnables want to be looked at.
func (r *Reconciler) Wakes() source.Source {
	return source.Channel(r.watch.events, &handler.TypedEnqueueRequestForObject[*dmv1.DMMemoryPool]{})
}

// scope is what was gathered about one memory pool.
type scope struct {
	pool      *dmv1.DMMemoryPool
	image     string
	template  string // hash of what new pods are made of, but for the image
	patchErr  error  // why no pod can be made of the template; nil = it can
	authority *pki.Authority
	pods      []*corev1.Pod // all
	record    volume.Record
	answering []*corev1.Pod        // those of pods that answer for a volume
	elsewhere volume.IDs           // volumes (volume.Record.Answering)
	volumes   []*volumeScope       // that are not left as they are
	nodes     map[string]nodeState // of its pods, by name
	claims    volume.Disks
	probes    []*corev1.Pod // of images (image.go)
	size      int           // servers that there shall be
	looked    time.Time
	// pods on whose servers there are indexes
	recorded  volume.IDs
	described map[int]*rpcv1.DescribeMemoryReply // by volume
	problems  map[int]string                     // of servers that cannot start, by volume

	volumesSeen  bool          // volumes are all that there are
	volumesAgain time.Duration // when to look at volumes again; 0 = nothing is waited for

	// when to look at the replacement of the authority again; 0 = never
	authorityAgain time.Duration

	indexNames map[string]string // by UID, of those of the namespace
	use        volume.Use
	log        dmv1.LogSpec // of the index that the pool was made for
}

// Reconcile makes one memory pool true.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (_ ctrl.Result, err error) {
	s := &scope{pool: &dmv1.DMMemoryPool{}, looked: r.Now()}
	if err := r.Get(ctx, request.NamespacedName, s.pool); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := s.pool.Status.DeepCopy()
	var problems outcome.List
	if err = r.gatherUse(ctx, s); err == nil {
		err = r.protect(ctx, s)
	}
	if !s.pool.DeletionTimestamp.IsZero() && !controllerutil.ContainsFinalizer(s.pool, dmv1.FinalizerInUse) {
		return outcome.Result(err) // everything goes with its owner
	}
	problems.Add(err)
	problems.Add(r.work(ctx, s))
	if s.volumesAgain == volumeSoon {
		return soon(ctx, problems.Err()), nil
	}
	if err = problems.Err(); outcome.Passing(err) {
		return outcome.Result(err)
	}
	s.summarize(err)
	if err := report.WriteStatus(ctx, &r.Writer, r.Figures, r.Now(), s.pool, before, &s.pool.Status, withFigures(&s.pool.Status, before)); err != nil {
		return ctrl.Result{}, err
	}
	after, failed := outcome.Result(err)
	if failed != nil && s.volumesAgain > 0 {
		// Not ever more seldom: a volume waits for the next look.
		logf.FromContext(ctx).Error(failed, "reconcile memory pool")
		after, failed = ctrl.Result{RequeueAfter: volumeLook}, nil
	}
	err = failed
	if err == nil && len(s.problems) > 0 {
		after.RequeueAfter = outcome.RequeueSoon // nobody tells when a node was mended
	}
	if err == nil && s.authorityAgain > 0 {
		after.RequeueAfter = min(after.RequeueAfter, max(s.authorityAgain, time.Second))
	}
	if err == nil && s.volumesAgain > 0 {
		after.RequeueAfter = min(after.RequeueAfter, s.volumesAgain)
	}
	return after, err
}

// work is all but the protection of the pool. Views come first: nothing that takes long stands
// between a server that falls silent and the next look at it.
func (r *Reconciler) work(ctx context.Context, s *scope) (err error) {
	s.image = cmp.Or(s.pool.Spec.Image, s.pool.Annotations[dmv1.AnnotationImage])
	if s.authority, err = authority.Read(ctx, &r.Base, s.pool); err != nil {
		return err
	}
	deleted := !s.pool.DeletionTimestamp.IsZero()
	if deleted && (len(s.record.Views) == 0 || controllerutil.ContainsFinalizer(s.pool, metav1.FinalizerDeleteDependents)) {
		r.gather(ctx, s)
		return r.keepServing(ctx, s)
	}
	var problems outcome.List
	state := r.Keep(ctx, s.pool)
	switch {
	case outcome.Passing(state):
		return state
	case state == nil:
		problems.Add(r.keepVolumes(ctx, s)) // also of a deleted pool: indexes are served from it
		if s.volumesAgain == volumeSoon {
			return problems.Err()
		}
	}
	problems.Add(state)
	r.gather(ctx, s)
	if !deleted && (state == nil || errors.Is(state, decision.ErrNoRecord)) {
		problems.Add(r.reconcile(ctx, s))
	} else {
		problems.Add(r.keepServing(ctx, s))
	}
	return problems.Err()
}

// gatherUse looks at the pool's pods, and at who has memory there.
func (r *Reconciler) gatherUse(ctx context.Context, s *scope) (err error) {
	if s.pods, err = podstate.List(ctx, r, s.pool, dmv1.ComponentMemory); err != nil {
		return err
	}
	if s.claims, err = volume.ListDisks(ctx, r, s.pool); err != nil {
		return err
	}
	if s.record, err = volume.RecordOf(s.pool); err != nil {
		return err
	}
	if s.template, err = templateOf(s.pool); err != nil {
		return err
	}
	s.patchErr = serverpod.Patch(&r.Base, s.pool, &build.MemoryPod(s.pool, 0, s.image).Spec, &s.pool.Spec.Pod)
	s.answering, s.elsewhere = s.record.Answering(s.pods, s.claims)
	if s.probes, err = podstate.List(ctx, r, s.pool, dmv1.ComponentProbe); err != nil {
		return err
	}
	indexes := &dmv1.DMIndexList{}
	if err := r.List(ctx, indexes, client.InNamespace(s.pool.Namespace)); err != nil {
		return err
	}
	s.indexNames, s.recorded = map[string]string{}, volume.IDs{}
	for i := range indexes.Items {
		s.indexNames[string(indexes.Items[i].UID)] = indexes.Items[i].Name
		s.recorded.AddRecorded(&indexes.Items[i], s.pool.Name)
		if metav1.IsControlledBy(s.pool, &indexes.Items[i]) {
			s.log = indexes.Items[i].Spec.Log
		}
	}
	s.use = volume.UseOf(s.pool, indexes.Items)
	return nil
}

// gather asks the servers what they hold. One that has just not answered is not asked.
func (r *Reconciler) gather(ctx context.Context, s *scope) {
	if s.authority == nil {
		return
	}
	asked := slices.DeleteFunc(slices.Clone(s.answering), s.silent)
	s.described, s.problems = serverpod.DescribeMemory(ctx, &r.Base, asked, s.authority)
}

func (r *Reconciler) reconcile(ctx context.Context, s *scope) error {
	if s.image == "" {
		if s.image = r.Image; s.pool.Spec.Transport == dmv1.TransportRDMA {
			if s.image = r.ImageRDMA; s.image == "" {
				return serverpod.NoRDMAImage("the pool")
			}
		}
		if err := r.Annotate(ctx, s.pool, map[string]string{dmv1.AnnotationImage: s.image}); err != nil {
			return err
		}
	}
	// Objects that cannot be made do not keep lost servers from being replaced.
	var problems outcome.List
	problems.Add(s.patchErr)
	tls, err := r.security(ctx, s)
	if err != nil {
		problems.Add(err)
		tls, _ = authority.KeptTLS(ctx, &r.Base, s.pool)
	}
	problems.Add(r.Apply(ctx, s.pool, build.Headless(s.pool.Name, s.pool.Namespace, dmv1.ComponentMemory)))
	if r.NetworkPolicies != "" {
		policy := build.NetworkPolicy(s.pool.Name, s.pool.Namespace, dmv1.ComponentMemory, r.NetworkPolicies)
		if s.hasCopies() {
			policy = build.LetMirror(policy)
		}
		problems.Add(r.Apply(ctx, s.pool, policy))
	}
	if tls == "" {
		return problems.Err() // no server could start without its certificate
	}
	problems.Add(serverpod.RenewTLS(ctx, &r.Base, s.pods, tls))
	problems.Add(r.keepAuthority(ctx, s))
	if s.size, err = serverpod.PausedSize(ctx, &r.Base, s.pool, s.pool.Spec.Paused, int(s.pool.Spec.Servers), max(len(s.pool.Status.Servers), podstate.Staying(s.answering))); err == nil {
		err = r.act(ctx, s, tls)
	}
	problems.Add(err)
	return problems.Err()
}

// keepServing is what is still done for a pool that is to be deleted while indexes are served from
// it, or of which it is not known what was decided: no pod is made any more, those that are there
// keep their certificates. With foreground deletion the garbage collector is at work already.
func (r *Reconciler) keepServing(ctx context.Context, s *scope) error {
	if controllerutil.ContainsFinalizer(s.pool, metav1.FinalizerDeleteDependents) {
		return nil
	}
	tls, err := r.security(ctx, s)
	if err != nil {
		return err
	}
	return serverpod.RenewTLS(ctx, &r.Base, s.pods, tls)
}

// act does what decide says. A change of an image that cannot be made, or proven, does
// not keep lost servers from being replaced.
func (r *Reconciler) act(ctx context.Context, s *scope, tls string) (err error) {
	actions := decide(s.view(r.Now()))
	if actions.create > 0 {
		// The cache may not have seen pods that were made a moment ago: ask the API server before
		// making more.
		if err := s.listLive(ctx, r.Live); err != nil {
			return err
		}
		if err := s.findClaims(ctx, r.Live); err != nil {
			return err
		}
		s.answering, s.elsewhere = s.record.Answering(s.pods, s.claims)
		actions = decide(s.view(r.Now()))
	}
	var problems outcome.List
	problems.Add(r.keepClaims(ctx, s))
	problems.Add(r.keepDisks(ctx, s))
	problems.Add(r.replace(ctx, s, actions, tls))
	for _, p := range s.pods {
		if podstate.ID(p) == actions.restart {
			problems.Add(r.restart(ctx, s, p, actions.restartWhy))
		}
	}
	problems.Add(r.keepProbes(ctx, s, actions))
	return problems.Err()
}

// replace deletes the pods of servers that ended, and makes new ones.
func (r *Reconciler) replace(ctx context.Context, s *scope, actions actions, tls string) error {
	for _, p := range s.answering {
		if !slices.Contains(actions.remove, podstate.ID(p)) {
			continue
		}
		if !podstate.RefusedByKubelet(p) && !volume.IsPersistent(s.pool) {
			r.Events.Eventf(s.pool, p, corev1.EventTypeWarning, "MemoryServerEnded", "Replace", "pod %s ended (%s); it is replaced by a new one; its content is lost", p.Name, p.Status.Reason)
		}
		if err := serverpod.Delete(ctx, &r.Base, p, podstate.UselessBecause(p)); err != nil {
			return err
		}
	}
	if wait := podstate.Refusal(s.pods, actions.next, r.Now()); wait != nil {
		return wait
	}
	ids, err := freeIDs(s.pool, s.pods, s.record, s.recorded)
	if err != nil {
		return err
	}
	if volume.IsPersistent(s.pool) {
		ids = s.claimIDs(ids)
		ids.First = func(ctx context.Context, id int) error { return r.makeClaim(ctx, s, id, id) }
	}
	serverpod.TellReserved(&r.Base, s.pool, &s.pool.Spec.Pod)
	return serverpod.Create(ctx, &r.Base, s.pool, actions.create, actions.createWhy, ids, func(id int) (*corev1.Pod, error) {
		if id > build.MaxVolume {
			return nil, outcome.WaitFor(dmv1.ReasonIDsExhausted, fmt.Sprintf("indexes were made on all %d server ids of the pool: create a new pool and restore a dump into it", build.MaxVolume+1), 0)
		}
		pod := build.MemoryPod(s.pool, id, s.imageOfNew())
		build.UseLog(pod, s.log)
		pod.Annotations[dmv1.AnnotationTLS], pod.Annotations[dmv1.AnnotationTemplate] = tls, s.template
		s.tellDisk(pod)
		return pod, serverpod.Equip(&r.Base, s.pool, pod, &s.pool.Spec.Pod)
	})
}

func (s *scope) view(now time.Time) view {
	v := view{servers: max(s.size, len(s.volumesOnDisks())), returns: volume.IsPersistent(s.pool), image: s.image, paused: s.pool.Spec.Paused, now: now}
	// A volume with another copy that is named is there, whatever becomes of the pod that answers,
	// and no image of it is changed in place: its primary would be another pod then.
	for volume := range s.elsewhere {
		v.pods = append(v.pods, podView{id: -1 - volume, ready: true, image: s.image})
	}
	// So is one on disks that has a view. Its pods come back with the volume (returnPods).
	for volume := range s.volumesOnDisks() {
		answers := slices.ContainsFunc(s.answering, func(p *corev1.Pod) bool { return podstate.VolumeOf(p) == volume })
		if _, recorded := s.record.Views[volume]; recorded && !answers && !s.elsewhere[volume] {
			v.pods = append(v.pods, podView{id: -1 - volume, image: s.image})
		}
	}
	for _, p := range s.answering {
		if s.elsewhere[podstate.VolumeOf(p)] {
			continue
		}
		is, since := podstate.Ready(p)
		restarted, _ := time.Parse(time.RFC3339, p.Annotations[annotationRestarted])
		v.pods = append(v.pods, podView{id: podstate.ID(p), going: podstate.Going(p), ended: podstate.Ended(p) || s.claimless(p), ready: is, readySince: kube.Stamp(p, "", since, now),
			image: s.imageInPlace(p), node: p.Spec.NodeName, restarted: kube.Stamp(p, kube.Owner, restarted, now), attempt: podstate.AttemptOf(p), stuck: podstate.Stuck(p), idle: podstate.Idle(p, now), unfit: s.problems[podstate.VolumeOf(p)] != ""})
	}
	for _, p := range s.probes {
		v.probes = append(v.probes, imageProbe(p))
	}
	return v
}
