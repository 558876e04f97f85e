package report

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dmindex/dmindex/controllers/internal/kube"
)

// figuresEvery is how often a status is written at most in which nothing changed but how much is in
// use. However busy an index is, and however often it is looked at, that is what the API server has
// to do for it.
const figuresEvery = 10 * time.Second

// mostFigures bounds what is remembered. When it is full it is forgotten, and some figures are
// written a little early.
const mostFigures = 4096

// Figures remembers when statuses were written last. Several goroutines may use it.
type Figures struct {
	mu    sync.Mutex
	wrote map[types.UID]time.Time
}

// NewFigures returns Figures that know of no write.
func NewFigures() *Figures { return &Figures{wrote: map[types.UID]time.Time{}} }

// due reports whether the figures of an object may be written again.
func (f *Figures) due(object types.UID, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	last, known := f.wrote[object]
	return !known || now.Sub(last) >= figuresEvery
}

func (f *Figures) written(object types.UID, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.wrote) >= mostFigures {
		clear(f.wrote)
	}
	f.wrote[object] = now
}

// WriteStatus writes the status of object if it is due. before and after are the statuses; held is
// after with the figures of before.
func WriteStatus[S any](ctx context.Context, w *kube.Writer, f *Figures, now time.Time, object client.Object, before, after, held *S) error {
	if equality.Semantic.DeepEqual(before, after) || equality.Semantic.DeepEqual(before, held) && !f.due(object.GetUID(), now) {
		return nil
	}
	f.written(object.GetUID(), now)
	return kube.ApplyStatus(ctx, w, object, before, after)
}
