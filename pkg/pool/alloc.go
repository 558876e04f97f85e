package pool

import (
	"errors"
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
)

// Allocation has two stages (Sherman, section 4.2.4): chunks come from the memory servers by
// control call, nodes are cut from them here by size class, so a control call is paid once in
// thousands of nodes. A chunk serves one size only and stays of that type; so an address that once
// was a node of some size never becomes the middle of another one, and a reader with a stale
// pointer always finds a node header there, by which it recognizes that the node is not the one it
// looked for.

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

	images [][]*images // by dense server number
	swept  *chunk      // that is being swept
	handed []Addr      // nodes of it that were handed out since that began
}

// class is what there is of one node size.
type class struct {
	size   int
	chunk  []span   // by dense server number: what is left of the open chunk
	chunks []*chunk // all of this client's, sorted
	// by dense server number: until when it is not asked for a chunk as long as another server has
	// room
	full []time.Duration
	// by dense server number: nodes that can be used again, the last one first
	free  [][]Addr
	limbo []retired

	rewritten bool // nodes of this size are rewritten in place: each server needs places for images
}

// fullFor is how long a server that is full is left alone.
const fullFor = 100 * time.Millisecond

// span is a run of bytes on one server.
type span struct{ next, end uint64 }

func newAllocator(p *Pool) *allocator {
	return &allocator{pool: p, mu: p.env.NewMutex(), fetcher: newFetcher(p.env)}
}

// Allocate takes a node of size bytes. With near it comes from the same server, if that has room,
// so that both can be written in one list; with Nil, servers take turns. What was given back is
// used first. The node's content is zero or that of a freed node of the same size. ErrPoolFull: no
// server has room. It may take as long as control calls do: an operation, which has a limit and may
// hold a lock, calls the session's own.
func (p *Pool) Allocate(size int, near Addr) (Addr, error) { return p.allocate(nil, size, near, true) }

// Allocate is Pool.Allocate as a part of the operation under way. ErrTimeout: the operation was
// overdue before a memory server answered; nothing was allocated.
func (s *Session) Allocate(size int, near Addr) (Addr, error) {
	return s.pool.allocate(s, size, near, true)
}

// AllocateBlock is Allocate for what is never rewritten in place: no memory is put aside for images
// of it.
func (p *Pool) AllocateBlock(size int, near Addr) (Addr, error) {
	return p.allocate(nil, size, near, false)
}

// AllocateBlock is Allocate for what is never rewritten in place: no memory is put aside for images
// of it.
func (s *Session) AllocateBlock(size int, near Addr) (Addr, error) {
	return s.pool.allocate(s, size, near, false)
}

func (p *Pool) allocate(s *Session, size int, near Addr, rewritten bool) (Addr, error) {
	a := p.alloc
	size = roundNode(size)
	if size <= 0 || uint64(size) > p.ChunkBytes() {
		return Nil, fmt.Errorf("allocate a node of %d bytes: a chunk has %d", size, p.ChunkBytes())
	}
	a.mu.Lock()
	c := a.class(size)
	c.rewritten = c.rewritten || rewritten
	first, addr := a.have(c, near)
	a.mu.Unlock()
	if addr != Nil {
		return addr, nil
	}
	return a.fetch(s, func() (Addr, error) { return a.find(c, first) }, func(addr Addr) { a.giveNode(c, addr) })
}

// have takes a node that is there without a call, near that one: Nil if there is none. first is the
// server to ask first.
func (a *allocator) have(c *class, near Addr) (first int, addr Addr) {
	p := a.pool
	first, ok := p.serverOf(near)
	if near == Nil || !ok {
		first = a.next
		a.next = (a.next + 1) % len(p.servers)
		for i := range p.servers {
			if s := (first + i) % len(p.servers); len(c.free[s]) > 0 {
				return first, a.takeFree(c, s)
			}
		}
	}
	// read only if it matters: reading the clock can cost as much as all else here
	var now time.Duration
	for i := range p.servers {
		s := (first + i) % len(p.servers)
		switch {
		case len(c.free[s]) > 0:
			return first, a.takeFree(c, s)
		case c.hasRoom(s):
			return first, a.cutNext(c, s)
		case now == 0:
			now = p.env.Now()
		}
		if now >= c.full[s] {
			return first, Nil // it is to be asked
		}
	}
	return first, Nil
}

// find takes a node of any server, with calls if need be, beginning with server first.
func (a *allocator) find(c *class, first int) (Addr, error) {
	p := a.pool
	now := p.env.Now()
	// first without servers that said lately that they are full: it takes calls to hear it again
	for _, patient := range []bool{false, true} {
		passed := false
		for i := range p.servers {
			s := (first + i) % len(p.servers)
			if len(c.free[s]) > 0 {
				return a.takeFree(c, s), nil
			}
			if !patient && now < c.full[s] && !c.hasRoom(s) {
				passed = true
				continue
			}
			addr, err := a.cut(c, s)
			if !errors.Is(err, ErrPoolFull) {
				return addr, err
			}
			c.full[s] = now + fullFor
		}
		if !passed {
			break
		}
	}
	return Nil, fmt.Errorf("allocate a node of %d bytes on any of %d servers: %w", c.size, len(p.servers), ErrPoolFull)
}

func (a *allocator) class(size int) *class {
	for _, c := range a.open {
		if c.size == size {
			return c
		}
	}
	n := len(a.pool.servers)
	c := &class{size: size, chunk: make([]span, n), full: make([]time.Duration, n), free: make([][]Addr, n)}
	a.open = append(a.open, c)
	return c
}

// cut takes a node from the open chunk on server i; if that is used up, a free one of that server,
// of a chunk that it adopts if need be, or the first one of a new chunk.
func (a *allocator) cut(c *class, i int) (Addr, error) {
	if !c.hasRoom(i) {
		addr, err := a.renew(c, i)
		if addr != Nil || err != nil {
			return addr, err
		}
	}
	return a.cutNext(c, i), nil
}

// hasRoom says whether the open chunk on server i has room for a node.
func (c *class) hasRoom(i int) bool { return c.chunk[i].end-c.chunk[i].next >= uint64(c.size) }

// cutNext takes the next node of the open chunk on server i, which has room for it.
func (a *allocator) cutNext(c *class, i int) Addr {
	s := &c.chunk[i]
	addr := NewAddr(a.pool.servers[i].id, s.next)
	s.next += uint64(c.size)
	return addr
}

// mostAdopted is how many chunks a client adopts at once at most when the quota is used up.
const mostAdopted = 64

// renew finds a free node on server i, or opens a new chunk there. It gives up a.mu for calls.
func (a *allocator) renew(c *class, i int) (Addr, error) {
	srv, s := a.pool.servers[i], &c.chunk[i]
	for try := 0; ; try++ {
		if len(c.free[i]) > 0 {
			return a.takeFree(c, i), nil
		}
		adopted := a.adopt(c, i)
		if adopted == nil && try == 0 {
			continue
		}
		off, err := a.fetchChunk(c, i, false)
		if errors.Is(err, ErrPoolFull) && adopted == nil && try < mostAdopted {
			continue
		}
		if err != nil {
			return Nil, fmt.Errorf("allocate a chunk on memory server %d: %w", srv.id, err)
		}
		for _, k := range c.chunks {
			k.open = k.open && k.first.Server() != srv.id
		}
		a.addChunk(c, NewAddr(srv.id, off), srv.grant.ChunkBytes).open = true
		*s = span{next: off, end: off + srv.grant.ChunkBytes}
		a.stock(c, i)
		return Nil, nil
	}
}

// stock puts aside what rewrites need of places for images on server i, so that a pool that is full
// later does not lack them: they are what makes room.
func (a *allocator) stock(c *class, i int) {
	if !c.rewritten {
		return
	}
	s, images := &c.chunk[i], a.imagesOf(i, c.size)
	for images.made < maxChanges+1 && s.end-s.next > 2*uint64(c.size) {
		addr := NewAddr(a.pool.servers[i].id, s.next)
		images.free = append(images.free, addr)
		images.made++
		s.next += uint64(c.size)
		k := c.chunkOf(addr)
		k.setIdle(k.index(addr, c.size))
	}
}

// Free gives a node back, for this client to use again as a node of the same size. Nobody may be
// able to find it any more, but stale readers may still look at it.
func (p *Pool) Free(addr Addr, size int) {
	a := p.alloc
	size = roundNode(size)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.giveNode(a.class(size), addr)
}

// giveNode is Free under a.mu.
func (a *allocator) giveNode(c *class, addr Addr) {
	if k := c.chunkOf(addr); k != nil {
		i, _ := a.pool.serverOf(addr)
		c.pushFree(k, i, addr)
	}
}
