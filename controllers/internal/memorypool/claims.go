package memorypool

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/serverpod"
	"github.com/dmindex/dmindex/controllers/internal/volume"
)

// The volumes of a pool with persistence are on disks. Each copy of one has one pod at a time, and
// a claim of the same name that outlives the pod. As long as a volume has one copy, and no view:
//
//	claim n, no pod n    pod n is made: it reads what the claim has
//	pod n that ended     is deleted, and made again once it is gone
//	too few claims       a number is taken, then its claim is made, then its pod
//	no claim n           the volume is lost, as one is whose pod is gone in other pools
//
// The claims of volumes with views are copies (volume_copy.go).
//
// So a volume is lost with its claims alone, and only claims count as volumes that there are.
// Before anything is made both claims and pods are read at the API server: a claim that a cache
// does not have yet would seem to be lost.
//
// Why never two processes have a disk: a pod is made only when no pod of its name is there, and
// nothing here removes a pod by force. What Kubernetes promises is left: the object of a pod goes
// when its kubelet said that its processes ended, or somebody who knows that they have said so (a
// node that is deleted, out-of-service, --force). If that is not true, changes of the former
// process end with its disk, and its reads of unchanged memory, which wait for no disk, are stale.
// On one node the server's lock of the directory refuses a second process; on two, the volume is
// attached to one of them (ReadWriteOnce). A server that finds another directory than that of its
// number and size refuses it.
//
// A claim that is not the pool's is not used, whatever its name is: its number is passed over. What
// a directory has counts by the incarnation that its server says: an index that was made on another
// one says that its data is lost.

// listLive lists pods and claims of the pool at the API server.
func (s *scope) listLive(ctx context.Context, from client.Reader) (err error) {
	if s.pods, err = podstate.List(ctx, from, s.pool, dmv1.ComponentMemory); err == nil {
		s.claims, err = volume.ListDisks(ctx, from, s.pool)
	}
	return err
}

// findClaims adds the claims that views name and that lost their owner or labels: nothing is lost
// with those.
func (s *scope) findClaims(ctx context.Context, from client.Reader) error {
	if s.claims == nil {
		return nil
	}
	for _, v := range s.record.Views {
		for _, named := range v.Named() {
			if s.isThere(named) {
				continue
			}
			c := &corev1.PersistentVolumeClaim{}
			switch err := from.Get(ctx, types.NamespacedName{Namespace: s.pool.Namespace, Name: named.Pod}, c); {
			case client.IgnoreNotFound(err) != nil:
				return fmt.Errorf("look for claim %s, which a view names: %w", named.Pod, err)
			case err == nil && string(c.UID) == named.UID:
				s.claims[podstate.NumberIn(c.Name)] = c
			}
		}
	}
	return nil
}

// claimless reports whether a pod can never start, since its claim is gone. One that runs has it.
func (s *scope) claimless(p *corev1.Pod) bool {
	return volume.IsPersistent(s.pool) && s.claims[podstate.ID(p)] == nil && p.Spec.NodeName == ""
}

// claimIDs are the numbers that a pool with persistence may give to pods: those of claims without a
// pod first. Copies of volumes with a view get theirs with their volume (returnPods).
func (s *scope) claimIDs(ids serverpod.Numbers) serverpod.Numbers {
	var waiting []int
	for id, c := range s.claims {
		if id > build.MaxVolume {
			continue
		}
		ids.Next = max(ids.Next, id+1)
		if _, recorded := s.record.Views[id]; recorded {
			continue
		}
		if c.DeletionTimestamp.IsZero() && !slices.ContainsFunc(s.pods, func(p *corev1.Pod) bool { return podstate.ID(p) == id }) {
			waiting = append(waiting, id)
		}
	}
	slices.Sort(waiting)
	ids.Free = slices.DeleteFunc(ids.Free, func(id int) bool { return s.claims[id] != nil })
	ids.Kept = waiting
	return ids
}

// volumesOnDisks are the volumes that claims have: of those with a view only claims that it names.
func (s *scope) volumesOnDisks() volume.IDs {
	all := volume.IDs{}
	for id, c := range s.claims {
		volume := s.record.VolumeOn(id, c)
		if _, recorded := s.record.Views[volume]; !recorded && id == volume || s.record.Names(volume, string(c.UID)) {
			all[volume] = true
		}
	}
	return all
}

// makeClaim makes the claim of a number for a copy of a volume, unless it is there.
func (r *Reconciler) makeClaim(ctx context.Context, s *scope, id, volume int) error {
	if s.claims[id] != nil {
		return nil
	}
	c := build.Claim(s.pool, id, volume)
	c.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(s.pool, kube.KindOf(s.pool))}
	if err := r.Create(ctx, c, kube.Owner); err != nil {
		return err
	}
	logf.FromContext(ctx).Info("create claim", "claim", c.Name, "reason", "a memory server is to have a disk")
	s.claims[id] = c
	return nil
}

// keepClaims protects the claims of volumes with data, lets them grow, and notes which losses were
// accepted (disks.go). A class or a quota that refuses growth refuses nothing else.
func (r *Reconciler) keepClaims(ctx context.Context, s *scope) error {
	var problems outcome.List
	for id, c := range s.claims {
		if !c.DeletionTimestamp.IsZero() {
			continue
		}
		kept, accepted, told := strings.Join(s.keepsClaim(id, c), ", "), s.lossAccepted(id), c.Annotations[dmv1.AnnotationLossAccepted]
		err := r.changeClaim(ctx, c, func(wanted *corev1.PersistentVolumeClaim) {
			for key, value := range map[string]string{dmv1.AnnotationKeptFor: kept, dmv1.AnnotationLossAccepted: accepted} {
				if delete(wanted.Annotations, key); value != "" {
					metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, key, value)
				}
			}
		})
		if err == nil && accepted != told {
			r.tellLoss(ctx, s, id)
		}
		if has, size := c.Spec.Resources.Requests[corev1.ResourceStorage], build.DiskBytes(s.pool); err == nil && has.Cmp(size) < 0 && c.Status.Phase == corev1.ClaimBound {
			err = r.changeClaim(ctx, c, func(wanted *corev1.PersistentVolumeClaim) {
				wanted.Spec.Resources.Requests[corev1.ResourceStorage] = size
			})
		}
		problems.Add(client.IgnoreNotFound(err))
	}
	return problems.Err()
}

// changeClaim changes a claim, unless somebody else did since it was read.
func (r *Reconciler) changeClaim(ctx context.Context, c *corev1.PersistentVolumeClaim, change func(*corev1.PersistentVolumeClaim)) error {
	wanted := c.DeepCopy()
	if change(wanted); equality.Semantic.DeepEqual(wanted, c) {
		return nil
	}
	if err := r.Patch(ctx, wanted, client.MergeFromWithOptions(c, client.MergeFromWithOptimisticLock{}), kube.Owner); err != nil {
		return fmt.Errorf("change claim %s: %w", c.Name, err)
	}
	wanted.DeepCopyInto(c)
	return nil
}

// keepsClaim are the indexes that a claim is kept for; none if it is released, or if nothing is
// lost with it.
func (s *scope) keepsClaim(id int, c *corev1.PersistentVolumeClaim) []string {
	volume := s.record.VolumeOn(id, c)
	if s.use.Released[c.Name] || !s.needsCopy(volume, &volumeCopy{uid: string(c.UID), name: c.Name, claim: c}) {
		return nil
	}
	return s.use.KeptFor[volume]
}

// keptClaims are the claims that are not deleted, with the indexes that they are kept for.
func (s *scope) keptClaims() (kept []string) {
	for _, id := range slices.Sorted(maps.Keys(s.claims)) {
		if names := s.keepsClaim(id, s.claims[id]); len(names) > 0 {
			kept = append(kept, s.claims[id].Name+" ("+strings.Join(names, ", ")+")")
		}
	}
	return kept
}

// claimProblem says what claims the pool's pods wait for; empty if for none.
func (s *scope) claimProblem() string {
	var list []string
	for _, c := range s.claims {
		switch {
		case !c.DeletionTimestamp.IsZero():
			list = append(list, fmt.Sprintf("claim %s is being deleted: what it has is lost with pod %s", c.Name, c.Name))
		case c.Status.Phase == corev1.ClaimLost:
			list = append(list, fmt.Sprintf("claim %s lost its volume %s: bring that back", c.Name, c.Spec.VolumeName))
		}
	}
	slices.Sort(list)
	return strings.Join(list, "; ")
}

// claimOf is the name of the claim of the volume that a pod has; empty if there is none.
func (s *scope) claimOf(p *corev1.Pod) string {
	if c := s.claims[podstate.ID(p)]; c != nil {
		return c.Name
	}
	return ""
}
