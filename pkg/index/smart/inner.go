package smart

import (
	"encoding/binary"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// inner is what the operations of one session use of a tree of inner nodes. A design's session has
// it in it. One goroutine uses it.
type inner struct {
	op.Op
	t      *innerTree
	blocks blocks.Session

	path  []step    // of the operation's last descent, from the root on
	level int       // of path, where it ended
	fresh *art.Copy // the node that was READ last
	lower *art.Copy // one below it

	node  []byte // a node that is READ
	nodes []byte // nodes that are made
	words []byte // what atomics, or READs of single words, return
	mark  []byte // a dead mark

	made  []made // nodes and leaves that nobody knows yet
	apart bool   // some of them are on another server than the word that is to lead to them
}

// made is a node or leaf that was allocated.
type made struct {
	at   pool.Addr
	size int
}

const (
	mostWords = verbs.MaxList
	// room for nodes that are made together: one of the largest type, and chains of small ones
	chainNodes = 32
	nodesBytes = chainNodes*art.AddrUnit + 2112
	// innerBytes is what a session's arena has for its inner nodes
	innerBytes = rootBytes + nodesBytes + 8*mostWords + 3*art.AddrUnit
)

// open makes s a part of a session of t, with buffers of ps.
func (s *inner) open(t *innerTree, ps *pool.Session) (err error) {
	s.t = t
	s.fresh, s.lower = art.NewCopy(art.MostKeys, art.MostSlots), art.NewCopy(art.MostKeys, art.MostSlots)
	s.path = make([]step, t.longest+2)
	s.made = make([]made, 0, 8)
	var room []byte
	for _, b := range []struct {
		buffer *[]byte
		size   int
	}{{&s.node, rootBytes}, {&s.nodes, nodesBytes}, {&s.words, 8 * mostWords}, {&s.mark, unit.DeadBytes}, {&room, art.AddrUnit}} {
		if *b.buffer, err = ps.Buffer(b.size); err != nil {
			return err
		}
	}
	s.Open(ps, t.env, room)
	return nil
}

// Begin starts an operation, which End ends.
func (s *inner) Begin() {
	s.Op.Begin()
	s.forget()
}

// forget drops every address that an operation has got.
func (s *inner) forget() {
	s.blocks.Forget()
	s.made, s.apart = s.made[:0], false
}

// allocate takes memory for a node or leaf of which so many bytes are written, near another one. It
// is given back by discard unless publish has made it known. near is where the word lies that is to
// lead to it.
func (s *inner) allocate(bytes int, near pool.Addr) (pool.Addr, art.Slot, error) {
	size := allocatedFor(bytes)
	a, err := s.PS.AllocateBlock(size, near)
	s.t.allocated(err)
	if err != nil {
		return pool.Nil, 0, op.Failure(err, false)
	}
	s.made = append(s.made, made{a, size})
	s.t.spread.add(a, size)
	s.apart = s.apart || a.Server() != near.Server()
	at, ok := art.Pack(a)
	if !ok {
		return pool.Nil, 0, beyond(a)
	}
	return a, at, nil
}

// discard gives back what was allocated and not published, and releases the lock that lockNode
// acquired. Memory is not given back if the session died: then a request may yet write there.
func (s *inner) discard() {
	if s.PS.Holds() { // of a node; if that fails the session is dead
		_ = s.Unlock(nil)
	}
	if s.PS.Err() == nil {
		for _, m := range s.made {
			s.t.pool.Free(m.at, m.size)
		}
		s.blocks.Discard()
	}
	s.forget()
}

// giveBack frees what was reserved and is not needed.
func (s *inner) giveBack() {
	for _, m := range s.made {
		s.t.pool.Free(m.at, m.size)
	}
	s.made, s.apart = s.made[:0], false
}

// retire gives back what was taken out of the tree: nobody finds it who begins now. First it is
// marked, so that its owner finds it, whoever that is. One round trip.
func (s *inner) retire(a pool.Addr, bytes int, kind uint8) error {
	s.PS.Write(pool.Sole, a, s.mark[:unit.PutDead(s.mark, a, kind, unit.NewVersion(s.Env))])
	if err := s.PS.Post(); err != nil {
		return op.Failure(err, true)
	}
	s.t.pool.Retire(a, allocatedFor(bytes))
	return nil
}

// retireChild retires what the slot w led to.
func (s *inner) retireChild(w art.Slot) error {
	if w.Leaf() {
		return s.retire(w.Addr(), w.LeafBytes(), art.KindLeaf)
	}
	return s.retire(w.Addr(), art.NodeType(w.Code()).Bytes(), w.Code())
}

// readSlots READs the slots of n to c.
func (s *inner) readSlots(n, c *art.Copy) error {
	if err := s.Read(n.Addr, s.node[:n.Kind.Bytes()]); err != nil {
		return err
	}
	c.Header, c.Ends, c.Addr = n.Header, n.Ends, n.Addr
	c.Adopt(s.node)
	return nil
}

// freeze freezes all slots of n, of which c was READ. Then c has them as they are for ever.
func (s *inner) freeze(n, c *art.Copy) error {
	for {
		var at [mostWords]int
		k := 0
		for i := range c.Size() {
			if w := c.Word(i); !w.Frozen() && k < mostWords {
				s.PS.CompareSwap(n.Addr+pool.Addr(art.SlotAt(i)), uint64(w), uint64(w|art.Frozen), s.words[8*k:8*k+8])
				at[k] = i
				k++
			}
		}
		if k == 0 {
			return nil
		}
		if err := s.PS.Post(); err != nil {
			s.forget()
			return failure(err)
		}
		s.Pause()
		for j, i := range at[:k] {
			found := art.Slot(binary.NativeEndian.Uint64(s.words[8*j:]))
			if found == c.Word(i) {
				found |= art.Frozen
			}
			c.Store(i, found)
			n.Store(i, found)
		}
		if late := s.PS.Overdue(); late != nil {
			return late
		}
	}
}

// isDamaged is the error of the word w of a node.
func isDamaged(node pool.Addr, w art.Slot) error {
	return fmt.Errorf("node %v has the slot %#x, which leads to nothing that there is; if a check of the index finds it as well, restore a dump: %w", node, uint64(w), index.ErrFormat)
}

// isAstray is the error of the word w of the node at a, with head p, which leads to a node with
// head h that cannot be below it.
func isAstray(a pool.Addr, p *art.Header, w art.Slot, h *art.Header) error {
	const what = "node %v, whose prefix ends at byte %d of its keys, has the slot %#x, which leads to node %v with the prefix of bytes %d to %d, that belongs elsewhere; if a check of the index finds it as well, restore a dump: %w"
	return fmt.Errorf(what,
		a, p.End(), uint64(w), w.Addr(), h.Depth, h.End(), index.ErrFormat)
}

// beyond is the error of an address that does not fit a slot.
func beyond(a pool.Addr) error {
	return fmt.Errorf("a node at %v: slots have room for servers up to %d and offsets below %#x: %w", a, 1<<art.ServerBits-1, uint64(1)<<art.OffsetBits*art.AddrUnit, pool.ErrPoolFull)
}

// failure names an error of a request that changes the index.
func failure(err error) error { return op.Failure(err, true) }

// allocatedFor is what is allocated for a node or leaf of which so many bytes are READ.
func allocatedFor(bytes int) int { return (bytes + art.AddrUnit - 1) &^ (art.AddrUnit - 1) }
