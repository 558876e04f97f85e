package memorypool

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/volume"
)

// Copies on disks
//
// What a copy has is lost with its pod, or in a pool with persistence with its claim. Views name
// whichever it is, by its UID, and the servers of claims are told that name (--pod). One that was
// made before its volume had a view is told by the first view, and stores it on the disk. So the
// processes of a claim, in pods that come and go, are to package volumes what the processes of a
// pod are that restarts, with its memory read back from the disk:
//
//	claim is there, no pod, or no answer   the copy is silent. A pod is made (returnPods)
//	claim is not there                     the copy is gone, and what it had
//	all pods of a volume go                the primary's process comes back stopped, or the other
//	                                       copy has missed it and opens. Nobody has lost anything.
//	                                       A process of a backup that begins anew has nothing: its
//	                                       disk follows, and answers do not wait for it
//	claim is deleted by somebody           it is there until its pod goes: the volume leaves it
//	claim is not needed                    it is deleted, then its pod (deleteCopy)
//
// A claim is taken for gone only if it is not at the API server (listNamed): neither because a
// cache does not have it, nor because it lost its owner or its labels (findClaims). Before a view
// is recorded its claims are marked, and their pods: whoever looked before deletes neither. Without
// a claim nothing of a volume comes back, so no claim goes for what a process says of its disk, as
// long as the view names any: another disk may be mounted there (useless).
//
// # Two processes of one claim
//
// A pod is deleted by force, or with its node, while its process goes on behind a network that is
// cut. Its claim gets another pod, whose process has the same name in views. Who answers:
//
//	view       the former process answers                    the next process
//	backup B   while B permits it: B takes the changes of    is stopped. It serves in a view
//	           one process, and opens once that is over      that names it alone
//	alone      as long as it lives: it waits for nobody      waits for nobody either, and serves
//
// With a backup that can be heard, that backup takes the volume over, and the former process is
// silent before it serves: the view says who, whatever became of the node. The view names the next
// process alone where the backup has ended, or does not answer either. Of these two the first is
// followed by up to a second, and the second by any time, in which the former process may answer
// with the permission that it has. Then as in a view of one copy, what is answered twice is bounded
// by the disk: it is attached to one node, so the former process cannot store a change any more,
// and ends with the first that it tries. Its reads of unchanged memory are stale. As of a
// StatefulSet, who deletes a pod by force says that its processes have ended.

// volumeCopy is a copy of a volume: a pod, or a claim, which has a pod of its name most of the
// time.
type volumeCopy struct {
	uid   string                        // by which views name it
	name  string                        // of the pod, and of the claim
	pod   *corev1.Pod                   // nil: the claim has none at present
	claim *corev1.PersistentVolumeClaim // nil: the pool has no persistence
}

// copyOf is the copy that a pod is, or has.
func copyOf(p *corev1.Pod, d volume.Disks) *volumeCopy {
	return &volumeCopy{uid: d.NameOf(p), name: p.Name, pod: p, claim: d[podstate.ID(p)]}
}

// copiesThere are all copies of volumes that a pool has, ascending by number, with the numbers of
// their volumes. A pod whose claim is gone has none.
func (s *scope) copiesThere() (all []*volumeCopy, volumes []int) {
	if s.claims == nil {
		for _, p := range s.pods {
			all, volumes = append(all, copyOf(p, s.claims)), append(volumes, podstate.VolumeOf(p))
		}
		return all, volumes
	}
	byNumber := map[int]*corev1.Pod{}
	for _, p := range s.pods {
		byNumber[podstate.ID(p)] = p
	}
	for _, id := range s.claims.Numbers() {
		c := s.claims[id]
		all = append(all, &volumeCopy{uid: string(c.UID), name: c.Name, pod: byNumber[id], claim: c})
		volumes = append(volumes, s.record.VolumeOn(id, c))
	}
	return all, volumes
}

// id is the number of the copy.
func (c *volumeCopy) id() int { return podstate.NumberIn(c.name) }

// objects are those that are marked before a view names the copy: all whose deletion may end it.
func (c *volumeCopy) objects() (all []client.Object) {
	if c.claim != nil {
		all = append(all, c.claim)
	}
	if c.pod != nil {
		all = append(all, c.pod)
	}
	return all
}

// version is that of the object that the copy is lost with.
func (c *volumeCopy) version() string { return c.objects()[0].GetResourceVersion() }

// gone reports whether what the copy had is lost, going whether it will be.
func (c *volumeCopy) gone() bool  { return c.claim == nil && podstate.Ended(c.pod) }
func (c *volumeCopy) going() bool { return c.objects()[0].GetDeletionTimestamp() != nil }

// away reports whether no process of a copy is there that is not gone: its claim has no pod, or one
// that ended.
func (c *volumeCopy) away() bool { return c.claim != nil && (c.pod == nil || podstate.Ended(c.pod)) }
