package blink

import (
	"errors"
	"time"

	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// session implements index.Session.
type session struct {
	op.Op
	t    *tree
	lay  *fence.Layout
	node []byte // the node that is read or locked
	left []byte // image that replaces node
	rest []byte // image of a new node

	locked pool.Addr // the node whose lock was taken last

	ring    [][]byte // leaves that a scan or a batch reads at once
	batch   *round   // of LookupBatch; nil before the first one
	staging []byte   // of a design that keeps leaves
	since   uint64   // of what staging has: see Remember
	// the design's session that this one belongs to; nil = none. The tree does not look at it
	Owner any
	call  []byte // of calls, in a design that makes any
	near  bool   // see DescendNear
	way   Way    // where it stopped

	scratch []byte          // an entry on its way into a leaf
	old     []byte          // a value that Modify tells of
	sep     []byte          // a separator on its way up
	heap    slotted.HeapMap // what is in use of node
	pairs   slotted.Pairs
	perLeaf int // how many pairs scans found in a leaf: see reach

	Blocks blocks.Session
	made   []byte // the entry of the change under way, if it is made already

	far int // how often it followed siblings as far as it may, and started again
	// how often the operation under way came to a node that begins above its key
	misleads   int
	remembered pool.Addr // the leaf that staging has
	unlinked   pool.Addr // a leaf that its parent does not know, from s.sep on; Nil if none was met
	// the operation's stamp then: an operation that waits for memory has another one afterwards,
	// and may have lost the leaf
	metAt uint64

	closed bool
}

// ringBytes is about how much of leaves a scan reads at once.
const ringBytes = 16 << 10

func (t *tree) newSession() (*session, error) {
	n := t.lay.NodeBytes
	ring := min(maxRing, max(2, ringBytes/n))
	call := verbs.CallBytes(answerFixed + max(n, requestFixed+t.lay.MaxKey))
	ps, err := t.pool.NewSession((4+ring)*n + call + blocks.RoomBytes(&t.lay.Codec) + 4*slotted.MaxEntryBytes)
	if err != nil {
		return nil, op.Failure(err, false)
	}
	ps.Use(pool.Techniques{Apart: !t.with.combine, Flat: !t.with.hierarchical})
	s := &session{t: t, lay: &t.lay, perLeaf: 16 * perLeafIn}
	for _, b := range []*[]byte{&s.node, &s.left, &s.rest, &s.staging} {
		if *b, err = ps.Buffer(n); err != nil {
			return nil, errors.Join(err, ps.Close())
		}
	}
	s.Open(ps, t.env, s.left)
	if t.leaves != nil {
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
	if err := s.Blocks.Open(&s.Op, &t.lay.Codec); err != nil {
		return nil, errors.Join(err, ps.Close())
	}
	s.scratch = make([]byte, slotted.MaxEntryBytes)
	s.sep = make([]byte, 0, t.lay.MaxKey)
	s.pairs.List = make([]slotted.EntryAt, 0, n/slotted.SlotBytes)
	if err := t.sessions.Add(&s.Op); err != nil {
		return nil, errors.Join(err, ps.Close())
	}
	return s, nil
}

// SetLimit implements index.Session.
func (s *session) SetLimit(limit time.Duration) { s.PS.SetLimit(limit) }

// Counters implements index.Session.
func (s *session) Counters() verbs.Counters { return s.PS.Counters() }

// Close implements index.Session.
func (s *session) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	s.t.sessions.Remove(&s.Op)
	return s.PS.Close()
}

// Begin starts an operation, which End ends.
func (s *session) Begin() {
	s.Op.Begin()
	s.far, s.misleads = 0, 0
	s.forget()
}

// Resume goes on with an operation after End, with the next part of it, which begins anew.
func (s *session) Resume() {
	s.Op.Resume()
	s.far, s.misleads = 0, 0
	s.forget()
}

// forget drops every address that an operation has got: once it has ended, epochs do not wait for
// it, and what lay there may be something else.
func (s *session) forget() {
	s.unlinked = pool.Nil
	s.Blocks.Forget()
}

// lock takes the lock of the node at a and reads it into s.node: one round trip.
func (s *session) lock(a pool.Addr) error {
	s.Pause()
	if err := s.PS.Lock(a, s.node); err != nil {
		return op.Failure(err, false)
	}
	s.locked = a
	return nil
}

// publish posts what is queued, and what follows of it for blocks, and gives the lock up.
func (s *session) publish() error { return s.Blocks.Publish(s.locked) }
