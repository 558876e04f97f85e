package art

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// A sweep gives back what clients that died left outside of the tree, as far as it lies in chunks
// of this client, its own or adopted ones: nodes, leaves and blocks that were never linked, or were
// taken out and not marked. Package pool (review.go) has the steps, and what each of them proves.
// This file says when a sweep is made. The walk between them, which says what the tree consists of,
// is the design's. docs/design/smart.md, "What dead clients leave", has the argument that the walk
// sees all that is in the tree during all of it.

const (
	// sweepShare: a walk works for one part in so many of its time. mostRest bounds a pause
	sweepShare = 4
	mostRest   = time.Second
	// sweepAfter is how long after a reason for it the client's first sweep begins; sweepApart, how
	// long two of them are apart at least
	sweepAfter = time.Second
	sweepApart = 10 * time.Minute
	// sweepWait is how long a sweep waits for the operations of others, each time. It is many
	// leases: clients that ended are to be fenced meanwhile
	sweepWait = 2 * time.Minute
)

// sweeps is the sweeps of a client.
type sweeps struct {
	name    string
	walk    func(r *pool.Review) error
	adopted atomic.Uint64 // chunks of which the last sweep that was wanted knew
	wanted  atomic.Bool
	news    env.Event
	group   *env.WaitGroup
	mu      struct {
		env.Mutex
		begun bool // the goroutine that makes them
		busy  bool // one is under way
		loads int  // bulk loads under way
		over  bool // the index is closed
	}
}

// InitSweeps makes sweeps of the index possible. name is the design's. walk tells r of all that is
// in the tree during all of the walk, in pieces: an operation each, with a Rest between.
func (t *Tree) InitSweeps(name string, walk func(r *pool.Review) error) {
	w, e := &t.sweeps, t.Env
	w.name, w.walk = name, walk
	w.mu.Mutex, w.news, w.group = e.NewMutex(), e.NewEvent(), env.NewWaitGroup(e)
}

// errSweeping is returned where a sweep cannot begin now.
var errSweeping = errors.New("another sweep is under way, or a bulk load, whose nodes are not linked yet")

// enter begins the review of a sweep, unless there can be none now; leave ends the sweep.
func (w *sweeps) enter(p *pool.Pool) *pool.Review {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.busy || w.mu.loads > 0 {
		return nil
	}
	w.mu.busy = true
	return p.BeginReview()
}

func (w *sweeps) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.busy = false
}

// Loads notes that n bulk loads more are under way. What they make is linked at their end, and in
// between they are no operations. So no sweep begins meanwhile, and what is made later no sweep
// suspects.
func (t *Tree) Loads(n int) {
	w := &t.sweeps
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.loads += n
}

// wantSweep asks for a sweep: a chunk was adopted, or an allocation failed. It comes soon, unless
// one was made lately.
func (t *Tree) wantSweep() {
	w := &t.sweeps
	if w.wanted.Swap(true) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.begun || w.mu.over {
		return
	}
	w.mu.begun = true
	w.group.Go("sweep what dead clients left", t.sweepNowAndThen)
}

// NoteMemory looks for a reason for a sweep after an allocation, which ended with err.
func (t *Tree) NoteMemory(err error) {
	w, adopted := &t.sweeps, t.Pool.Adopted()
	if w.adopted.Load() != adopted {
		w.adopted.Store(adopted)
		t.wantSweep()
	}
	if err != nil && errors.Is(err, pool.ErrPoolFull) {
		t.wantSweep()
	}
}

// sweepNowAndThen makes the sweeps that are wanted.
func (t *Tree) sweepNowAndThen() {
	w := &t.sweeps
	for wait := sweepAfter; ; wait = sweepApart {
		w.news.Wait(wait) // set when the index is closed
		w.mu.Lock()
		// who wants one from now on starts this anew
		w.mu.begun = !w.mu.over && w.wanted.Load()
		goes := w.mu.begun
		w.mu.Unlock()
		if !goes || t.Pool.Alive() != nil {
			return
		}
		w.wanted.Store(false)
		if _, err := t.Sweep(); err != nil {
			w.wanted.Store(true)
		}
	}
}

// EndSweeps ends the sweeps of an index that is closed.
func (t *Tree) EndSweeps() {
	w := &t.sweeps
	w.mu.Lock()
	w.mu.over = true
	w.mu.Unlock()
	w.news.Set()
	w.group.Wait(sweepWait)
}

// stopped is the error of a sweep that goes no further, if it does not.
func (w *sweeps) stopped() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.over {
		return index.ErrClosed
	}
	return nil
}

// Sweep implements index.Sweeper.
func (t *Tree) Sweep() (nodes int, err error) {
	r := t.sweeps.enter(t.Pool)
	if r == nil {
		return 0, errSweeping
	}
	defer t.sweeps.leave()
	if nodes, err = t.sweep(r); err != nil {
		return nodes, fmt.Errorf("sweep a %s index: %w", t.sweeps.name, err)
	}
	return nodes, nil
}

func (t *Tree) sweep(r *pool.Review) (nodes int, err error) {
	if err := t.Pool.AwaitOperations(sweepWait, t.sweeps.stopped); err != nil {
		return 0, err
	}
	if err := t.sweeps.walk(r); err != nil || r.Left() == 0 {
		return 0, err
	}
	if err := t.Pool.AwaitOperations(sweepWait, t.sweeps.stopped); err != nil {
		return 0, err
	}
	return r.GiveBack(func(b []byte, a pool.Addr) int {
		return unit.PutDead(b, a, KindLeaf, unit.NewVersion(t.Env))
	})
}

// Rest is between two pieces of a walk, of which one began at a time. It fails if the walk is to go
// no further.
func (t *Tree) Rest(began time.Duration) error {
	if err := t.sweeps.stopped(); err != nil {
		return err
	}
	t.Env.Sleep(min(mostRest, (sweepShare-1)*(t.Env.Now()-began)))
	return nil
}

// SeeRoots tells see of the roots that were replaced, and of the one that is there: they lie on the
// ways from the first one. It is a piece of a walk.
func (s *Session) SeeRoots(see func([]pool.Addr)) error {
	s.Begin()
	defer s.End()
	var seen [mostRoots + 1]pool.Addr
	n := 0
	for a := s.t.First; a != pool.Nil; n++ {
		if n > mostRoots {
			return leadsBack(a)
		}
		seen[n] = a
		if err := s.Read(a+AtWay, s.Answers[:SlotBytes]); err != nil {
			return err
		}
		a = getWay(s.Answers).Addr()
	}
	see(seen[:n])
	return nil
}
