package report

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Each decision is one line of the log, with its reason, when it has taken effect: a partition map
// that was changed, a pod that was created, deleted, restarted or told to leave, clients that were
// fenced, keys that were taken over. Reconcilers come back again and again, and may decide the same
// from a cache that is behind: what may come twice is logged once.

// Logged remembers which lines were written. Several goroutines may use it; nil remembers nothing.
type Logged struct {
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

// NewLogged returns a Logged that has seen nothing.
func NewLogged() *Logged { return &Logged{seen: map[line]struct{}{}} }

// Once reports whether a decision was not logged yet.
func (l *Logged) Once(object types.UID, what string) bool {
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
