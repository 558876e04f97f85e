package memorypool

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/volume"
)

// Nobody can give a pod another template. So a volume leaves a pod that was made of an old one as
// it leaves a node (volumes.go): another pod gets a copy, then its place, then the old
// pod is deleted. Where volumes have two copies it leaves pods with another image in the same way.
//
//	two copies   a backup before its primary, one volume after the other, and only while each
//	             volume of the pool has its backup
//	one copy     one volume after the other; images are changed in place
//
// A new pod that does not start, or finds no node, changes nothing: the volume stays where it is.
//
// What a pod was made of stands in AnnotationTemplate: a hash of what the pool said, and not of
// what is in the pod. Admission changes pods, and a pod that never looks as wanted would be left
// without an end. Pods of operators that did not write it count as made of what the pool said when
// the first operator saw them that does: nothing is moved because the operator is another one.

// templateOf is a hash of what the pods of a memory pool are made of, but for the image. What
// is said of pools that use nothing new must stay as it was, or an upgrade would move their
// volumes.
func templateOf(pool *dmv1.DMMemoryPool) (string, error) {
	made := map[string]any{"pod": pool.Spec.Pod}
	if pool.Spec.RDMA != nil {
		made["rdma"] = pool.Spec.RDMA
	}
	if pool.Spec.Spread != nil {
		made["spread"] = pool.Spec.Spread
	}
	return kube.Hash(made)
}

// oldTemplate reports whether a pod was made of another template than the pool has now.
func (s *scope) oldTemplate(p *corev1.Pod) bool {
	made := p.Annotations[dmv1.AnnotationTemplate]
	return made != "" && made != s.template
}

// oldTemplates is how many pods that are to go on were made of another template.
func (s *scope) oldTemplates() (n int) {
	for _, p := range s.pods {
		if !podstate.Going(p) && !podstate.Ended(p) && s.oldTemplate(p) {
			n++
		}
	}
	return n
}

// keepOldTemplates is what the condition of a pool says whose servers all answer, and some of whose
// pods were made of an old template. reason is that of a pool without such pods.
func (s *scope) keepOldTemplates(reason string) (why, message string) {
	n, all := s.oldTemplates(), len(s.pods)
	switch {
	case s.pool.Spec.Transport == dmv1.TransportRDMA:
		return reason, fmt.Sprintf("all memory servers answer; %d of %d pods were made of an older spec.pod or spec.rdma and keep it, since memory with RDMA cannot be moved: make a new pool for what is to have the newer one", n, all)
	case volume.IsPersistent(s.pool) && s.copies() < 2:
		return reason, fmt.Sprintf("all memory servers answer; %d of %d pods were made of an older spec.pod and keep it: delete them one after the other, and they come back with the newer one and their disks", n, all)
	case s.pool.Spec.Paused:
		return reason, fmt.Sprintf("all memory servers answer; %d of %d pods were made of an older spec.pod and keep it while the pool is paused", n, all)
	}
	return dmv1.ReasonReplacing, fmt.Sprintf("%d of %d pods were made of an older spec.pod: what they hold is moved to new pods, one after the other", n, all)
}

// leaveOld lets one pod of the pool be left that is old: its template, or where volumes have two
// copies its image, is another one than the pool has now. all are the volumes of the pool with
// their pods.
func (s *scope) leaveOld(all []*volumeScope) {
	if s.pool.Spec.Paused || s.image == "" || s.patchErr != nil || volume.IsPersistent(s.pool) && s.copies() < 2 {
		return // the only copies on disks stay: their next pods have the newer template
	}
	spares := false
	for _, v := range all {
		spares = s.leaveSpares(v) || spares
	}
	if spares {
		return // they go first
	}
	twice := s.copies() > 1
	for _, v := range all {
		if twice && v.view.Backup == nil {
			return // it gets another copy first
		}
	}
	for _, v := range all {
		p := s.oldPodOf(v, twice)
		if p == nil {
			continue
		}
		name := s.claims.NameOf(p)
		v.renewed = !v.moves[name]
		v.moves[name] = true
		return
	}
}

// oldPodOf is the old pod of a volume that is left next; nil if there is none.
func (s *scope) oldPodOf(v *volumeScope, twice bool) *corev1.Pod {
	old := func(p *corev1.Pod) bool {
		return p != nil && !podstate.Going(p) && !podstate.Ended(p) && (s.oldTemplate(p) || twice && podstate.Asked(p) != s.image)
	}
	switch primary := v.podOf(v.view.Primary.UID); {
	case v.view.Number == 0 && old(v.copies[0].pod):
		return v.copies[0].pod
	case twice && old(v.podOf(v.view.Backup.UID)):
		return v.podOf(v.view.Backup.UID)
	case v.view.Number > 0 && old(primary):
		return primary
	}
	return nil
}

// leaveSpares lets pods be left that no view names and that are old, so that others are made in
// their place: those that do not run, as with an image that was mistyped, and all of a volume whose
// primary is new. Any other one is as good for a copy as it was, and there may be no node for a new
// one.
func (s *scope) leaveSpares(v *volumeScope) (some bool) {
	primary := v.podOf(v.view.Primary.UID)
	if primary == nil {
		return false
	}
	renewed := !s.oldTemplate(primary) && podstate.Asked(primary) == s.image
	for _, c := range v.copies {
		p := c.pod
		if p == nil || c.going() || s.needsCopy(v.number, c) {
			continue
		}
		if image := podstate.Asked(p) == s.image || podstate.Asked(p) == s.imageOfCopy(v); image && !s.oldTemplate(p) {
			continue
		}
		if runs := p.Status.Phase == corev1.PodRunning && !podstate.Stuck(p); renewed || !runs {
			v.moves[c.uid], some = true, true
		}
	}
	return some
}

// imageInPlace is the image that a pod has for decide: the wanted one if the volume
// leaves the pod anyway. A restart in place would end the copy that is made.
func (s *scope) imageInPlace(p *corev1.Pod) string {
	for _, v := range s.volumes {
		name := s.claims.NameOf(p)
		if _, answered := v.reports[name]; answered && v.renewed && v.fixed == "" && v.podOf(name) != nil {
			return s.image
		}
	}
	return podstate.Asked(p)
}
