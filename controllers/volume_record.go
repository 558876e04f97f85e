package controllers

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// Which pod answers for which volume of a memory pool.
//
// A volume has the number of the pod that it was made with. As long as it never had another copy
// nothing is recorded of it, and that pod answers for it. Later its view stands in
// AnnotationVolumes of the pool, which is state (state.go): two witnesses, and each change is a
// compare-and-swap. The record says which pod answers; a label or a name never does.

// volumeRecord is AnnotationVolumes of a pool.
type volumeRecord struct {
	// Next is the number of the next pod that is made as a further copy, above build.MaxVolume. It
	// is never given twice: an annotation that names a pod shall not name a later one.
	Next int `json:"next,omitempty"`

	// Views of the volumes that ever had another copy, by number.
	Views map[int]volumeView `json:"views,omitempty"`
}

// volumeView is a view. A process that is nobody is left out.
type volumeView struct {
	Number  uint64      `json:"view"`
	Primary volumeProc  `json:"primary"`
	Backup  *volumeProc `json:"backup,omitempty"`
	Earlier *volumeProc `json:"earlier,omitempty"`
}

// volumeProc is a process of a copy, with the name of its pod for whoever looks for it. The UID is
// that of the pod, or of the claim if the pool has persistence (volumeCopy).
type volumeProc struct {
	Pod     string `json:"pod"`
	UID     string `json:"uid"`
	Process uint64 `json:"process,omitempty"`
}

func (p *volumeProc) proc() volumes.Proc {
	if p == nil {
		return volumes.Proc{}
	}
	return volumes.Proc{Pod: p.UID, Process: p.Process}
}

func (v volumeView) view() volumes.View {
	return volumes.View{Number: v.Number, Primary: v.Primary.proc(), Backup: v.Backup.proc(), Earlier: v.Earlier.proc()}
}

// named are the processes that the view names: the primary first.
func (v volumeView) named() (all []volumeProc) {
	all = append(all, v.Primary)
	for _, p := range []*volumeProc{v.Backup, v.Earlier} {
		if p != nil {
			all = append(all, *p)
		}
	}
	return all
}

// recordOf is what is recorded of the volumes of a pool.
func recordOf(pool client.Object) (r volumeRecord, err error) {
	text := pool.GetAnnotations()[dmv1.AnnotationVolumes]
	if text == "" {
		return r, nil
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, fmt.Errorf("annotation %s of pool %s cannot be read (%w): run the operator that wrote it, or put the annotation back as it was", dmv1.AnnotationVolumes, pool.GetName(), err)
	}
	for number, v := range r.Views {
		if number < 0 || number > build.MaxVolume || v.Number == 0 || v.Primary.UID == "" {
			return r, fmt.Errorf("annotation %s of pool %s says nothing sensible of volume %d: put the annotation back as it was", dmv1.AnnotationVolumes, pool.GetName(), number)
		}
	}
	return r, nil
}

// String is what the annotation says; empty if there is nothing to say.
func (r volumeRecord) String() string {
	if r.Next == 0 && len(r.Views) == 0 {
		return ""
	}
	text, err := json.Marshal(r) // with sorted keys
	if err != nil {
		panic(fmt.Sprintf("encode %+v: %v", r.Views, err)) // numbers and strings can be encoded
	}
	return string(text)
}

// podOf is the name of the pod that answers for a volume of a pool.
func (r volumeRecord) podOf(pool string, volume int) string {
	if v, is := r.Views[volume]; is {
		return v.Primary.Pod
	}
	return build.PodName(pool, volume)
}

// needs reports whether a volume may be lost with what a memory pod has: its view names that, or it
// has no view.
func (r volumeRecord) needs(p *corev1.Pod, d disks) bool {
	if _, recorded := r.Views[podstate.VolumeOf(p)]; !recorded {
		return podstate.ID(p) <= build.MaxVolume
	}
	return r.names(podstate.VolumeOf(p), d.nameOf(p))
}

// names reports whether the view of a volume names a copy.
func (r volumeRecord) names(volume int, uid string) bool {
	return slices.ContainsFunc(r.Views[volume].named(), func(named volumeProc) bool { return named.UID == uid })
}

// answering are those of a pool's memory pods that answer for a volume, ascending by its number. No
// other is asked what it holds: a further copy has the incarnation of its volume and knows of no
// index, or not of all of them. elsewhere are the volumes of which another pod has a copy that is
// named, too: the volume is not lost with the pod that answers for it.
func (r volumeRecord) answering(pods []*corev1.Pod, d disks) (answering []*corev1.Pod, elsewhere idSet) {
	for _, p := range pods {
		if _, recorded := r.Views[podstate.VolumeOf(p)]; !recorded && podstate.ID(p) <= build.MaxVolume {
			answering = append(answering, p)
		}
	}
	elsewhere = idSet{}
	for volume, view := range r.Views {
		for i, named := range view.named() {
			switch p := named.among(pods, d); {
			case p == nil:
			case i == 0:
				answering = append(answering, p)
			case !podstate.Ended(p):
				elsewhere[volume] = true
			}
		}
	}
	slices.SortStableFunc(answering, func(a, b *corev1.Pod) int { return podstate.VolumeOf(a) - podstate.VolumeOf(b) })
	return answering, elsewhere
}

// among is the process's pod among pods; nil if it is not there.
func (p volumeProc) among(pods []*corev1.Pod, d disks) *corev1.Pod {
	i := slices.IndexFunc(pods, func(q *corev1.Pod) bool { return d.nameOf(q) == p.UID })
	if i < 0 {
		return nil
	}
	return pods[i]
}
