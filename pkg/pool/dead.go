package pool

import "errors"

// Marks tell the pool what a design's dead nodes look like. head is the first HeadBytes of the node
// at a. A function of nothing else, safe for concurrent use. It must depend on the address: images
// of nodes lie in places of their own (RewriteAll), and the image of a dead node is not dead there.
// The head of a node in use is never all zero.
type Marks func(a Addr, head []byte) Mark

// Mark is what the head of a node says.
type Mark uint8

const (
	Used Mark = iota // the node is not dead, or nothing that makes sense
	// the node is dead; the change that killed it may be that of a client which died, and be half
	// done
	Dead
	// the node is dead, and what made it so was over when it was marked: its lock has nothing to do
	// with it
	Over
	// Over, and no cached copy leads to the node (RetireUncached)
	Uncached
	unwritten // never written; the pool's own
)

// Marked reports whether node, at a, is marked as dead.
func (p *Pool) Marked(a Addr, node []byte) bool {
	m := p.marks.Load()
	return m != nil && (*m)(a, node[:HeadBytes]) != Used
}

// HeadBytes is how much of a node the pool looks at to see whether it is dead. No node is smaller.
const HeadBytes = 32

// SetMarks says how dead nodes are marked. Before that the pool finds none.
func (p *Pool) SetMarks(m Marks) { p.marks.Store(&m) }

// sweeper looks at the nodes of this client's chunks.
type sweeper struct {
	pool  *Pool
	s     *Session
	heads [][]byte
	node  []byte
}

// sweepList is how many heads are read at once.
const sweepList = 64

// settleBytes is how much of a dead node is read under its lock, and how much of an image at once
// when it has to be repaired.
const settleBytes = 4 << 10

// newSweeper makes a sweeper, which can read a table of so many bytes.
func (p *Pool) newSweeper(table int) (*sweeper, error) {
	room := max(settleBytes, table)
	s, err := p.NewSession(sweepList*64 + room)
	if err != nil {
		return nil, err
	}
	w := &sweeper{pool: p, s: s}
	for range sweepList {
		var b []byte
		if err == nil {
			b, err = s.Buffer(HeadBytes)
		}
		w.heads = append(w.heads, b)
	}
	if err == nil {
		w.node, err = s.Buffer(room)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return w, nil
}

// readHeads reads the heads of the first end nodes of a slab and calls see for those that are dead
// or were never written.
func (w *sweeper) readHeads(first Addr, size, end int, see func(n int, m Mark)) error {
	marks := w.pool.marks.Load()
	for from := 0; from < end; from += sweepList {
		n := min(sweepList, end-from)
		w.s.Begin()
		for i := range n {
			w.s.Read(first+Addr((from+i)*size), w.heads[i])
		}
		if err := w.s.Post(); err != nil {
			return err
		}
		for i := range n {
			if allZero(w.heads[i]) {
				see(from+i, unwritten)
			} else if marks != nil {
				if m := (*marks)(first+Addr((from+i)*size), w.heads[i]); m != Used {
					see(from+i, m)
				}
			}
		}
	}
	return nil
}

func allZero(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

// settle makes sure that the change which killed the node at a is over: it may be that of a fenced
// client which is yet to be repaired.
func (w *sweeper) settle(a Addr, size int) error {
	w.s.Begin()
	if err := w.s.Lock(a, w.node[:min(size, settleBytes)]); err != nil {
		return err
	}
	return w.s.PostUnlock()
}

// sweep is the sweep of one chunk.
type sweep struct {
	k     *chunk
	parts []sweptSlab
	since uint64 // the client's time when it began
}

type sweptSlab struct {
	*slab
	end int // how many of its nodes were cut
}

// deadNode is node n of a slab.
type deadNode struct {
	*slab
	n     int
	reach reach
}

// beginSweep begins the sweep of the chunk after turn; nil if there is none. The chunk and its
// slabs stay until the sweep is finished.
func (a *allocator) beginSweep(turn Addr) *sweep {
	a.mu.Lock()
	defer a.mu.Unlock()
	sw := &sweep{k: a.chunkAfter(turn)}
	if sw.k == nil {
		return nil
	}
	for b := range sw.k.open() {
		b.handed = make([]uint64, len(b.idle))
		sw.parts = append(sw.parts, sweptSlab{b, b.cut})
	}
	a.swept = sw.k
	sw.since = a.pool.tick()
	return sw
}

// finish looks at the nodes of the chunk, once the operations are over that were under way when the
// sweep began, and retires those that are dead. many says that these were many.
func (a *allocator) finish(sw *sweep) (many bool, err error) {
	p := a.pool
	dead, err := p.findDead(sw)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.swept = nil
	for _, d := range dead {
		if err == nil && a.mayBeDead(d.slab, d.n) && d.handed[d.n/64]>>(d.n%64)&1 == 0 {
			a.retire(d.slab, d.n, d.reach)
		}
	}
	all := 0
	for _, part := range sw.parts {
		all += part.end
		part.handed = nil
	}
	return err == nil && len(dead) > all/manyDead, err
}

// manyDead is the part of a chunk's nodes that are many: then the sweeps of the next chunks come
// faster, so that what others give up here waits no longer than it takes to find it.
const manyDead = 32

// findDead finds the dead nodes of a chunk that are in nobody's hands, and settles those that need
// it.
func (p *Pool) findDead(sw *sweep) (dead []deadNode, err error) {
	w, err := p.newSweeper(0)
	if err != nil {
		return nil, err
	}
	var doubtful []deadNode
	for _, part := range sw.parts {
		if err != nil {
			break
		}
		err = w.readHeads(part.first, part.class.size, part.end, func(n int, m Mark) {
			if m == unwritten || !p.alloc.looksDead(part.slab, n) {
				return
			}
			d := deadNode{part.slab, n, reachOf(m)}
			if dead = append(dead, d); m == Dead {
				doubtful = append(doubtful, d)
			}
		})
	}
	for _, d := range doubtful {
		if err == nil {
			err = w.settle(d.addr(d.n), d.class.size)
		}
	}
	return dead, errors.Join(err, w.s.Close())
}
