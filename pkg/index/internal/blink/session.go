package blink

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// session implements index.Session.
type session struct {
	t    *tree
	ps   *pool.Session
	lay  *layout
	node []byte // the node that is read or locked
	left []byte // image that replaces node
	rest []byte // image of a new node

	locked pool.Addr // the node whose lock was taken last

	ring    [][]byte       // leaves that a scan reads at once
	staging []byte         // of a design that keeps leaves
	since   uint64         // of what staging has: see Remember
	taker   Taker          // of leaves that scans READ; nil: nobody
	call    []byte         // of calls, in a design that makes any
	stop    func(Way) bool // see DescendUntil
	way     Way            // where it stopped

	scratch []byte  // an entry on its way into a leaf
	sep     []byte  // a separator on its way up
	heap    heapMap // what is in use of node
	pairs   pairs
	perLeaf int // how many pairs scans found in a leaf: see reach

	long    []byte  // values of blocks that are read, or the image of one
	mark    []byte  // of a dead block
	fresh   pointer // the block of the entry that is about to be published
	gone    pointer // the block of the entry that the change under way takes out
	made    []byte  // the entry of the change under way, if it is made already
	leaving bool    // blocks that changes take out are left alone
	fetched fetched

	floor      uint64    // of stamps in the cache
	reclaimed  uint64    // nodes of this client when the operation began, or last waited for memory
	far        int       // how often it followed siblings as far as it may, and started again
	retried    int       // how often the operation under way read a node again
	misleads   int       // how often the operation under way came to a node that begins above its key
	waits      int       // how often it waited for something within this client (Again)
	remembered pool.Addr // the leaf that staging has
	unlinked   pool.Addr // a leaf that its parent does not know, from s.sep on; Nil if none was met
	metAt      uint64    // the operation's stamp then: an operation that waits for memory has another one afterwards, and may have lost the leaf

	count  tallies
	shown  shownTallies
	closed bool
}

// tallies count what a session does.
type tallies struct{ operations, retries, hits, misses uint64 }

func (t *tallies) add(o tallies) {
	t.operations += o.operations
	t.retries += o.retries
	t.hits += o.hits
	t.misses += o.misses
}

// shownTallies are a copy that others may read, renewed every showEvery operations.
type shownTallies struct{ operations, retries, hits, misses atomic.Uint64 }

const showEvery = 64

func (t *shownTallies) store(c tallies) {
	t.operations.Store(c.operations)
	t.retries.Store(c.retries)
	t.hits.Store(c.hits)
	t.misses.Store(c.misses)
}

func (t *shownTallies) load() tallies {
	return tallies{t.operations.Load(), t.retries.Load(), t.hits.Load(), t.misses.Load()}
}

// ringBytes is about how much of leaves a scan reads at once.
const ringBytes = 16 << 10

func (t *tree) newSession() (*session, error) {
	n := t.lay.nodeBytes
	ring := min(maxRing, max(2, ringBytes/n))
	call := verbs.CallBytes(answerFixed + max(n, requestFixed+t.lay.MaxKey))
	ps, err := t.pool.NewSession((4+ring)*n + call + t.lay.longBytes() + 4*maxEntryBytes)
	if err != nil {
		return nil, failure(err, false)
	}
	ps.Use(pool.Techniques{Apart: !t.with.combine, Flat: !t.with.hierarchical})
	s := &session{t: t, ps: ps, lay: &t.lay, perLeaf: 16 * perLeafIn}
	for _, b := range []*[]byte{&s.node, &s.left, &s.rest, &s.staging} {
		if *b, err = ps.Buffer(n); err != nil {
			return nil, errors.Join(err, ps.Close())
		}
	}
	if t.keep != nil {
		if s.call, err = ps.Buffer(call); err != nil {
			return nil, errors.Join(err, ps.Close())
		}
	}
	for range ring {
		b, err := ps.Buffer(n)
		if err != nil {
			return nil, errors.Join(err, ps.Close())
		}
		s.ring = append(s.ring, b)
	}
	if t.lay.Blocks {
		if s.long, err = ps.Buffer(t.lay.longBytes()); err == nil {
			s.mark, err = ps.Buffer(HeaderBytes)
		}
		if err != nil {
			return nil, errors.Join(err, ps.Close())
		}
	}
	s.scratch = make([]byte, maxEntryBytes)
	s.sep = make([]byte, 0, t.lay.MaxKey)
	s.pairs.list = make([]entryAt, 0, n/slotBytes)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, errors.Join(fmt.Errorf("open a session: %w", index.ErrClosed), ps.Close())
	}
	t.open = append(t.open, s)
	t.sessions++
	return s, nil
}

// SetLimit implements index.Session.
func (s *session) SetLimit(limit time.Duration) { s.ps.SetLimit(limit) }

// Counters implements index.Session.
func (s *session) Counters() verbs.Counters { return s.ps.Counters() }

// Close implements index.Session.
func (s *session) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	t := s.t
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, o := range t.open {
		if o == s {
			t.open = append(t.open[:i], t.open[i+1:]...)
			break
		}
	}
	t.ended.add(s.count)
	return s.ps.Close()
}

// begin starts an operation, which end ends.
func (s *session) begin() {
	s.ps.Begin()
	s.floor, s.reclaimed = s.t.pool.Floor(), s.t.pool.Reclaimed()
	s.far, s.retried, s.waits, s.misleads = 0, 0, 0, 0
	s.forget()
	s.counted()
}

// forget drops every address that an operation has got: once it has ended, epochs do not wait for it, and what lay there may be something else.
func (s *session) forget() {
	s.unlinked = pool.Nil
	s.fresh, s.gone = pointer{}, pointer{}
}

// counted counts an operation.
func (s *session) counted() {
	if s.count.operations++; s.count.operations%showEvery == 0 {
		s.shown.store(s.count)
	}
}

// end ends an operation: no address that it got is used any more.
func (s *session) end() { s.ps.End() }

// again is called before a node is read again that was torn or stale. It lets others run, and ends the operation when its limit
// is over. A node may be torn for good because its writer died: then taking its lock repairs it.
func (s *session) again(a pool.Addr) error {
	s.count.retries++
	if late := s.ps.Overdue(); late != nil {
		return fmt.Errorf("node %v does not come to rest: %w", a, late)
	}
	if s.retried++; s.retried%lockEvery == 0 {
		if err := s.ps.Lock(a, s.left); err != nil {
			return failure(err, false)
		}
		return s.unlock(nil)
	}
	s.t.env.Yield()
	return nil
}

// lockEvery is how many times an operation reads in vain before it takes the lock of the node. A node that is merely being written
// comes to rest after a few.
const lockEvery = 32

// pause gives others a chance between two steps of an optimistic operation, in builds with invariants.
func (s *session) pause() {
	if invariants.Enabled && s.t.env.Uint64()%16 == 0 {
		s.t.env.Yield()
	}
}

// read reads the node at a into b: one round trip.
func (s *session) read(a pool.Addr, b []byte) error {
	s.ps.Read(a, b)
	if err := s.ps.Post(); err != nil {
		return failure(err, false)
	}
	s.pause()
	return nil
}

// lock takes the lock of the node at a and reads it into s.node: one round trip.
func (s *session) lock(a pool.Addr) error {
	s.pause()
	if err := s.ps.Lock(a, s.node); err != nil {
		return failure(err, false)
	}
	s.locked = a
	return nil
}

// unlock gives the lock up without a change, and returns err if that goes well.
func (s *session) unlock(err error) error {
	if e := s.ps.PostUnlock(); e != nil {
		return failure(e, false)
	}
	return err
}

// publish posts what is queued and gives the lock up. If the change takes a block out, its dead mark comes behind the change: last in the list
// if the block is on the node's server (G1), else when the change is confirmed (G3). So who sees the mark sees that the block is out.
func (s *session) publish() error {
	beside := s.gone.addr.Server() == s.locked.Server()
	if s.gone.addr != pool.Nil && beside {
		s.markGone()
	}
	if err := s.ps.PostUnlock(); err != nil {
		return failure(err, true)
	}
	s.fresh = pointer{}
	if s.gone.addr == pool.Nil {
		return nil
	}
	if !beside {
		s.markGone()
		if err := s.ps.Post(); err != nil {
			return fmt.Errorf("the change is made, but what it replaced is not given back: %w", failure(err, true))
		}
	}
	s.t.pool.Retire(s.gone.addr, s.gone.size)
	s.gone = pointer{}
	return nil
}

// failure gives an error of the pool or the fabric its name in package index. changing says that requests which change the
// index were under way: whatever else is known of it, as that its client was given up since a server could not be reached, the outcome is not.
func failure(err error, changing bool) error {
	switch {
	case err == nil, errors.Is(err, index.ErrUnknown), errors.Is(err, index.ErrDataLost):
		return err
	case errors.Is(err, verbs.ErrLostMemory):
		return fmt.Errorf("%w: %w", index.ErrDataLost, err)
	case changing:
		return fmt.Errorf("%w: %w", index.ErrUnknown, err)
	case errors.Is(err, index.ErrFenced), errors.Is(err, index.ErrUnreachable):
		return err
	case errors.Is(err, verbs.ErrClosed):
		return fmt.Errorf("%w: %w", index.ErrClosed, err)
	case errors.Is(err, verbs.ErrDisconnected), errors.Is(err, verbs.ErrTimeout), errors.Is(err, verbs.ErrRefused), errors.Is(err, verbs.ErrTooMany):
		return fmt.Errorf("%w: %w", index.ErrUnreachable, err)
	}
	return err
}
