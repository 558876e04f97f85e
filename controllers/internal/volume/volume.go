// Package volume is what memory pools and indexes both have to know of the volumes of a pool: which
// pod answers for each, which claims they are on, which of their numbers are used up, and which
// indexes would lose what with them.
package volume

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

// Which pod answers for which volume.
//
// A volume has the number of the pod that it was made with. As long as it never had another copy
// nothing is recorded of it, and that pod answers for it. Later its view stands in
// AnnotationVolumes of the pool, which is state (decision.Keeper): two witnesses, and each change
// is a compare-and-swap. The record says which pod answers; a label or a name never does.

// Record is AnnotationVolumes of a pool.
type Record struct {
	// Next is the number of the next pod that is made as a further copy, above build.MaxVolume. It
	// is never given twice: an annotation that names a pod shall not name a later one.
	Next int `json:"next,omitempty"`

	// Views of the volumes that ever had another copy, by number.
	Views map[int]View `json:"views,omitempty"`
}

// View says which processes have a volume. One that is nobody is left out.
type View struct {
	Number  uint64 `json:"view"`
	Primary Proc   `json:"primary"`
	Backup  *Proc  `json:"backup,omitempty"`
	Earlier *Proc  `json:"earlier,omitempty"`
}

// Proc is a process of a copy, with the name of its pod for whoever looks for it. The UID is that
// of the pod, or of the claim if the pool has persistence (Disks).
type Proc struct {
	Pod     string `json:"pod"`
	UID     string `json:"uid"`
	Process uint64 `json:"process,omitempty"`
}

// Plain is the process as package volumes has it; the zero value for nil.
func (p *Proc) Plain() volumes.Proc {
	if p == nil {
		return volumes.Proc{}
	}
	return volumes.Proc{Pod: p.UID, Process: p.Process}
}

// Plain is the view as package volumes has it.
func (v View) Plain() volumes.View {
	return volumes.View{Number: v.Number, Primary: v.Primary.Plain(), Backup: v.Backup.Plain(), Earlier: v.Earlier.Plain()}
}

// Named are the processes that the view names: the primary first.
func (v View) Named() (all []Proc) {
	all = append(all, v.Primary)
	for _, p := range []*Proc{v.Backup, v.Earlier} {
		if p != nil {
			all = append(all, *p)
		}
	}
	return all
}

// RecordOf is what is recorded of the volumes of a pool.
func RecordOf(pool client.Object) (r Record, err error) {
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
func (r Record) String() string {
	if r.Next == 0 && len(r.Views) == 0 {
		return ""
	}
	text, err := json.Marshal(r) // with sorted keys
	if err != nil {
		panic(fmt.Sprintf("encode %+v: %v", r.Views, err)) // numbers and strings can be encoded
	}
	return string(text)
}

// PodOf is the name of the pod that answers for a volume of a pool.
func (r Record) PodOf(pool string, volume int) string {
	if v, is := r.Views[volume]; is {
		return v.Primary.Pod
	}
	return build.PodName(pool, volume)
}

// Needs reports whether a volume may be lost with what a memory pod has: its view names that, or it
// has no view.
func (r Record) Needs(p *corev1.Pod, d Disks) bool {
	if _, recorded := r.Views[podstate.VolumeOf(p)]; !recorded {
		return podstate.ID(p) <= build.MaxVolume
	}
	return r.Names(podstate.VolumeOf(p), d.NameOf(p))
}

// Names reports whether the view of a volume names a copy.
func (r Record) Names(volume int, uid string) bool {
	return slices.ContainsFunc(r.Views[volume].Named(), func(named Proc) bool { return named.UID == uid })
}

// Answering are those of a pool's memory pods that answer for a volume, ascending by its number. No
// other is asked what it holds: a further copy has the incarnation of its volume and knows of no
// index, or not of all of them. elsewhere are the volumes of which another pod has a copy that is
// named, too: the volume is not lost with the pod that answers for it.
func (r Record) Answering(pods []*corev1.Pod, d Disks) (answering []*corev1.Pod, elsewhere IDs) {
	for _, p := range pods {
		if _, recorded := r.Views[podstate.VolumeOf(p)]; !recorded && podstate.ID(p) <= build.MaxVolume {
			answering = append(answering, p)
		}
	}
	elsewhere = IDs{}
	for volume, view := range r.Views {
		for i, named := range view.Named() {
			switch p := named.Among(pods, d); {
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

// Among is the process's pod among pods; nil if it is not there.
func (p Proc) Among(pods []*corev1.Pod, d Disks) *corev1.Pod {
	i := slices.IndexFunc(pods, func(q *corev1.Pod) bool { return d.NameOf(q) == p.UID })
	if i < 0 {
		return nil
	}
	return pods[i]
}
