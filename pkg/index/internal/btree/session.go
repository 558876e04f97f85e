package btree

import (
	"errors"

	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Session is what the operations of one session use of a tree. A design's session has it in it. One
// goroutine uses it.
type Session struct {
	op.Op
	t      *Tree
	Lay    *fence.Layout
	Blocks blocks.Session

	Node  []byte // the node that is READ, or locked
	Image []byte // that replaces Node
	Spare []byte // image of a new node
	// leaves that a scan, a batch or a load has at once; see MaxRing
	Ring [][]byte

	// Owner is the session of a design with a leaf cache that this one belongs to; nil = it is one
	// of the tree's own. The tree does not look at it.
	Owner any

	// Mergeable says which leaves merges of this session may have, in place of what the leaf cache
	// knows; nil = what that knows. A replay merges leaves of a range that is not served yet.
	Mergeable func(low, high []byte, rightmost bool) bool

	locked     pool.Addr // the node whose lock was taken last
	sep        []byte    // where the leaf begins that was met unconnected
	parts      []sibling // the new leaves of what was divided
	halved     halved    // a leaf on its way to two
	parent     inner     // the node that is to know new ones, under its lock
	draft      Draft     // of that
	perLeaf    int       // how many pairs scans found in a leaf: see reach
	leavesMet  int       // by scans, at most fewLeaves
	mayOffload bool      // see DescendNear
	offloadAt  Way       // where it stopped

	staging    []byte    // of the leaf cache
	since      uint64    // of what staging has: see Remember
	remembered pool.Addr // the leaf that staging has

	restarts int // how often it followed siblings as far as it may, and started again
	// how often the operation under way came to a node that begins above its key
	misleads    int
	offer       Change    // of the operation under way; see OfferChange
	unconnected pool.Addr // a leaf that its parent does not know, from sep on; Nil if none was met
	// the operation's stamp then: an operation that waits for memory has another one afterwards,
	// and may have lost the leaf
	metAt uint64
}

// MaxRing is how many leaves Ring has room for at most.
const MaxRing = 16

// leastRing is how many it has room for at least: a leaf becomes as many when a pair comes.
const leastRing = 3

// ringBytes is about how much of leaves Ring has room for.
const ringBytes = 16 << 10

// arenaSpare is what a session's arena has besides buffers of nodes and blocks.
const arenaSpare = 16 << 10

// NewSession makes a session of the tree's own.
func (t *Tree) NewSession() (*Session, error) {
	s := new(Session)
	if err := t.OpenSession(s); err != nil {
		return nil, err
	}
	return s, nil
}

// OpenSession makes s a session of t. Close ends it.
func (t *Tree) OpenSession(s *Session) error {
	n := t.Lay.NodeBytes
	ring := min(MaxRing, max(leastRing, ringBytes/n))
	arena := (4+ring)*n + blocks.RoomBytes(t.config.entries(&t.Lay)) + arenaSpare
	if t.config.ArenaBytes != nil {
		arena += t.config.ArenaBytes(&t.Lay)
	}
	ps, err := t.Pool.NewSession(arena)
	if err != nil {
		return op.Failure(err, false)
	}
	ps.Use(t.config.Techniques)
	s.t, s.Lay, s.perLeaf, s.Words = t, &t.Lay, guess, t.strips
	if err := s.allot(ps, ring); err != nil {
		s.Leave()
		return errors.Join(err, ps.Close())
	}
	return nil
}

// allot divides the arena of ps.
func (s *Session) allot(ps *pool.Session, ring int) (err error) {
	n := s.Lay.NodeBytes
	for _, b := range []*[]byte{&s.Node, &s.Image, &s.Spare, &s.staging} {
		if *b, err = ps.Buffer(n); err != nil {
			return err
		}
	}
	s.Open(ps, s.t.Env, s.Image)
	for range ring {
		b, err := ps.Buffer(n)
		if err != nil {
			return err
		}
		s.Ring = append(s.Ring, b)
	}
	if err := s.Blocks.Open(&s.Op, s.t.config.entries(s.Lay)); err != nil {
		return err
	}
	s.sep = make([]byte, 0, s.Lay.MaxKey)
	if s.t.reads != nil {
		s.Delegate(s.t.reads)
	}
	return s.t.sessions.Add(&s.Op)
}

// Begin starts an operation, which End ends.
func (s *Session) Begin() {
	s.Op.Begin()
	s.restarts, s.misleads = 0, 0
	s.forget()
}

// Resume goes on with an operation after End, with the next part of it, which begins anew.
func (s *Session) Resume() {
	s.Op.Resume()
	s.restarts, s.misleads = 0, 0
	s.forget()
}

// AwaitMemory is that of package op. The operation forgets what it met before.
func (s *Session) AwaitMemory() bool {
	if !s.Op.AwaitMemory() {
		return false
	}
	s.forget()
	return true
}

// forget drops every address that an operation has got: once it has ended, epochs do not wait for
// it, and what lay there may be something else.
func (s *Session) forget() {
	s.unconnected = pool.Nil
	s.Blocks.Forget()
}

// Lock takes the lock of the node at a and reads it into Node: one round trip.
func (s *Session) Lock(a pool.Addr) error {
	s.Pause()
	if err := s.PS.Lock(a, s.Node); err != nil {
		return op.Failure(err, false)
	}
	s.locked = a
	return nil
}

// LockOr is Lock, but another session of this client that has the lock may carry out change in the
// stead of this one (pool.Session.LockOr). Then answered is true, and no lock is held. err is nil
// if the answer is in change; else it is ErrUnknown.
func (s *Session) LockOr(a pool.Addr, change any) (answered bool, err error) {
	s.Pause()
	if answered, err = s.PS.LockOr(a, s.Node, change); answered || err != nil {
		return answered, op.Failure(err, answered)
	}
	s.locked = a
	return false, nil
}

// LockOwn is LockOr of a leaf that no other client changes (pool.Session.LockOwn). change can be
// nil.
func (s *Session) LockOwn(a pool.Addr, change *Change) (answered bool, err error) {
	s.Pause()
	var offer any
	if change != nil {
		offer = change
	}
	if answered, err = s.PS.LockOwn(a, s.Node, offer); answered || err != nil {
		return answered, op.Failure(err, answered)
	}
	s.locked = a
	return false, nil
}

// Publish posts what is queued, and what follows of it for blocks, and gives the lock up.
func (s *Session) Publish() error { return s.Blocks.Publish(s.locked) }

// Await posts what is queued and waits, where it may not ride in one list with what comes behind
// it.
func (s *Session) Await() error {
	if !s.t.config.Techniques.Apart {
		return nil
	}
	return op.Failure(s.PS.Post(), false)
}
