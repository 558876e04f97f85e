package memorypool

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/serverpod"
	"github.com/dmindex/dmindex/controllers/internal/volume"
)

// freeIDs are the numbers that a memory pool may give to pods with volumes of their own. pods are
// all that there are; on servers of those in made indexes were made. A volume that record has may
// be in another pod than the one with its number.
func freeIDs(pool client.Object, pods []*corev1.Pod, record volume.Record, made volume.IDs) (ids serverpod.Numbers, err error) {
	ids = serverpod.Numbers{Next: podstate.NextVolume(pool, pods), Again: true}
	used, err := volume.UsedIDs(pool, ids.Next)
	if err != nil {
		return ids, err
	}
	maps.Copy(used, made)
	for id := range made {
		ids.Next = max(ids.Next, id+1) // the annotation may have been lost
	}
	for id := range ids.Next {
		is := func(p *corev1.Pod) bool { return podstate.VolumeOf(p) == id }
		if _, elsewhere := record.Views[id]; !elsewhere && !used[id] && !slices.ContainsFunc(pods, is) {
			ids.Free = append(ids.Free, id)
		}
	}
	ids.Also = map[string]string{dmv1.AnnotationUsedIDs: used.String()}
	return ids, nil
}
