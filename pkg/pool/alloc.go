package pool

import (
	"errors"
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
)

// Allocation has two stages (Sherman, section 4.2.4): chunks come from the memory servers by control call, nodes are cut from
// them here by size class, so a control call is paid once in thousands of nodes. A chunk serves one size only and stays of
// that type; so an address that once was a node of some size never becomes the middle of another one, and a reader with a stale pointer
// always finds a node header there, by which it recognizes that the node is not the one it looked for.

// nodeAlign is what node sizes are rounded up to: a cache line, so that no two nodes share one.
const nodeAlign = 64

func roundNode(size int) int { return (size + nodeAlign - 1) &^ (nodeAlign - 1) }

// allocator is shared by the sessions of a client.
type allocator struct {
	pool *Pool
	mu   env.Mutex // held across control calls: whoever needs a node meanwhile needs the same chunk
	next int       // server whose turn it is
	open []class

	images [][]*images // by dense server number
	swept  *chunk      // that is being swept
	handed []Addr      // nodes of it that were handed out since that began
}

// class is what there is of one node size.
type class struct {
	size   int
	chunk  []span          // by dense server number: what is left of the open chunk
	chunks []*chunk        // all of this client's, sorted
	full   []time.Duration // by dense server number: until when it is not asked for a chunk as long as another server has room
	free   [][]Addr        // by dense server number: nodes that can be used again, the last one first
	limbo  []retired

	rewritten bool // nodes of this size are rewritten in place: each server needs places for images
}

// fullFor is how long a server that is full is left alone.
const fullFor = 100 * time.Millisecond

// span is a run of bytes on one server.
type span struct{ next, end uint64 }

func newAllocator(p *Pool) *allocator {
	return &allocator{pool: p, mu: p.env.NewMutex()}
}

// Allocate takes a node of size bytes. With near it comes from the same server, if that has room, so that both can be written in
// one list; with Nil, servers take turns. What was given back is used first. The node's content is zero or that of a freed node of the same size.
// ErrPoolFull: no server has room.
func (p *Pool) Allocate(size int, near Addr) (Addr, error) { return p.allocate(size, near, true) }

// AllocateBlock is Allocate for what is never rewritten in place: no memory is put aside for images of it.
func (p *Pool) AllocateBlock(size int, near Addr) (Addr, error) { return p.allocate(size, near, false) }

func (p *Pool) allocate(size int, near Addr, rewritten bool) (Addr, error) {
	a := p.alloc
	size = roundNode(size)
	if size <= 0 || uint64(size) > p.ChunkBytes() {
		return Nil, fmt.Errorf("allocate a node of %d bytes: a chunk has %d", size, p.ChunkBytes())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.class(size)
	c.rewritten = c.rewritten || rewritten
	first, ok := p.serverOf(near)
	if near == Nil || !ok {
		first = a.next
		a.next = (a.next + 1) % len(p.servers)
		for i := range p.servers {
			if s := (first + i) % len(p.servers); len(c.free[s]) > 0 {
				return a.takeFree(c, s), nil
			}
		}
	}
	if len(c.free[first]) > 0 {
		return a.takeFree(c, first), nil
	}
	now := p.env.Now()
	for _, patient := range []bool{false, true} { // first without servers that said lately that they are full: it takes calls to hear it again
		passed := false
		for i := range p.servers {
			s := (first + i) % len(p.servers)
			if len(c.free[s]) > 0 {
				return a.takeFree(c, s), nil
			}
			if !patient && now < c.full[s] && c.chunk[s].end-c.chunk[s].next < uint64(c.size) {
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
	return Nil, fmt.Errorf("allocate a node of %d bytes on any of %d servers: %w", size, len(p.servers), ErrPoolFull)
}

func (a *allocator) class(size int) *class {
	for i := range a.open {
		if a.open[i].size == size {
			return &a.open[i]
		}
	}
	n := len(a.pool.servers)
	a.open = append(a.open, class{size: size, chunk: make([]span, n), full: make([]time.Duration, n), free: make([][]Addr, n)})
	return &a.open[len(a.open)-1]
}

// cut takes a node from the open chunk on server i; if that is used up, a free one of that server, of a chunk that it adopts if need be, or the
// first one of a new chunk.
func (a *allocator) cut(c *class, i int) (Addr, error) {
	srv, s := a.pool.servers[i], &c.chunk[i]
	if s.end-s.next < uint64(c.size) {
		addr, err := a.renew(c, i)
		if addr != Nil || err != nil {
			return addr, err
		}
	}
	addr := NewAddr(srv.id, s.next)
	s.next += uint64(c.size)
	return addr, nil
}

// mostAdopted is how many chunks a client adopts at once at most when the quota is used up.
const mostAdopted = 64

// renew finds a free node on server i, or opens a new chunk there.
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
		off, err := a.pool.control.AllocateChunk(srv.id, a.pool.client, c.size, false, a.pool.limit)
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

// stock puts aside what rewrites need of places for images on server i, so that a pool that is full later does not lack them: they are what
// makes room.
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

// Free gives a node back, for this client to use again as a node of the same size. Nobody may be able to find it any more, but stale
// readers may still look at it.
func (p *Pool) Free(addr Addr, size int) {
	a := p.alloc
	size = roundNode(size)
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.class(size)
	if k := c.chunkOf(addr); k != nil {
		i, _ := p.serverOf(addr)
		c.pushFree(k, i, addr)
	}
}
