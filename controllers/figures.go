package controllers

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/kube"
)

// figuresEvery is how often a status is written at most in which nothing changed but how much is in
// use. However busy an index is, and however often it is looked at, that is what the API server has
// to do for it.
const figuresEvery = 10 * time.Second

// mostFigures bounds what is remembered. When it is full it is forgotten, and some figures are
// written a little early.
const mostFigures = 4096

// figures remembers when statuses were written last.
type figures struct {
	mu    sync.Mutex
	wrote map[types.UID]time.Time
}

func newFigures() *figures { return &figures{wrote: map[types.UID]time.Time{}} }

// due reports whether the figures of an object may be written again.
func (f *figures) due(object types.UID, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	last, known := f.wrote[object]
	return !known || now.Sub(last) >= figuresEvery
}

func (f *figures) written(object types.UID, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.wrote) >= mostFigures {
		clear(f.wrote)
	}
	f.wrote[object] = now
}

// writeStatus writes the status of object if it is due. before and after are the statuses; held is
// after with the figures of before.
func writeStatus[S any](ctx context.Context, b *base, object client.Object, before, after, held *S) error {
	now := b.now()
	if equality.Semantic.DeepEqual(before, after) || equality.Semantic.DeepEqual(before, held) && !b.figures.due(object.GetUID(), now) {
		return nil
	}
	b.figures.written(object.GetUID(), now)
	return kube.ApplyStatus(ctx, &b.Writer, object, before, after)
}

// holdIndex is a status with the figures of an earlier one.
func holdIndex(status, before *dmv1.DMIndexStatus) *dmv1.DMIndexStatus {
	held := status.DeepCopy()
	for i := range held.MemoryServers {
		if m := &held.MemoryServers[i]; i < len(before.MemoryServers) && before.MemoryServers[i].ID == m.ID {
			m.UsedChunks = before.MemoryServers[i].UsedChunks
		}
	}
	return held
}

// holdMemoryPool is the same of a memory pool.
func holdMemoryPool(status, before *dmv1.DMMemoryPoolStatus) *dmv1.DMMemoryPoolStatus {
	held := status.DeepCopy()
	held.Used = before.Used
	for i := range held.Servers {
		if m := &held.Servers[i]; i < len(before.Servers) && before.Servers[i].Pod == m.Pod {
			m.ChunksUsed = before.Servers[i].ChunksUsed
		}
	}
	for i := range held.Volumes {
		if v := &held.Volumes[i]; i < len(before.Volumes) && before.Volumes[i].ID == v.ID && before.Volumes[i].Percent > 0 && v.Percent > 0 {
			v.Percent = before.Volumes[i].Percent
		}
	}
	for i := range held.Grants {
		if g := &held.Grants[i]; i < len(before.Grants) && before.Grants[i].Identity == g.Identity {
			g.ChunksUsed = before.Grants[i].ChunksUsed
		}
	}
	return held
}
