package memorypool

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/authority"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/pki"
	"github.com/dmindex/dmindex/controllers/internal/report"
	"github.com/dmindex/dmindex/controllers/internal/servers"
	"github.com/dmindex/dmindex/controllers/internal/volume"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// Volumes that move, or have more than one copy. Package volumes decides; what it asks of its
// caller is done here, in this order:
//
//	pods are listed          their versions are what a deletion is conditional on
//	the record is read       at the API server, behind the pods (Keep)
//	servers report           side by side, a second at most
//	volumes.Step             for each volume
//	pods are marked          those that a new view names: their versions change
//	the views are recorded   of all volumes at once, by compare-and-swap
//	volumes.Step             for each of these volumes, by the new view and the same reports
//	servers are told         of the new views, as Step says, and nothing else is done
//
// or, for volumes whose view stays: servers are told, copies join, pods are made and deleted.
// Nothing is done that relies on a record which was not written, or not read. When a primary has
// stopped, all are asked again at once: nobody answers for its volume until the next view is told.

// annotationNamed of a memory pod changes each time a view is about to name it (Actions.Record).
const annotationNamed = "dmindex.io/named"

// keepVolumes does what is next for the volumes of a pool.
func (r *Reconciler) keepVolumes(ctx context.Context, s *scope) error {
	if s.pool.Spec.Transport == dmv1.TransportRDMA {
		return nil
	}
	if err := r.listNamed(ctx, s); err != nil {
		return err
	}
	r.lookAtNodes(ctx, s)
	s.volumes = s.volumesToKeep()
	s.volumesSeen = true
	if len(s.volumes) == 0 {
		r.watch.end(s.pool.UID)
		r.remembered.putVolumes(s.pool.UID, nil)
		return nil
	}
	s.memories(r.remembered, r.watch)
	tls := r.copyTLS(ctx, s.pool)
	var problems outcome.List
	for round := range mostRounds {
		r.askVolumes(ctx, s)
		for _, v := range s.volumes {
			v.decide(r.remembered.at(r.Now()), s.pool, s.copies(), v.memory)
			v.memory = v.actions.Memory
			v.podsStay = round > 0 // those that are known were listed before the first one
		}
		r.remembered.putVolumes(s.pool.UID, s.volumes)
		if next, changed := nextRecord(s.record, s.volumes); len(changed) > 0 {
			err := r.recordViews(ctx, s, next, changed)
			problems.Add(err)
			for _, v := range changed {
				if err == nil {
					v.decideNext(next.Views[v.number], r.remembered.at(r.Now()), s.pool, s.copies())
				}
			}
		}
		stopped, err := r.moveVolumes(ctx, s, tls)
		if problems.Add(err); !stopped {
			break
		}
	}
	r.lookAgain(s)
	return problems.Err()
}

// mostRounds is how often servers are asked in one look: once, and again when a primary stopped.
const mostRounds = 2

// memories gives the volumes what is remembered of them. A server that was found silent by whoever
// watches it has been silent since then.
func (s *scope) memories(all *remembered, watch *volumeWatch) {
	memories, silences := all.volumesOf(s.pool.UID), watch.silences(s.pool.UID)
	for _, v := range s.volumes {
		v.memory = memories[v.number]
		for _, c := range v.copies {
			if since, silent := silences[c.uid]; silent {
				v.memory = v.memory.Silent(c.uid, all.at(since))
			}
		}
	}
}

// hasCopies reports whether servers of the pool may have to send each other their changes: their
// certificates and the network policy let them. It stays so once a volume has a view.
func (s *scope) hasCopies() bool {
	p := s.pool
	return p.Spec.Transport != dmv1.TransportRDMA &&
		(s.copies() > 1 || len(s.volumes) > 0 || p.Annotations[dmv1.AnnotationMove] != "" || p.Annotations[dmv1.AnnotationVolumes] != "")
}

// copyTLS is the hash of the TLS Secret of the pool's servers; empty if a copy could not take
// changes with the certificate that is there. security makes another one, behind this.
func (r *Reconciler) copyTLS(ctx context.Context, pool *dmv1.DMMemoryPool) string {
	hash, data := authority.KeptTLS(ctx, &r.Base, pool)
	cert, err := pki.Parse(data)
	if err != nil {
		return ""
	}
	if who, err := identity.FromCertificate(cert); err != nil || who != (identity.Identity{Role: identity.RoleMemory, Pool: string(pool.UID)}) {
		return ""
	}
	return hash
}

// listNamed reads the record that is in force now, and sees to it that no copy is taken for gone
// because the cache does not have it yet.
func (r *Reconciler) listNamed(ctx context.Context, s *scope) (err error) {
	if s.record, err = volume.RecordOf(s.pool); err != nil {
		return err
	}
	missing := false
	for _, v := range s.record.Views {
		for _, p := range v.Named() {
			missing = missing || !s.isThere(p)
		}
	}
	if missing {
		if err := s.listLive(ctx, r.Live); err != nil {
			return err
		}
		// Behind the pods: see Actions.DeletePods.
		if err := r.Keep(ctx, s.pool); err != nil {
			return err
		}
		if s.record, err = volume.RecordOf(s.pool); err != nil {
			return err
		}
		if err := s.findClaims(ctx, r.Live); err != nil {
			return err
		}
	}
	s.answering, s.elsewhere = s.record.Answering(s.pods, s.claims)
	return nil
}

// recordViews marks the copies that new views name, and writes the views down.
func (r *Reconciler) recordViews(ctx context.Context, s *scope, next volume.Record, changed []*volumeScope) error {
	type marked struct {
		v      *volumeScope
		object client.Object
	}
	var marks []marked
	for _, v := range changed {
		for _, named := range next.Views[v.number].Named() {
			if c := v.copyOf(named.UID); c != nil { // an earlier primary may be gone
				for _, object := range c.objects() {
					marks = append(marks, marked{v, object})
				}
			}
		}
	}
	errs := make([]error, len(marks))
	servers.Each(len(marks), func(i int) { // side by side: nobody answers for the volumes meanwhile
		m := marks[i]
		view := next.Views[m.v.number].Number
		// A value of its own each time: a mark that is there already would change no version.
		mark := strconv.FormatUint(view, 10) + "-" + rand.Text()
		if err := r.Annotate(ctx, m.object, map[string]string{annotationNamed: mark}); err != nil {
			errs[i] = fmt.Errorf("mark %s, which view %d of volume %d names: %w", m.object.GetName(), view, m.v.number, err)
		}
	})
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := r.Annotate(ctx, s.pool, map[string]string{dmv1.AnnotationVolumes: next.String()}); err != nil {
		return fmt.Errorf("record views of volumes: %w", err)
	}
	for _, v := range changed {
		r.tellView(ctx, s, v, next.Views[v.number])
	}
	s.record = next
	return nil
}

// moveVolumes does what follows from the recorded views, for those that stay.
// stopped: a primary did what it was asked, and stopped.
func (r *Reconciler) moveVolumes(ctx context.Context, s *scope, tls string) (stopped bool, err error) {
	joins := mostJoins
	for _, v := range s.volumes {
		if v.joining() {
			joins--
		}
	}
	errs := make([]error, len(s.volumes))
	for _, v := range s.volumes {
		if v.actions.Join != nil && v.reports[v.view.Primary.UID].Joins == (volumes.Proc{}) {
			if joins--; joins < 0 {
				v.actions.Join, v.actions.Waiting = nil, "other volumes are copied first"
			}
		}
	}
	servers.Each(len(s.volumes), func(i int) { errs[i] = r.tellVolume(ctx, s, s.volumes[i]) })
	var problems outcome.List
	for i, v := range s.volumes {
		problems.Add(errs[i])
		stopped = stopped || v.actions.Stop != "" && errs[i] == nil
		if v.actions.Record != nil || v.podsStay {
			continue
		}
		again := r.Now().Sub(v.madeAt(r.Now())) >= joinBackoff
		// Without its certificate no copy could start, or take changes.
		if v.actions.MakePods > 0 && again && tls != "" {
			problems.Add(r.tryCopies(ctx, s, v, tls))
		}
		for _, p := range v.actions.DeletePods {
			problems.Add(r.deleteCopy(ctx, v, p))
		}
		for _, c := range v.useless() {
			if again || !c.gone() { // it is what holds the next one back
				problems.Add(r.deleteCopy(ctx, v, volumes.Pod{Name: c.uid, Version: c.version()}))
			}
		}
		if tls != "" {
			problems.Add(r.returnPods(ctx, s, v, tls))
		}
	}
	return stopped, problems.Err()
}

// tellVolume tells servers of the recorded view, and lets copies join and primaries stop.
func (r *Reconciler) tellVolume(ctx context.Context, s *scope, v *volumeScope) error {
	var problems outcome.List
	var copies []servers.VolumeCopy
	for _, c := range v.copies {
		if !c.gone() && len(copies) < mostCopies {
			copies = append(copies, servers.VolumeCopy{Pod: c.uid, Control: build.Control(c.name, s.pool.Name, s.pool.Namespace)})
		}
	}
	call := func(uid string, f func(servers.Volume) error) {
		p := v.podOf(uid)
		if p == nil {
			return
		}
		// No failure: a server may need longer than the call, or has heard of more meanwhile. It is
		// told again, and not ever more seldom.
		if err := withVolume(&r.Base, p, s.authority, f); err != nil {
			problems.Add(outcome.WaitFor(dmv1.ReasonCopyMissing, err.Error(), volumeLook))
		}
	}
	view := v.view.Plain()
	for _, uid := range v.actions.Tell {
		call(uid, func(c servers.Volume) error { return c.Obey(ctx, v.number+1, view, copies) })
	}
	if join := v.actions.Join; join != nil {
		to := v.podOf(join.Copy.Pod)
		mirror, err := mirrorOf(s.pool, to, v.reports[join.Copy.Pod].Mirror)
		if err != nil {
			return err
		}
		call(join.Primary.Pod, func(c servers.Volume) error {
			return c.Join(ctx, v.number+1, view.Number, join.Copy, mirror, uint64(s.pool.Spec.CopyBytesPerSecond))
		})
	}
	if v.actions.Stop != "" {
		call(v.actions.Stop, func(c servers.Volume) error { return c.Stop(ctx, v.number+1, view.Number) })
	}
	return problems.Err()
}

// mostCopies is how many copies of a volume servers are told of.
const mostCopies = 8

// mirrorOf is where a copy takes changes: the port that it says, at the host that its certificate
// names.
func mirrorOf(pool *dmv1.DMMemoryPool, p *corev1.Pod, listens string) (string, error) {
	_, port, err := net.SplitHostPort(listens)
	if p == nil || err != nil || port == "" {
		return "", fmt.Errorf("find out where a copy of pool %s takes changes: %q is no address: use a newer image", pool.Name, listens)
	}
	return net.JoinHostPort(build.Host(p.Name, pool.Name, pool.Namespace), port), nil
}

// tellView tells people of a view that was recorded.
func (r *Reconciler) tellView(ctx context.Context, s *scope, v *volumeScope, view volume.View) {
	logf.FromContext(ctx).Info("record view", "volume", v.number, "view", view.Number, "primary", view.Primary.Pod, "reason", v.actions.Reason, "after", r.Now().Sub(s.looked))
	tell := func(kind, reason, verb string, about volume.Proc, note string, args ...any) {
		r.volumeEvents.count(s.pool.UID, v.number, reason)
		var related runtime.Object // no nil pod: it would be taken for one
		if p := v.podOf(about.UID); p != nil {
			related = p
		}
		r.Events.Eventf(s.pool, related, kind, reason, report.Numbered(verb, uint64(v.number)), note, args...)
	}
	was := v.view
	switch {
	case was.Number == 0:
	case was.Primary.UID != view.Primary.UID && v.moves[was.Primary.UID]:
		tell(corev1.EventTypeNormal, dmv1.ReasonVolumeMoved, "Move", view.Primary, "volume %d moved from pod %s to pod %s", v.number, was.Primary.Pod, view.Primary.Pod)
	case was.Primary.UID != view.Primary.UID:
		tell(corev1.EventTypeWarning, dmv1.ReasonFailedOver, "FailOver", view.Primary, "volume %d is served by pod %s in place of pod %s: %s", v.number, view.Primary.Pod, was.Primary.Pod, v.actions.Reason)
	case was.Backup != nil && view.Backup == nil:
		tell(corev1.EventTypeWarning, dmv1.ReasonCopyDropped, "Drop", *was.Backup, "volume %d goes on without its copy in pod %s: %s", v.number, was.Backup.Pod, v.actions.Reason)
	case was.Backup != nil && was.Backup.UID != view.Backup.UID:
		tell(corev1.EventTypeNormal, dmv1.ReasonVolumeMoved, "Move", *view.Backup, "the copy of volume %d moved from pod %s to pod %s", v.number, was.Backup.Pod, view.Backup.Pod)
	}
}

// lookAgain says when to look at volumes again of which something is waited for.
func (r *Reconciler) lookAgain(s *scope) {
	for _, v := range s.volumes {
		a := v.actions
		if v.fixed != "" && v.view.Number == 0 {
			continue // an event tells, or the next look
		}
		if a.Record != nil || v.podsStay || a.Status != volumes.InSync || len(a.Tell)+a.MakePods+len(a.DeletePods) > 0 || s.leaves(v) {
			s.volumesAgain = volumeLook
		}
	}
	if s.isUndecided(r.remembered.at(r.Now())) {
		s.volumesAgain = volumeSoon
	}
	if s.volumesAgain > 0 {
		r.watch.end(s.pool.UID)
	} else if !r.watch.watch(s) {
		s.volumesAgain = volumeLook
	}
}

// isUndecided reports whether a copy that a view names has not answered for so short a time that
// the next look may decide what becomes of its volume. After a longer time it waits for others, or
// for a person.
func (s *scope) isUndecided(now time.Duration) bool {
	silent := func(v *volumeScope, p volume.Proc) bool {
		since, is := v.memory.SilentSince(p.UID)
		return is && now-since < suspicionOf(s.pool)+volumeHurries
	}
	return slices.ContainsFunc(s.volumes, func(v *volumeScope) bool {
		return silent(v, v.view.Primary) || v.view.Backup != nil && silent(v, *v.view.Backup)
	})
}

// soon ends a look at a pool with a volume that is undecided. What failed is tried again.
func soon(ctx context.Context, err error) ctrl.Result {
	if _, failed := outcome.Result(err); failed != nil {
		logf.FromContext(ctx).Error(failed, "keep volumes")
	}
	return ctrl.Result{RequeueAfter: volumeSoon}
}

// leaves reports whether the volume is on its way out of a pod. One that is gone from the view may
// be in its deletion for days, on a node that is not heard of.
func (s *scope) leaves(v *volumeScope) bool {
	return slices.ContainsFunc(v.copies, func(c *volumeCopy) bool { return v.moves[c.uid] && (!c.going() || s.needsCopy(v.number, c)) })
}

// silent reports whether a pod was asked for its role just now and did not answer.
func (s *scope) silent(p *corev1.Pod) bool {
	for _, v := range s.volumes {
		if name := s.claims.NameOf(p); v.podOf(name) != nil && v.view.Number > 0 {
			_, answered := v.reports[name]
			return !answered
		}
	}
	return false
}
