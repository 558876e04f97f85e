package memorypool

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/report"
	"github.com/dmindex/dmindex/controllers/internal/serverpod"
	"github.com/dmindex/dmindex/controllers/internal/servers"
	"github.com/dmindex/dmindex/controllers/internal/volume"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// Servers are told about their disks by annotations of their pods, which each start of a container
// has as variables (build.keepOnDisk).
//
// # Disks that have been used
//
// An empty disk may be mounted in the place of a server's: by a node that did not mount it after it
// was started again, or with another volume behind the same claim. A server that began anew there
// would be one that lost its data, and an index with onDataLoss: Recreate would be made anew. So
// from before it has data it is told to refuse such a disk, and its indexes wait for it:
//
//	memory server describes itself    its directory is made
//	pod: used                         by whoever chooses the server for an index (volume.MarkUsed)
//	index: memory                     as in volume/ids.go
//	each pod: used                    of a server that an index recorded; new ones at once
//	index: created                    once the pods of all of its servers have it (configure)
//	clients                           are acknowledged their first change
//
// What is left are moments in which an empty disk is lost data, as it always would be without this:
// a kubelet that starts the container once more before it has heard of the annotation; a pod that
// is made again while the cache lacks the index's record; a server that joins an index which is
// served, whose first change does not wait for its pod. Then the incarnation is another one, and
// the index says that its data is lost.
// Once no index has recorded the server, new pods are not told any more. A disk that is lost for
// good goes with its claim: nothing else makes the server begin anew.
//
// Where the volume has a view, the pods are told of the copies that it needs (needsDisk), and of no
// other: those may begin with an empty disk. A needed copy that refuses its disk is silent. With
// another copy the volume goes on there, and what the disk had is not needed once that one serves.
//
// # Losses that a person accepts
//
// With persistence.sync 5ms or Off the loss of a node's power may take what was acknowledged last.
// A server that finds a directory of which that may be true ends, at each start, unless it is told
// to open it. Then it fences all clients of before, since their caches may have what it lacks.
// AnnotationAcceptLoss of the pool names pods whose servers are told so:
//
//	named, claim not marked, container does not run    its pod is deleted
//	the pod is made again                              with the annotation, which the server reads
//	named, claim not marked, server answers            the claim is marked
//	claim marked, or not named                         the pod loses the annotation
//	not named                                          the claim loses the mark
//
// The server of a volume with two copies listens before it opens its disk. It says in its report
// that it does not, and counts as one whose container does not run. A copy that needs no disk, as
// another one serves, counts as one that answers.
//
// So a name counts once, for a disk that is not open now, whether its files turn out to be whole or
// not. Of a server that answers it accepts nothing, nor does it later: whoever names a pod has not
// seen what its disk will lack some day. Each look takes the step that is next, whoever leads. The
// mark is written before the pod loses its annotation: the other way round the next pod of that
// name would have it again. A container that starts in between is told once more, and fences its
// clients once more. If its node lost its power again by then, it accepts that loss as well: for as
// long as no operator has looked since it answered. Whoever may change pods could tell it so, too.
//
// A container that runs is left alone: it may be reading its disk. One that ends again and again is
// told although it may end for another reason, which stays. No damage is accepted: a server never
// opens a directory that is damaged.

// lossNamed reports whether somebody accepts that the disk of a volume may lack something.
func (s *scope) lossNamed(id int) bool {
	return volume.IsPersistent(s.pool) && podNamesIn(s.pool.Annotations[dmv1.AnnotationAcceptLoss])[build.PodName(s.pool.Name, id)]
}

// acceptsLoss reports whether the server of a claim is to be told so.
func (s *scope) acceptsLoss(id int) bool {
	c := s.claims[id]
	return c != nil && s.lossNamed(id) && c.Annotations[dmv1.AnnotationLossAccepted] == ""
}

// lossAccepted is what a claim is to say of it; empty = nothing.
func (s *scope) lossAccepted(id int) string {
	switch {
	case !s.lossNamed(id):
		return ""
	case s.opened(id):
		return "true"
	}
	return s.claims[id].Annotations[dmv1.AnnotationLossAccepted]
}

// opened reports whether the server of a claim answers, and has opened its disk or does not need
// it.
func (s *scope) opened(id int) bool {
	if s.described[id] != nil && slices.ContainsFunc(s.answering, func(p *corev1.Pod) bool { return podstate.ID(p) == id }) {
		return true
	}
	r, answered := s.reportOf(id)
	return answered && (r.Role == volumes.Primary || r.Role == volumes.Backup || r.Role == volumes.Joining && r.Was == (volumes.Proc{}))
}

// reportOf is what the server of a claim said, if its volume has a view and it was asked.
func (s *scope) reportOf(id int) (r servers.VolumeReport, answered bool) {
	for _, v := range s.volumes {
		if c := s.claims[id]; c != nil && v.view.Number > 0 && v.copyOf(string(c.UID)) != nil {
			r, answered = v.reports[string(c.UID)]
		}
	}
	return r, answered
}

// shut reports whether the server of a claim listens, and does not open its disk for what that may
// lack.
func (s *scope) shut(id int) bool {
	r, answered := s.reportOf(id)
	return answered && (r.Role == volumes.Stopped || r.Was != volumes.Proc{}) && strings.Contains(r.Problem, config.PersistMayLack)
}

// needsDisk reports whether a volume may be lost with what the disk of a pod has. That of the
// earlier primary is not needed any more once another one serves in the view.
func (s *scope) needsDisk(p *corev1.Pod) bool {
	name := s.claims.NameOf(p)
	for _, v := range s.volumes {
		r := v.reports[v.view.Primary.UID]
		serves := r.Role == volumes.Primary && r.View.Number == v.view.Number
		if e := v.view.Earlier; serves && e != nil && e.UID == name && v.number == podstate.VolumeOf(p) && name != v.view.Primary.UID {
			return false
		}
	}
	return s.record.Needs(p, s.claims)
}

// tellDisk tells a new pod about its disk.
func (s *scope) tellDisk(p *corev1.Pod) {
	if volume.IsPersistent(s.pool) && s.recorded[podstate.VolumeOf(p)] && s.needsDisk(p) {
		p.Annotations[dmv1.AnnotationUsed] = "true"
	}
	if s.acceptsLoss(podstate.ID(p)) {
		p.Annotations[dmv1.AnnotationAcceptLoss] = "true"
	}
}

// keepDisks lets the pods of accepted losses be made again, and takes back from pods what does not
// hold any more.
func (r *Reconciler) keepDisks(ctx context.Context, s *scope) error {
	if !volume.IsPersistent(s.pool) {
		return nil
	}
	var problems outcome.List
	for _, p := range s.pods {
		_, recorded := s.record.Views[podstate.VolumeOf(p)]
		if s.claims[podstate.ID(p)] == nil && (recorded || podstate.ID(p) > build.MaxVolume) && !podstate.Going(p) && (podstate.Ended(p) || p.Spec.NodeName == "") {
			// No volume with a view needs it, unless the cache does not have the claim yet.
			there, err := volume.IsThere(ctx, r.Live, s.pool, volume.Proc{Pod: p.Name})
			if err == nil && !there {
				err = serverpod.Delete(ctx, &r.Base, p, "its claim is gone")
			}
			problems.Add(err)
		}
		if podstate.Going(p) || podstate.Ended(p) {
			continue
		}
		if needed := s.needsDisk(p); needed && s.recorded[podstate.VolumeOf(p)] {
			problems.Add(client.IgnoreNotFound(volume.TellUsed(ctx, &r.Base, p)))
		} else if !needed && recorded {
			problems.Add(client.IgnoreNotFound(r.Annotate(ctx, p.DeepCopy(), map[string]string{dmv1.AnnotationUsed: ""})))
		}
		told, accepts := p.Annotations[dmv1.AnnotationAcceptLoss] != "", s.acceptsLoss(podstate.ID(p))
		switch {
		case told && !accepts:
			err := r.Annotate(ctx, p.DeepCopy(), map[string]string{dmv1.AnnotationAcceptLoss: ""})
			problems.Add(client.IgnoreNotFound(err))
		case accepts && !told && (podstate.Stuck(p) && !s.opened(podstate.ID(p)) || s.shut(podstate.ID(p))):
			problems.Add(serverpod.Delete(ctx, &r.Base, p, "annotation "+dmv1.AnnotationAcceptLoss+" of the pool names it: it comes back, and opens its disk"))
		}
	}
	return problems.Err()
}

// tellLoss tells of a server that opened its disk, if it was told to.
func (r *Reconciler) tellLoss(ctx context.Context, s *scope, id int) {
	i := slices.IndexFunc(s.pods, func(p *corev1.Pod) bool {
		return podstate.ID(p) == id && p.Annotations[dmv1.AnnotationAcceptLoss] != ""
	})
	if i < 0 || !s.lossNamed(id) {
		return
	}
	p := s.pods[i]
	r.Events.Eventf(s.pool, p, corev1.EventTypeWarning, "LossAccepted", report.Numbered("AcceptLoss", uint64(id)),
		"pod %s opened its disk, which may lack what was acknowledged before its node stopped; all clients of before are fenced", p.Name)
	logf.FromContext(ctx).Info("accept loss", "pod", p.Name, "reason", "annotation "+dmv1.AnnotationAcceptLoss+" of the pool names it")
}

// mayLack reports whether the server of a pod does not open its disk for what that may lack.
func mayLack(p *corev1.Pod) bool {
	c := podstate.ContainerStatus(p)
	if c == nil || c.State.Running != nil {
		return false
	}
	for _, t := range []*corev1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
		if t != nil {
			return strings.Contains(t.Message, config.PersistMayLack)
		}
	}
	return false
}

// lossProblem says which servers do not open their disks for what those may lack, and what to do;
// empty if none does.
func (s *scope) lossProblem() string {
	var names, spent []string
	for _, p := range s.pods {
		switch {
		case podstate.Going(p) || podstate.Ended(p) || !mayLack(p) && !s.shut(podstate.ID(p)):
		case s.lossNamed(podstate.ID(p)) && !s.acceptsLoss(podstate.ID(p)):
			spent = append(spent, p.Name)
		default:
			names = append(names, p.Name)
		}
	}
	if len(names)+len(spent) == 0 {
		return ""
	}
	text := fmt.Sprintf("the disk of %s may lack what was acknowledged before its node lost its power or the disk failed, and is not opened. An index that has memory there alone is as it was a moment before, one with several memory servers may not fit together: "+
		"restore a backup into another index, or annotate the pool with %s=POD,... to open it", strings.Join(slices.Concat(names, spent), ", "), dmv1.AnnotationAcceptLoss)
	if len(spent) > 0 {
		text += fmt.Sprintf("; the annotation names %s from an earlier loss: remove the name first", strings.Join(spent, ", "))
	}
	return text
}

// unknownLosses are names of AnnotationAcceptLoss that no pod with a disk can have.
func (s *scope) unknownLosses() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(podNamesIn(s.pool.Annotations[dmv1.AnnotationAcceptLoss]))) {
		if !volume.IsPersistent(s.pool) || s.claims[podstate.NumberIn(name)] == nil || s.claims[podstate.NumberIn(name)].Name != name {
			names = append(names, name)
		}
	}
	return names
}
