package art

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Session is what the operations of one session use of a tree of inner nodes. A design's session
// has it in it. One goroutine uses it.
type Session struct {
	op.Op
	t      *Tree
	Blocks blocks.Session

	Path  []Step // of the operation's last descent, from the root on
	Level int    // of path, where it ended
	Fresh *Copy  // the node that was READ last
	lower *Copy  // one below it

	Node    []byte // a node that is READ
	nodes   []byte // images of nodes that are made
	Answers []byte // what atomics, or READs of single words, return
	mark    []byte // a dead mark

	made  []made // nodes and leaves that nobody knows yet
	Apart bool   // some of them are on another server than the word that is to lead to them

	reserved    []made // memory that later steps of changes may take (reserve.go)
	reserveFrom int    // where that of the one under way begins
	reserving   bool
}

// made is a node or leaf that was allocated.
type made struct {
	at   pool.Addr
	size int
}

const (
	// mostWords is how many words Answers has room for
	mostWords = verbs.MaxList
	// chainNodes: room for nodes that are made together: one of the largest type, and chains of
	// small ones
	chainNodes = 32
	nodesBytes = chainNodes*AddrUnit + 2112
	// SessionBytes is what a session's arena has for its inner nodes
	SessionBytes = RootBytes + nodesBytes + 8*mostWords + 3*AddrUnit
)

// OpenIn makes s a part of a session of t, with buffers of ps.
func (s *Session) OpenIn(t *Tree, ps *pool.Session) (err error) {
	s.t = t
	s.Fresh, s.lower = NewCopy(), NewCopy()
	s.Path = make([]Step, t.longest+2)
	s.made = make([]made, 0, 8)
	var room []byte
	for _, b := range []struct {
		buffer *[]byte
		size   int
	}{{&s.Node, RootBytes}, {&s.nodes, nodesBytes}, {&s.Answers, 8 * mostWords}, {&s.mark, unit.DeadBytes}, {&room, AddrUnit}} {
		if *b.buffer, err = ps.Buffer(b.size); err != nil {
			return err
		}
	}
	s.Open(ps, t.Env, room)
	return nil
}

// Begin starts an operation, which End ends.
func (s *Session) Begin() {
	s.Op.Begin()
	s.Forget()
}

// Forget drops every address that an operation has got.
func (s *Session) Forget() {
	s.Blocks.Forget()
	s.made, s.Apart = s.made[:0], false
}

// Allocate takes memory for a node or leaf of which so many bytes are written, near another one. It
// is given back by Discard unless a swap has made it known. near is where the word lies that is to
// lead to it.
func (s *Session) Allocate(bytes int, near pool.Addr) (pool.Addr, Slot, error) {
	size := AllocatedFor(bytes)
	a, err := s.PS.AllocateBlock(size, near)
	s.t.NoteMemory(err)
	if err != nil {
		s.t.NoteShort(s.Env, err)
		if a = s.fromReserve(size); a == pool.Nil {
			return pool.Nil, 0, op.Failure(err, false)
		}
	}
	s.made = append(s.made, made{a, size})
	s.t.spread.add(a, size)
	s.Apart = s.Apart || a.Server() != near.Server()
	at, ok := Pack(a)
	if !ok {
		return pool.Nil, 0, Beyond(a)
	}
	return a, at, nil
}

// allocateNode is Allocate for an inner node of type t, or of the next larger one that there is
// memory for: what others have given up may be of other sizes than small nodes take.
func (s *Session) allocateNode(t NodeType, near pool.Addr) (NodeType, error) {
	_, _, err := s.Allocate(t.Bytes(), near)
	for larger := t + 1; larger <= Direct && errors.Is(err, index.ErrPoolFull); larger++ {
		if _, _, other := s.Allocate(larger.Bytes(), near); other == nil {
			return larger, nil
		} else if !errors.Is(other, index.ErrPoolFull) {
			return t, other
		}
	}
	return t, err
}

// Discard gives back what was allocated and not published, and releases the lock that lockNode
// acquired. Memory is not given back if the session died: then a request may yet write there.
func (s *Session) Discard() {
	if s.PS.Holds() { // of a node; if that fails the session is dead
		_ = s.Unlock(nil)
	}
	if s.PS.Err() == nil {
		for _, m := range s.made {
			s.free(m)
		}
		s.Blocks.Discard()
	}
	s.Forget()
}

// GiveBack frees what was reserved and is not needed.
func (s *Session) GiveBack() {
	for _, m := range s.made {
		s.free(m)
	}
	s.made, s.Apart = s.made[:0], false
}

// retire gives back what was taken out of the tree: nobody finds it who begins now. First it is
// marked, so that its owner finds it, whoever that is. One round trip.
func (s *Session) retire(a pool.Addr, bytes int, kind uint8) error {
	s.PS.Write(pool.Sole, a, s.mark[:unit.PutDead(s.mark, a, kind, unit.NewVersion(s.Env))])
	if err := s.PS.Post(); err != nil {
		return op.Failure(err, true)
	}
	s.t.Pool.Retire(a, AllocatedFor(bytes))
	return nil
}

// RetireChild retires what the slot w led to.
func (s *Session) RetireChild(w Slot) error {
	if w.Leaf() {
		return s.retire(w.Addr(), s.t.lay.LeafBytesOf(w), KindLeaf)
	}
	return s.retire(w.Addr(), NodeType(w.Code()).Bytes(), w.Code())
}

// readSlots READs the slots of n to c.
func (s *Session) readSlots(n, c *Copy) error {
	if err := s.Read(n.Addr, s.Node[:n.Kind.Bytes()]); err != nil {
		return err
	}
	c.adopt(n, s.Node)
	return nil
}

// Freeze freezes all slots of n, of which c was READ. Then c has them as they are for ever.
func (s *Session) Freeze(n, c *Copy) error {
	for {
		var at [mostWords]int
		k := 0
		for i := range c.Size() {
			if w := c.Word(i); !w.Frozen() && k < mostWords {
				s.PS.CompareSwap(n.Addr+pool.Addr(SlotAt(i)), uint64(w), uint64(w|Frozen), s.Answers[8*k:8*k+8])
				at[k] = i
				k++
			}
		}
		if k == 0 {
			return nil
		}
		if err := s.PS.Post(); err != nil {
			s.Forget()
			return failure(err)
		}
		s.Pause()
		for j, i := range at[:k] {
			found := Slot(binary.NativeEndian.Uint64(s.Answers[8*j:]))
			if found == c.Word(i) {
				found |= Frozen
			}
			c.store(i, found)
			n.store(i, found) // the node is about to be replaced: no other copy is made for it
		}
		if late := s.PS.Overdue(); late != nil {
			return late
		}
	}
}

// IsDamaged is the error of the word w of a node.
func IsDamaged(node pool.Addr, w Slot) error {
	return fmt.Errorf("node %v has the slot %#x, which leads to nothing that there is; if a check of the index finds it as well, restore a dump: %w", node, uint64(w), index.ErrFormat)
}

// IsAstray is the error of the word w of the node at a, with outline p, which leads to a node
// with outline o that cannot be below it.
func IsAstray(a pool.Addr, p *Outline, w Slot, o *Outline) error {
	const what = "node %v, whose prefix ends at byte %d of its keys, has the slot %#x, which leads to node %v with the prefix of bytes %d to %d, that belongs elsewhere; if a check of the index finds it as well, restore a dump: %w"
	return fmt.Errorf(what,
		a, p.End(), uint64(w), w.Addr(), o.Depth, o.End(), index.ErrFormat)
}

// Beyond is the error of an address that does not fit a slot.
func Beyond(a pool.Addr) error {
	return fmt.Errorf("a node at %v: slots have room for servers up to %d and offsets below %#x: %w", a, 1<<ServerBits-1, uint64(1)<<OffsetBits*AddrUnit, pool.ErrPoolFull)
}

// failure names an error of a request that changes the index.
func failure(err error) error { return op.Failure(err, true) }

// AllocatedFor is what is allocated for a node or leaf of which so many bytes are READ.
func AllocatedFor(bytes int) int { return (bytes + AddrUnit - 1) &^ (AddrUnit - 1) }
