package pool

import (
	"cmp"
	"encoding/binary"
	"errors"
	"iter"
	"slices"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// chunk is a chunk of this client, divided into slabs. allocator.mu guards it.
type chunk struct {
	first  Addr
	server int     // dense number
	unit   uint64  // geometry.unit of its runs
	slabs  []*slab // by number: the open run that covers it; nil = none does
	vacant int     // how many of these are nil
	busy   int     // runs whose nodes are not all free

	// by number; used where memory is fetched (fetch), of which there is one at a time
	written []int  // slabs of the run whose word the table has there, open or closed
	dirty   []bool // the slab may hold something else than zero

	lost bool // the table has a word that says nothing: what is not open stays as it is
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

	inFreed   int  // place in class.freed; -1 = there is nothing in freed
	candidate bool // it is in allocator.emptied
	ready     bool // its word is in the table, so its nodes may be handed out
}

func (b *slab) index(a Addr) int  { return int(a-b.first) / b.class.size }
func (b *slab) addr(i int) Addr   { return b.first + Addr(i*b.class.size) }
func (b *slab) isIdle(i int) bool { return b.idle[i/64]>>(i%64)&1 != 0 }
func (b *slab) setIdle(i int)     { b.idle[i/64] |= 1 << (i % 64) }
func (b *slab) setBusy(i int)     { b.idle[i/64] &^= 1 << (i % 64) }
func (b *slab) left() int         { return b.nodes - b.cut }

// empty reports whether all nodes are free.
func (b *slab) empty() bool { return b.ready && len(b.freed) == b.cut }

// addChunk makes a chunk known that is zero, for runs of a unit.
func (a *allocator) addChunk(i int, first Addr, unit uint64) *chunk {
	slabs := a.pool.servers[i].geometry.slabs
	k := &chunk{first: first, server: i, unit: unit, slabs: make([]*slab, slabs), vacant: slabs, written: make([]int, slabs), dirty: make([]bool, slabs)}
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

// slabOf is the open run of this client in which the node at a, of class c, begins; nil if there is
// none.
func (a *allocator) slabOf(c *class, addr Addr) *slab {
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
	g, k := &a.pool.servers[i].geometry, a.chunks[i][at]
	if uint64(addr-k.first) >= uint64(g.slabs)*g.slab {
		return nil
	}
	b := k.slabs[uint64(addr-k.first)/g.slab]
	if b == nil || b.class != c || addr < b.first || b.index(addr) >= b.nodes || int(addr-b.first)%c.size != 0 {
		return nil
	}
	return b
}

// install makes a run of k known as a slab of class c. None of its nodes is handed out yet.
func (a *allocator) install(c *class, k *chunk, s shape, at int) *slab {
	g := &a.pool.servers[k.server].geometry
	_, first, nodes := g.place(s, at)
	b := &slab{chunk: k, class: c, at: at, run: s.run, first: k.first + Addr(first), nodes: nodes, idle: make([]uint64, (nodes+63)/64), inFreed: -1}
	for n := at; n < at+s.run; n++ {
		k.slabs[n] = b
	}
	k.vacant -= s.run
	c.used = true
	c.nodes[k.server] += nodes
	return b
}

// addUncut makes nodes of b ready for cutNext.
func (c *class) addUncut(b *slab) {
	b.ready = true
	if i := b.chunk.server; b.left() > 0 {
		c.uncut[i] = append(c.uncut[i], b)
		c.uncutNodes[i] += b.left()
	}
}

// close takes b, all of whose nodes are free, from its class: its slabs are vacant.
func (a *allocator) close(b *slab) {
	c, i := b.class, b.chunk.server
	c.freedNodes[i] -= len(b.freed)
	c.dropFreed(b)
	if b.left() > 0 {
		c.uncutNodes[i] -= b.left()
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

// dropFreed takes b from the slabs that have free nodes.
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
	g := &a.pool.servers[i].geometry
	for _, k := range a.chunks[i] {
		if k.vacant < s.run || k.lost || k.unit != g.unit(s) {
			continue
		}
		for at := 0; at+s.run <= g.slabs; at += s.run {
			if _, _, nodes := g.place(s, at); nodes > 0 && !slices.ContainsFunc(k.slabs[at:at+s.run], func(b *slab) bool { return b != nil }) {
				return k, at
			}
		}
	}
	return nil, 0
}

// mostOpened is how many slabs are opened at once at most.
const mostOpened = 32

// openSlabs opens runs of class c on server i, where this client has room for them: at least one,
// and as many as it takes for so many nodes. It gives up a.mu to write the table.
func (a *allocator) openSlabs(c *class, i, nodes int) (some bool, err error) {
	s := c.shapes[i]
	var opened []*slab
	for slabs := 0; len(opened) == 0 || nodes > 0 && slabs+s.run <= mostOpened; slabs += s.run {
		k, at := a.vacancy(i, s)
		if k == nil {
			break
		}
		b := a.install(c, k, s, at)
		opened = append(opened, b)
		nodes -= b.nodes
	}
	if len(opened) == 0 {
		return false, nil
	}
	begun := false
	if err := a.calling(func() (err error) { begun, err = a.pool.writeSlabs(i, opened); return err }); err != nil {
		// What the table says is not known: the runs stay as they are, for nobody.
		for _, b := range opened {
			if !begun {
				a.remove(b)
			}
		}
		return false, err
	}
	for _, b := range opened {
		c.addUncut(b)
	}
	return true, nil
}

// stale are the words of the table that name closed runs which b overlaps.
func (k *chunk) stale(b *slab) iter.Seq[int] {
	return func(yield func(int) bool) {
		for n := range min(len(k.written), b.at+b.run) {
			if k.written[n] > 0 && n+k.written[n] > b.at && !yield(n) {
				return
			}
		}
	}
}

// zeroPiece is how much of a run one WRITE zeroes.
const zeroPiece = 16 << 10

// writeSlabs writes the headers of runs on server i: see slab.go. begun is false if nothing can
// have taken effect, as no session was to be had.
func (p *Pool) writeSlabs(i int, opened []*slab) (begun bool, err error) {
	g := &p.servers[i].geometry
	s, err := p.NewSession(zeroPiece + 64*mostOpened)
	if err != nil {
		return false, err
	}
	s.SetLimit(p.limit)
	s.Begin()
	zero, err := s.Buffer(zeroPiece)
	write := func(at Addr, b []byte) {
		if err == nil && len(s.lists[i]) == verbs.MaxList {
			err = s.Post()
		}
		s.write(at, b)
	}
	for _, b := range opened {
		if err != nil {
			break
		}
		k, sh := b.chunk, b.class.shapes[i]
		for n := range k.stale(b) {
			write(k.first+Addr(8*n), s.zero)
			k.written[n] = 0
		}
		from, end := g.bounds(sh, b.at)
		for n := b.at; n < b.at+b.run; n++ {
			to := min(end, uint64(n+1)*g.slab)
			if n == g.slabs-1 {
				to = end
			}
			for at := max(from, uint64(n)*g.slab); k.dirty[n] && at < to; at += zeroPiece {
				write(k.first+Addr(at), zero[:min(zeroPiece, to-at)])
			}
			k.dirty[n] = true
		}
		k.written[b.at] = b.run
		var word []byte
		if word, err = s.Buffer(8); err == nil {
			binary.LittleEndian.PutUint64(word, uint64(sh.word(g)))
			write(k.first+Addr(8*b.at), word)
		}
	}
	if err == nil {
		err = s.Post()
	}
	return true, errors.Join(err, s.Close())
}
