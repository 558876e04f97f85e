package controllers

import (
	"cmp"
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// Each decision is one line of the log, with its reason, when it has taken effect: a partition map
// that was changed, a pod that was created, deleted, restarted or told to leave, clients that were
// fenced, keys that were taken over. Reconcilers come back again and again, and may decide the same
// from a cache that is behind: what may come twice is logged once.

// logged remembers which lines were written.
type logged struct {
	mu   sync.Mutex
	seen map[line]struct{}
}

// line is a decision about an object.
type line struct {
	object types.UID
	what   string
}

// mostLogged bounds what is remembered. When it is full it is forgotten, and a decision that is
// just made again may be logged once more.
const mostLogged = 4096

func newLogged() *logged { return &logged{seen: map[line]struct{}{}} }

// once reports whether a decision was not logged yet.
func (l *logged) once(object types.UID, what string) bool {
	if l == nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, seen := l.seen[line{object, what}]; seen {
		return false
	}
	if len(l.seen) >= mostLogged {
		clear(l.seen)
	}
	l.seen[line{object, what}] = struct{}{}
	return true
}

// deletePod deletes a pod for a reason.
func deletePod(ctx context.Context, b *base, p *corev1.Pod, reason string) error {
	if err := b.DeletePrecisely(ctx, p); err != nil {
		return err
	}
	if b.logged.once(p.UID, "delete") {
		logf.FromContext(ctx).Info("delete pod", "pod", p.Name, "reason", reason)
	}
	return nil
}

// uselessBecause says why a pod is deleted that hands over nothing.
func uselessBecause(p *corev1.Pod) string {
	switch {
	case refusedByKubelet(p):
		return "its kubelet refused it: " + p.Status.Reason
	case ended(p):
		return "it ended: " + cmp.Or(p.Status.Reason, string(p.Status.Phase))
	}
	if neverRan(p) {
		return "it never ran, and is not of the current template"
	}
	return "it was made for what the index was before data was lost"
}
