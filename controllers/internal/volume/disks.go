package volume

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
)

// IsPersistent reports whether what the pool's servers hold is on disks.
func IsPersistent(pool *dmv1.DMMemoryPool) bool {
	return pool.Spec.Persistence != nil && pool.Spec.Transport != dmv1.TransportRDMA
}

// Disks are the claims of a pool with persistence, by number; nil for any other pool.
type Disks map[int]*corev1.PersistentVolumeClaim

// ListDisks are the claims of a pool, by number; nil for a pool without persistence.
func ListDisks(ctx context.Context, from client.Reader, pool *dmv1.DMMemoryPool) (Disks, error) {
	if !IsPersistent(pool) {
		return nil, nil
	}
	list := &corev1.PersistentVolumeClaimList{}
	err := from.List(ctx, list, client.InNamespace(pool.Namespace),
		client.MatchingLabels{dmv1.LabelManagedBy: dmv1.ManagedBy, dmv1.LabelPool: pool.Name, dmv1.LabelComponent: dmv1.ComponentMemory})
	if err != nil {
		return nil, fmt.Errorf("list the claims of pool %s: %w", pool.Name, err)
	}
	claims := Disks{}
	for i := range list.Items {
		c := &list.Items[i]
		if id := podstate.NumberIn(c.Name); metav1.IsControlledBy(c, pool) && id >= 0 && c.Name == build.PodName(pool.Name, id) {
			claims[id] = c
		}
	}
	return claims, nil
}

// IsThere reports whether there is a claim at the API server that a view names, or, without a
// UID, one of the name. One that is not the pool's may have lost its owner: then nobody knows that
// the volume is lost.
func IsThere(ctx context.Context, from client.Reader, pool *dmv1.DMMemoryPool, named Proc) (bool, error) {
	c := &corev1.PersistentVolumeClaim{}
	err := from.Get(ctx, types.NamespacedName{Namespace: pool.Namespace, Name: named.Pod}, c)
	return err == nil && (named.UID == "" || string(c.UID) == named.UID), client.IgnoreNotFound(err)
}

// NameOf is by what views name the copy that a pod has; empty for a pod whose claim is gone.
func (d Disks) NameOf(p *corev1.Pod) string {
	if d == nil {
		return string(p.UID)
	}
	if c := d[podstate.ID(p)]; c != nil {
		return string(c.UID)
	}
	return ""
}

// Numbers are those of the claims, ascending.
func (d Disks) Numbers() (ids []int) {
	for id := range d {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// VolumeOn is the number of the volume that a claim has a copy of; -1 if it is not known. People
// can change labels: what a view says comes first.
func (r Record) VolumeOn(id int, c *corev1.PersistentVolumeClaim) int {
	if id <= build.MaxVolume {
		return id
	}
	for number := range r.Views {
		if r.Names(number, string(c.UID)) {
			return number
		}
	}
	if number, err := strconv.Atoi(c.Labels[dmv1.LabelVolume]); err == nil && number >= 0 && number <= build.MaxVolume {
		return number
	}
	return -1
}
