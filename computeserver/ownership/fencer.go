package ownership

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/partition"
	"github.com/dmindex/dmindex/pkg/pool"
)

// fencer fences the former owners of claimed ranges at all memory servers but the home, which
// fences them itself. It has a goroutine of its own, so that an unreachable server delays nothing
// else. Which servers these are it asks the home when a client is fenced there: one that joined
// earlier is in the list, and one that joins later the client never uses (pkg/pool/join.go).
type fencer struct {
	env   env.Env
	ix    Owner
	log   *slog.Logger
	home  uint16
	nudge func() // called when a client is fenced everywhere
	wake  env.Event
	ended env.Event

	mu       env.Mutex // guards the rest; it is not held across calls
	stopped  bool
	work     []fencing
	progress bool
}

// fencing is one client that is to be fenced.
type fencing struct {
	client uint32
	left   []unfenced
}

// unfenced is a server at which a client is not fenced yet. The home stands for those that are not
// known yet.
type unfenced struct {
	server uint16
	tried  bool  // in this round
	why    error // the last attempt failed; nil = not tried yet
}

func (w *fencing) indexOf(server uint16) int {
	return slices.IndexFunc(w.left, func(u unfenced) bool { return u.server == server })
}

const (
	fenceAgain   = 50 * time.Millisecond
	fenceSlowest = 2 * time.Second
)

func newFencer(h *Manager) *fencer {
	f := &fencer{env: h.env, ix: h.ix, log: h.log, home: h.ix.Servers()[0], nudge: h.wake.Set, wake: h.env.NewEvent(), ended: h.env.NewEvent(), mu: h.env.NewMutex()}
	f.env.Go("fence former owners", f.run)
	return f
}

func (f *fencer) run() {
	defer f.ended.Set()
	pause := fenceAgain
	for {
		f.mu.Lock()
		stopped := f.stopped
		server := f.next()
		clients := f.untried(server)
		idle := !slices.ContainsFunc(f.work, func(w fencing) bool { return len(w.left) > 0 })
		if len(clients) == 0 { // all were tried; the next round follows after the pause
			for i := range f.work {
				for j := range f.work[i].left {
					f.work[i].left[j].tried = false
				}
			}
		}
		f.mu.Unlock()
		switch {
		case stopped:
			return
		case len(clients) > 0:
			f.try(server, clients)
		case idle:
			f.wake.Wait(env.Forever)
			pause = fenceAgain
		default:
			f.wake.Wait(pause)
			pause = min(2*pause, fenceSlowest)
		}
	}
}

// maxFencing bounds the clients that one call fences.
const maxFencing = 256

// next returns a server at which clients are to be fenced that were not tried there in this round;
// 0 if there is none. Called under mu.
func (f *fencer) next() uint16 {
	for _, w := range f.work {
		for _, u := range w.left {
			if !u.tried {
				return u.server
			}
		}
	}
	return 0
}

// try fences clients at a server, or asks the home where they are to be fenced.
func (f *fencer) try(server uint16, clients []uint32) {
	var others []uint16
	var err error
	if server == f.home {
		others, err = f.ix.Others()
	} else {
		err = f.ix.FenceOthers(server, clients)
	}
	f.note(server, clients, others, err)
}

// untried returns the clients to be fenced at a server that were not tried there in this round.
// Called under mu.
func (f *fencer) untried(server uint16) (clients []uint32) {
	for i := range f.work {
		w := &f.work[i]
		if at := w.indexOf(server); at >= 0 && !w.left[at].tried && len(clients) < maxFencing {
			clients = append(clients, w.client)
		}
	}
	return clients
}

// note records the outcome of a call. Where the clients are to be fenced besides, others says.
func (f *fencer) note(server uint16, clients []uint32, others []uint16, err error) {
	f.mu.Lock()
	done := false
	for i := range f.work {
		w := &f.work[i]
		at := w.indexOf(server)
		switch {
		case at < 0 || !slices.Contains(clients, w.client):
		case err != nil:
			if w.left[at].why == nil {
				f.log.Warn("a former owner cannot be fenced yet", "client", w.client, "server", server, "error", err)
			}
			w.left[at].tried, w.left[at].why = true, err
		default:
			w.left = slices.Delete(w.left, at, at+1)
			for _, o := range others {
				w.left = append(w.left, unfenced{server: o})
			}
			if len(w.left) == 0 {
				f.log.Info("a former owner is fenced at all memory servers", "client", w.client)
				done = true
			}
		}
	}
	f.progress = f.progress || done
	f.mu.Unlock()
	if done {
		f.nudge()
	}
}

// addClients adds the clients to fence: the holders that blocked a claim. If these are all that
// blocked it, the others are forgotten. A claim without a whole answer forgets none: a client that
// is fenced stays so, and each attempt to fence it may take long.
func (f *fencer) addClients(blocked []pool.Blocked, all bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.work = slices.DeleteFunc(f.work, func(w fencing) bool {
		return all && !slices.ContainsFunc(blocked, func(b pool.Blocked) bool { return b.Client == w.client })
	})
	for _, b := range blocked {
		known := slices.ContainsFunc(f.work, func(w fencing) bool { return b.Client == w.client })
		if b.Why == pool.HeldByOther || b.Why == pool.Crowded || known {
			continue
		}
		f.work = append(f.work, fencing{client: b.Client, left: []unfenced{{server: f.home}}})
		f.log.Info("fencing a former owner", "client", b.Client, "keys", partition.Interval(b.Start, b.End), "reason", b.Why.String())
		f.wake.Set()
	}
}

// done returns the wanted clients that are fenced at all of these servers.
func (f *fencer) done() (clients []uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.progress = false
	for _, w := range f.work {
		if len(w.left) == 0 {
			clients = append(clients, w.client)
		}
	}
	return clients
}

// hasNews reports whether done would return more than before.
func (f *fencer) hasNews() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.progress
}

// pending returns a server at which a client is not fenced yet, and the last error; server 0 if
// there is none, or none was tried.
func (f *fencer) pending(client uint32) (server uint16, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var texts []string
	for _, w := range f.work {
		for _, u := range w.left {
			if w.client == client && u.why != nil {
				server = u.server
				texts = append(texts, fmt.Sprintf("memory server %d: %v", u.server, u.why))
			}
		}
	}
	if server != 0 {
		err = errors.New(strings.Join(texts, "; "))
	}
	return server, err
}

func (f *fencer) stop() {
	f.mu.Lock()
	f.stopped = true
	f.mu.Unlock()
	f.wake.Set()
	f.ended.Wait(holdParting)
}
