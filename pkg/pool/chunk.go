package pool

import (
	"cmp"
	"iter"
	"slices"

	"github.com/dmindex/dmindex/pkg/env/invariants"
)

// chunk is a chunk of this client, divided into slabs. allocator.mu guards it.
type chunk struct {
	first  Addr
	server int     // dense number
	unit   uint64  // geometry.slabBytes of its runs
	slabs  []*slab // by number: the open run that covers it; nil = none does
	vacant int     // how many of these are nil
	busy   int     // runs whose nodes are not all free

	// by number; used where memory is fetched (fetch), of which there is one at a time
	written []int  // slabs of the run whose word the table has there, open or closed
	dirty   []bool // the slab may hold something else than zero
	late    []bool // a WRITE of zero over the slab's word may yet take effect: no run begins there

	damaged bool // the table has a word that says nothing: see adopt
}

// slab is an open run of slabs of a chunk, with nodes of one class.
type slab struct {
	chunk *chunk
	class *class
	at    int // number of its first slab
	run   int // how many these are
	first Addr
	nodes int
	cut   int      // how many were handed out at least once: the first ones
	idle  []uint64 // a bit for each of these that is free, retired or a place for images
	freed []uint32 // those that are free, the one that was given back last at the end
	// a bit for each of these that a review suspects (review.go); nil = it suspects none
	suspects []uint64
	// a bit for each of these that is handed out and not written yet (reserve.go); nil = none is
	reserved []uint64
	// a bit for each of these that was handed out since the sweep began that is under way
	// (dead.go); nil = there is none
	handed []uint64

	inFreed   int  // place in class.freed; -1 = there is nothing in freed
	candidate bool // it is in allocator.emptied
	ready     bool // its word is in the table, so its nodes may be handed out
	plain     bool // its word is all that is written to open it
	late      bool // a WRITE of its word may yet take effect: it stays what it is, see openSlabs
}

func (b *slab) index(a Addr) int  { return int(a-b.first) / b.class.size }
func (b *slab) addr(i int) Addr   { return b.first + Addr(i*b.class.size) }
func (b *slab) isIdle(i int) bool { return b.idle[i/64]>>(i%64)&1 != 0 }
func (b *slab) setIdle(i int)     { b.idle[i/64] |= 1 << (i % 64); b.clear(i); b.setReserved(i, false) }
func (b *slab) setBusy(i int)     { b.idle[i/64] &^= 1 << (i % 64) }
func (b *slab) uncutNodes() int   { return b.nodes - b.cut }

// clear says that node i is no suspect of a review.
func (b *slab) clear(i int) {
	if b.suspects != nil {
		b.suspects[i/64] &^= 1 << (i % 64)
	}
}

// isFree reports whether all nodes are free.
func (b *slab) isFree() bool { return b.ready && len(b.freed) == b.cut }

// addChunk makes a chunk known that is zero, for runs of a unit.
func (a *allocator) addChunk(i int, first Addr, unit uint64) *chunk {
	slabs := a.pool.servers()[i].geometry.slabs
	k := &chunk{first: first, server: i, unit: unit, slabs: make([]*slab, slabs), vacant: slabs, written: make([]int, slabs), dirty: make([]bool, slabs), late: make([]bool, slabs)}
	at, _ := searchChunk(a.chunks[i], first)
	a.chunks[i] = slices.Insert(a.chunks[i], at, k)
	return k
}

// open are the runs of k.
func (k *chunk) open() iter.Seq[*slab] {
	return func(yield func(*slab) bool) {
		for at := 0; at < len(k.slabs); {
			b := k.slabs[at]
			if b == nil {
				at++
				continue
			}
			if at = b.at + b.run; !yield(b) {
				return
			}
		}
	}
}

func searchChunk(list []*chunk, a Addr) (at int, found bool) {
	return slices.BinarySearchFunc(list, a, func(k *chunk, a Addr) int { return cmp.Compare(k.first, a) })
}

// slabOf is the open run of this client in which the node of a size at addr begins; nil if there is
// none.
func (a *allocator) slabOf(size int, addr Addr) *slab {
	if b := a.slabAt(addr); b != nil && b.class.size == size {
		return b
	}
	return nil
}

// givenBack is slabOf of a node that is given back. In builds with invariants its size is what the
// slab says: else it would stay in use for as long as this client lives, and nobody would know.
func (a *allocator) givenBack(size int, addr Addr) *slab {
	if invariants.Enabled {
		b := a.slabAt(addr)
		invariants.Check(b == nil || b.class.size == size || a.pool.Alive() != nil, "node %v is given back as one of %d bytes, and is one of another size", addr, size)
	}
	return a.slabOf(size, addr)
}

// slabAt is the open run of this client in which a node begins at addr; nil if there is none.
func (a *allocator) slabAt(addr Addr) *slab {
	i, ok := a.pool.serverOf(addr)
	if !ok {
		return nil
	}
	at, found := searchChunk(a.chunks[i], addr)
	if !found {
		if at--; at < 0 {
			return nil
		}
	}
	g, k := &a.pool.servers()[i].geometry, a.chunks[i][at]
	if uint64(addr-k.first) >= uint64(g.slabs)*g.slab {
		return nil
	}
	b := k.slabs[uint64(addr-k.first)/g.slab]
	if b == nil || addr < b.first || b.index(addr) >= b.nodes || int(addr-b.first)%b.class.size != 0 {
		return nil
	}
	return b
}

// chunkAfter is the first chunk of this client behind an address; nil if there is none.
func (a *allocator) chunkAfter(turn Addr) (next *chunk) {
	for _, chunks := range a.chunks {
		at, found := searchChunk(chunks, turn)
		if found {
			at++
		}
		if at < len(chunks) && (next == nil || chunks[at].first < next.first) {
			next = chunks[at]
		}
	}
	return next
}

// install makes a run of k known as a slab of class c. None of its nodes is handed out yet.
func (a *allocator) install(c *class, k *chunk, s shape, at int) *slab {
	g := &a.pool.servers()[k.server].geometry
	_, first, nodes := g.runAt(s, at)
	b := &slab{chunk: k, class: c, at: at, run: s.run, first: k.first + Addr(first), nodes: nodes, idle: make([]uint64, (nodes+63)/64), inFreed: -1}
	for n := at; n < at+s.run; n++ {
		k.slabs[n] = b
	}
	k.vacant -= s.run
	c.nodes[k.server] += nodes
	return b
}

// addUncut makes nodes of b ready for cutNext.
func (c *class) addUncut(b *slab) {
	b.ready = true
	if i := b.chunk.server; b.uncutNodes() > 0 {
		c.uncut[i] = append(c.uncut[i], b)
		c.uncutNodes[i] += b.uncutNodes()
	}
}

// close removes b, all of whose nodes are free, from its class: its slabs are vacant.
func (a *allocator) close(b *slab) {
	c, i := b.class, b.chunk.server
	c.freedNodes[i] -= len(b.freed)
	c.dropFreed(b)
	if b.uncutNodes() > 0 {
		c.uncutNodes[i] -= b.uncutNodes()
		c.uncut[i] = slices.DeleteFunc(c.uncut[i], func(o *slab) bool { return o == b })
	}
	a.remove(b)
}

// remove undoes install.
func (a *allocator) remove(b *slab) {
	k := b.chunk
	b.class.nodes[k.server] -= b.nodes
	for n := b.at; n < b.at+b.run; n++ {
		k.slabs[n] = nil
	}
	k.vacant += b.run
	b.ready = false
}

// dropFreed removes b from the slabs that have free nodes.
func (c *class) dropFreed(b *slab) {
	if b.inFreed < 0 {
		return
	}
	list := c.freed[b.chunk.server]
	last := len(list) - 1
	list[b.inFreed] = list[last]
	list[b.inFreed].inFreed = b.inFreed
	c.freed[b.chunk.server] = list[:last]
	b.inFreed = -1
}

// vacancy finds room for a run of s on server i: nil if there is none.
func (a *allocator) vacancy(i int, s shape) (k *chunk, at int) {
	g := &a.pool.servers()[i].geometry
	for _, k := range a.chunks[i] {
		if k.vacant < s.run || k.damaged || k.unit != g.slabBytes(s) {
			continue
		}
		for at := 0; at+s.run <= g.slabs; at += s.run {
			if _, _, nodes := g.runAt(s, at); nodes > 0 && !k.late[at] && !slices.ContainsFunc(k.slabs[at:at+s.run], func(b *slab) bool { return b != nil }) {
				return k, at
			}
		}
	}
	return nil, 0
}
