package pool

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
)

// Allocation has three stages (Sherman, section 4.2.4, and slabs in between): chunks come from the
// memory servers by control call, slabs of one size class are opened in them by a WRITE (slab.go),
// and nodes are cut from slabs here. So a control call is paid once in thousands of nodes. A slab
// serves one size only for as long as anybody may have an address in it; so an address that once
// was a node of some size never becomes the middle of another one under a reader, who always finds
// a node header there, by which it recognizes that the node is not the one it looked for.

// nodeAlign is what node sizes are rounded up to: a cache line, so that no two nodes share one.
const nodeAlign = 64

func roundNode(size int) int { return (size + nodeAlign - 1) &^ (nodeAlign - 1) }

// allocator is shared by the sessions of a client.
type allocator struct {
	pool    *Pool
	fetcher fetcher
	mu      env.Mutex // guards what follows; never held across calls
	next    int       // server whose turn it is
	open    []*class

	chunks  [][]*chunk // by dense server number, sorted by address
	emptied [][]*slab  // the same: slabs that became empty since they were last looked at

	images [][]*images // by dense server number
	swept  *chunk      // that is being swept
	limbo  [reaches][]*batch
}

// class is what there is of one node size, with lock words beside its nodes or without. Lists and
// counts are by dense server number.
type class struct {
	size  int
	strip bool // there are lock words beside its nodes
	// nodes of this size are allocated from it: of the two of a size one does at most
	serves bool
	shapes []shape // of its slabs

	nodes       []int     // of its open slabs
	freed       [][]*slab // slabs with nodes that were given back; the last one serves next
	freedNodes  []int     // of these
	uncut       [][]*slab // slabs with nodes that were never handed out; the first one serves next
	uncutNodes  []int     // of these
	provisional [][]*slab // slabs whose opening failed, and is tried again: see openSlabs
	failed      []bool    // the last opening failed: the next one is of one run
	// until when it is not asked for a chunk as long as another server has room
	full []time.Duration

	reserved  int  // nodes that are (reserve.go)
	rewritten bool // nodes of this size are rewritten in place: each server needs places for images
}

// fullFor is how long a server that is full is left alone.
const fullFor = 100 * time.Millisecond

func newAllocator(p *Pool) *allocator {
	n := len(p.servers())
	return &allocator{pool: p, mu: p.env.NewMutex(), fetcher: newFetcher(p.env), chunks: make([][]*chunk, n), emptied: make([][]*slab, n)}
}

// grow makes room for one more server. a.mu is held.
func (a *allocator) grow(s *server) {
	a.chunks, a.emptied = append(a.chunks, nil), append(a.emptied, nil)
	for _, c := range a.open {
		c.shapes = append(slices.Clip(c.shapes), s.geometry.shapeOf(c.size, c.strip))
		c.nodes, c.freed, c.freedNodes = append(c.nodes, 0), append(c.freed, nil), append(c.freedNodes, 0)
		c.uncut, c.uncutNodes = append(c.uncut, nil), append(c.uncutNodes, 0)
		c.provisional, c.failed, c.full = append(c.provisional, nil), append(c.failed, false), append(c.full, 0)
	}
}

// Allocate hands out a node of size bytes. With near it comes from the same server, if that has
// room, so that both can be written in one list; with Nil, servers take turns. What was given back
// is used first. The node's content is zero or that of a freed node of the same size. ErrPoolFull:
// no server has room. It may take as long as control calls do: an operation, which has a limit and
// may hold a lock, calls the session's own. The caller writes the node before an operation ends
// that began before; if that is not so, the node is Reserved.
func (p *Pool) Allocate(size int, near Addr) (Addr, error) {
	return p.allocate(nil, size, near, true, false)
}

// Allocate is Pool.Allocate as a part of the operation under way. ErrTimeout: the operation was
// overdue before a memory server answered; nothing was allocated.
func (s *Session) Allocate(size int, near Addr) (Addr, error) {
	return s.pool.allocate(s, size, near, true, false)
}

// AllocateBlock is Allocate for what is never rewritten in place: no memory is put aside for images
// of it.
func (p *Pool) AllocateBlock(size int, near Addr) (Addr, error) {
	return p.allocate(nil, size, near, false, false)
}

// AllocateBlock is Allocate for what is never rewritten in place: no memory is put aside for images
// of it.
func (s *Session) AllocateBlock(size int, near Addr) (Addr, error) {
	return s.pool.allocate(s, size, near, false, false)
}

func (p *Pool) allocate(s *Session, size int, near Addr, rewritten, reserved bool) (Addr, error) {
	a := p.alloc
	size = roundNode(size)
	if size <= 0 || size > p.MostNodeBytes() {
		return Nil, fmt.Errorf("allocate a node of %d bytes: a chunk has room for %d", size, p.MostNodeBytes())
	}
	a.mu.Lock()
	c := a.class(size)
	c.rewritten = c.rewritten || rewritten
	first, addr := a.popFree(c, near, reserved)
	a.mu.Unlock()
	if addr != Nil {
		return addr, nil
	}
	return a.fetchNode(s, c, first, reserved)
}

// popFree pops a node that is there without a call, near that one: Nil if there is none. first is
// the server to ask first.
func (a *allocator) popFree(c *class, near Addr, reserved bool) (first int, addr Addr) {
	p := a.pool
	first, ok := p.serverOf(near)
	if near == Nil || !ok {
		first = a.next
		a.next = (a.next + 1) % len(p.servers())
		for i := range p.servers() {
			if s := (first + i) % len(p.servers()); c.freedNodes[s] > 0 {
				return first, a.popFreed(c, s, reserved)
			}
		}
	}
	// read only if it matters: reading the clock can cost as much as all else here
	var now time.Duration
	for i := range p.servers() {
		s := (first + i) % len(p.servers())
		switch {
		case c.freedNodes[s] > 0:
			return first, a.popFreed(c, s, reserved)
		case c.hasRoom(s):
			return first, a.cutNext(c, s)
		case !p.servers()[s].counts.Load():
			continue // nobody may have memory of it: see join.go
		case now == 0:
			now = p.env.Now()
		}
		if now >= c.full[s] {
			return first, Nil // it is to be asked
		}
	}
	return first, Nil
}

// fetchNode fetches a node of any server, beginning with server first, for the operation of s,
// which may be nil.
func (a *allocator) fetchNode(s *Session, c *class, first int, reserved bool) (Addr, error) {
	p := a.pool
	// first without servers that said lately that they are full: it takes calls to hear it again
	for _, patient := range []bool{false, true} {
		passed := false
		for i := range p.servers() {
			from := (first + i) % len(p.servers())
			if !p.servers()[from].counts.Load() {
				continue
			}
			if !patient && a.isFull(c, from) {
				passed = true
				continue
			}
			addr, err := a.fetch(s, from, func() (Addr, error) { return a.findOn(c, from, reserved) }, func(addr Addr) { a.giveNode(c.size, addr) })
			if !errors.Is(err, ErrPoolFull) {
				return addr, err
			}
		}
		if !passed {
			break
		}
	}
	return Nil, a.explainFull(fmt.Errorf("allocate a node of %d bytes on any of %d servers: %w", c.size, len(p.servers()), ErrPoolFull))
}

// isFull reports whether server i said lately that it is full, and nothing came back since.
func (a *allocator) isFull(c *class, i int) bool {
	now := a.pool.env.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	return now < c.full[i] && c.freedNodes[i] == 0 && !c.hasRoom(i)
}

// findOn pops a node of server i, with calls if need be.
func (a *allocator) findOn(c *class, i int, reserved bool) (addr Addr, err error) {
	if c.freedNodes[i] > 0 {
		addr = a.popFreed(c, i, reserved)
	} else if addr, err = a.popFromSlab(c, i, reserved); err != nil {
		if errors.Is(err, ErrPoolFull) {
			c.full[i] = a.pool.env.Now() + fullFor
		}
		return Nil, err
	}
	return addr, nil
}

// class is that which nodes of a size are allocated from: the one with lock words, where these were
// declared.
func (a *allocator) class(size int) *class {
	for _, c := range a.open {
		if c.size == size && c.serves {
			return c
		}
	}
	c := a.classOf(size, false)
	c.serves = true
	return c
}

// classOf is the class of nodes of a size with or without lock words. A client that only adopted
// such nodes has it, too, and allocates none from it.
func (a *allocator) classOf(size int, strip bool) *class {
	for _, c := range a.open {
		if c.size == size && c.strip == strip {
			return c
		}
	}
	n := len(a.chunks)
	c := &class{size: size, strip: strip, nodes: make([]int, n), freed: make([][]*slab, n), freedNodes: make([]int, n),
		uncut: make([][]*slab, n), uncutNodes: make([]int, n), provisional: make([][]*slab, n), failed: make([]bool, n), full: make([]time.Duration, n)}
	for _, s := range a.pool.servers() {
		c.shapes = append(c.shapes, s.geometry.shapeOf(size, strip))
	}
	a.open = append(a.open, c)
	return c
}

// popFromSlab pops a node of an open slab on server i; if these are used up, one of a slab that it
// opens, in a new chunk or one that it adopts if need be.
func (a *allocator) popFromSlab(c *class, i int, reserved bool) (Addr, error) {
	if !c.hasRoom(i) {
		if err := a.renew(c, i); err != nil {
			return Nil, err
		}
		if c.freedNodes[i] > 0 {
			return a.popFreed(c, i, reserved), nil
		}
	}
	return a.cutNext(c, i), nil
}

// hasRoom reports whether an open slab on server i has nodes that were never handed out.
func (c *class) hasRoom(i int) bool { return c.uncutNodes[i] > 0 }

// cutNext pops the next node that was never handed out of server i, which has some.
func (a *allocator) cutNext(c *class, i int) Addr {
	b := c.uncut[i][0]
	if b.isFree() {
		b.chunk.busy++
	}
	b.cut++
	c.uncutNodes[i]--
	if b.uncutNodes() == 0 {
		c.uncut[i] = slices.Delete(c.uncut[i], 0, 1)
	}
	return b.addr(b.cut - 1)
}

// mostAdopted is how many chunks a client adopts at once at most when the quota is used up.
const mostAdopted = 64

// renew finds nodes on server i, or opens slabs there. It gives up a.mu for calls.
func (a *allocator) renew(c *class, i int) error {
	srv := a.pool.servers()[i]
	unit := srv.geometry.slabBytes(c.shapes[i])
	for try := 0; ; try++ {
		if c.freedNodes[i] > 0 || c.hasRoom(i) {
			return nil
		}
		opened, err := a.openSlabs(c, i, a.wanted(c, i))
		if opened {
			a.putAside(c, i)
			return nil
		}
		adopted := err
		if err == nil {
			adopted = a.adopt(i, unit)
		}
		if adopted == nil && try == 0 {
			continue
		}
		var off uint64
		if err == nil {
			off, err = a.fetchChunk(i, unit, false)
		}
		full := errors.Is(err, ErrPoolFull)
		if full && (adopted == nil && try < mostAdopted || a.closeEmpty(i) || a.giveVacant(i, unit)) {
			continue
		}
		if err == nil && off%srv.grant.ChunkBytes != 0 {
			err = fmt.Errorf("chunk at %#x, no multiple of %#x: %w", off, srv.grant.ChunkBytes, ErrFormat)
		}
		if err != nil {
			return fmt.Errorf("allocate a chunk on memory server %d: %w", srv.id, err)
		}
		a.addChunk(i, NewAddr(srv.id, off), unit)
	}
}

// wanted is for how many nodes slabs are opened at once: the more there are of a class, the more
// come together, and the seldomer somebody waits for the table to be written.
func (a *allocator) wanted(c *class, i int) int {
	n := max(1, c.nodes[i]/openedShare)
	if c.rewritten {
		n = max(n, maxChanges+1-a.imagesOf(i, c.size).made+leftOver+1)
	}
	return n
}

// openedShare is the part of a class's nodes that is opened at once; leftOver, how many nodes a new
// slab has besides places for images.
const (
	openedShare = 4
	leftOver    = 2
)

// putAside puts aside what rewrites need of places for images on server i, so that a pool that is
// full later does not lack them: they are what makes room.
func (a *allocator) putAside(c *class, i int) {
	if !c.rewritten {
		return
	}
	for images := a.imagesOf(i, c.size); images.made < maxChanges+1 && c.uncutNodes[i] > leftOver; images.made++ {
		addr := a.cutNext(c, i)
		a.setIdle(c, addr)
		images.push(addr)
	}
}

// setIdle notes that the node at addr, which was just handed out, is a place for images.
func (a *allocator) setIdle(c *class, addr Addr) {
	b := a.slabOf(c.size, addr)
	b.setIdle(b.index(addr))
}

// Free gives a node back, for this client to use again at once. Nobody else ever knew its address:
// what was published is retired.
func (p *Pool) Free(addr Addr, size int) {
	a := p.alloc
	a.mu.Lock()
	defer a.mu.Unlock()
	a.giveNode(roundNode(size), addr)
}

// giveNode is Free under a.mu.
func (a *allocator) giveNode(size int, addr Addr) {
	if b := a.givenBack(size, addr); b != nil {
		a.pushFree(b, b.index(addr))
	}
}
