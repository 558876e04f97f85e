package smart

import (
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/combine"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Session implements index.Session.
type Session struct {
	op.Op
	t      *Tree
	lay    *layout
	blocks blocks.Session

	path  []step    // of the operation's last descent, from the root on
	level int       // of path, where it ended
	fresh *art.Copy // the node that was READ last
	lower *art.Copy // one below it

	leaf     leaf   // that was READ last, in leafRoom
	leafRoom []byte // a leaf that is READ
	seconds  seconds
	newLeaf  leaf // that is made, in image
	image    []byte
	node     []byte // a node that is READ
	nodes    []byte // nodes that are made
	words    []byte // what atomics, or READs of single words, return
	mark     []byte // a dead mark
	entry    []byte // an entry of package item, for package blocks

	made  []made         // nodes and leaves that nobody knows yet
	apart bool           // some of them are on another server than the word that is to lead to them
	other []byte         // the key of another leaf
	old   []byte         // a value that Modify tells of
	left  []byte         // the key of a leaf that was left
	offer combine.Change // to whoever has the lock that the session waits for
	ring  ring
	scan  *scan  // nil until the first one
	round *round // nil until the first batch
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
	// what a session's arena has besides buffers
	arenaSpare = 4 << 10
)

// Session implements index.Index.
func (t *Tree) Session() (index.Session, error) { return t.newSession() }

// newSession makes a session.
func (t *Tree) newSession() (*Session, error) {
	s := &Session{t: t, lay: &t.lay, fresh: art.NewCopy(art.MostKeys, art.MostSlots), lower: art.NewCopy(art.MostKeys, art.MostSlots)}
	leafRoom := allocatedFor(t.lay.maxRead)
	ps, err := t.pool.NewSession(2*leafRoom + rootBytes + nodesBytes + 8*mostWords + 3*art.AddrUnit + blocks.RoomBytes(&t.lay.Codec) + t.lay.arenaBytes() + arenaSpare)
	if err != nil {
		return nil, op.Failure(err, false)
	}
	ps.Use(pool.Techniques{Apart: !t.with.rearLock, Flat: !t.with.hierarchical})
	var room []byte
	for _, b := range []struct {
		buffer *[]byte
		size   int
	}{{&s.leafRoom, leafRoom}, {&s.image, leafRoom}, {&s.node, rootBytes}, {&s.nodes, nodesBytes}, {&s.words, 8 * mostWords}, {&s.mark, unit.DeadBytes}, {&room, art.AddrUnit}} {
		if *b.buffer, err = ps.Buffer(b.size); err != nil {
			return nil, errors.Join(err, ps.Close())
		}
	}
	s.Open(ps, t.env, room)
	if t.reads != nil {
		s.Delegate(t.reads)
	}
	if err = s.blocks.Open(&s.Op, &t.lay.Codec); err == nil {
		err = s.allotRing(ps)
	}
	if err == nil {
		err = t.active.Add(&s.Op)
	}
	if err != nil {
		s.Leave()
		return nil, errors.Join(err, ps.Close())
	}
	s.path = make([]step, t.lay.MaxKey+2)
	s.made = make([]made, 0, 8)
	s.entry = make([]byte, t.lay.EntryBytes(t.lay.MaxKey, item.ReferenceBytes))
	return s, nil
}

// Begin starts an operation, which End ends.
func (s *Session) Begin() {
	s.Op.Begin()
	s.forget()
}

// forget drops every address that an operation has got.
func (s *Session) forget() {
	s.blocks.Forget()
	s.made, s.apart = s.made[:0], false
}

// awaitMemory is AwaitMemory of package op. The operation forgets what it met before.
func (s *Session) awaitMemory() bool {
	if err := s.burySome(mostLeft); err != nil && s.PS.Err() != nil || !s.AwaitMemory() {
		return false
	}
	s.forget()
	return true
}

// Defer implements index.Session: all that this design does is durable when it returns.
func (s *Session) Defer(bool) {}

// Position implements index.Session.
func (s *Session) Position() uint64 { return 0 }

// Durable implements index.Session.
func (s *Session) Durable(uint64) error { return nil }

// Prepare implements index.Session: a change READs its leaf in the list that locks it, and keeps
// nothing of it.
func (s *Session) Prepare(_, _ [][]byte) error { return nil }

// explain says what failed. The answers of package index are returned bare elsewhere.
func explain(what string, err error) error { return fmt.Errorf("%s: %w", what, err) }

// allocate takes memory for a node or leaf of which so many bytes are written, near another one. It
// is given back by discard unless publish has made it known. near is where the word lies that is to
// lead to it.
func (s *Session) allocate(bytes int, near pool.Addr) (pool.Addr, art.Slot, error) {
	size := allocatedFor(bytes)
	a, err := s.PS.AllocateBlock(size, near)
	s.t.noteMemory(err)
	if err != nil {
		s.t.shortage.note(s.Env, err)
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

// discard gives back what was allocated and not published, and releases the lock that lockNode
// acquired. Memory is not given back if the session died: then a request may yet write there.
func (s *Session) discard() {
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

// retire gives back what was taken out of the tree: nobody finds it who begins now. First it is
// marked, so that its owner finds it, whoever that is. One round trip.
func (s *Session) retire(a pool.Addr, bytes int, kind uint8) error {
	s.PS.Write(pool.Sole, a, s.mark[:unit.PutDead(s.mark, a, kind, unit.NewVersion(s.Env))])
	if err := s.PS.Post(); err != nil {
		return op.Failure(err, true)
	}
	s.t.pool.Retire(a, allocatedFor(bytes))
	return nil
}

// retireChild retires what the slot w led to.
func (s *Session) retireChild(w art.Slot) error {
	if w.Leaf() {
		return s.retire(w.Addr(), w.LeafBytes(), art.KindLeaf)
	}
	return s.retire(w.Addr(), art.NodeType(w.Code()).Bytes(), w.Code())
}
