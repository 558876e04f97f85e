package pool

import (
	"errors"
	"slices"
)

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
	unwritten // never written; the pool's own
)

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

func (p *Pool) newSweeper(nodeBytes int) (*sweeper, error) {
	s, err := p.NewSession(sweepList*64 + nodeBytes)
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
		w.node, err = s.Buffer(nodeBytes)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return w, nil
}

// look reads the heads of a chunk's nodes up to node end and calls see for those that are dead or
// were never written.
func (w *sweeper) look(k *chunk, size, end int, see func(a Addr, m Mark)) error {
	marks := w.pool.marks.Load()
	for from := 0; from < end; from += sweepList {
		n := min(sweepList, end-from)
		w.s.Begin()
		for i := range n {
			w.s.Read(k.first+Addr((from+i)*size), w.heads[i])
		}
		if err := w.s.Post(); err != nil {
			return err
		}
		for i := range n {
			a := k.first + Addr((from+i)*size)
			if allZero(w.heads[i]) {
				see(a, unwritten)
			} else if marks != nil {
				if m := (*marks)(a, w.heads[i]); m != Used {
					see(a, m)
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
	if err := w.s.Lock(a, w.node[:size]); err != nil {
		return err
	}
	return w.s.PostUnlock()
}

// sweep is the sweep of one chunk.
type sweep struct {
	c     *chunk
	size  int    // of its nodes
	end   int    // how many of them were cut
	since uint64 // the client's time when it began
}

// beginSweep begins the sweep of the chunk after turn; nil if there is none.
func (a *allocator) beginSweep(turn Addr) *sweep {
	a.mu.Lock()
	defer a.mu.Unlock()
	var sw *sweep
	for n := range a.open {
		for _, k := range a.open[n].chunks {
			if k.first > turn && (sw == nil || k.first < sw.c.first) {
				sw = &sweep{c: k, size: a.open[n].size, end: k.nodes}
			}
		}
	}
	if sw == nil {
		return nil
	}
	if sw.c.open {
		i, _ := a.pool.serverOf(sw.c.first)
		sw.end = sw.c.index(NewAddr(sw.c.first.Server(), a.class(sw.size).chunk[i].next), sw.size)
	}
	a.swept, a.handed = sw.c, a.handed[:0]
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
	if err != nil {
		return false, err
	}
	i, _ := p.serverOf(sw.c.first)
	srv, c := p.servers[i], a.class(sw.size)
	epoch := srv.epoch.Load()
	for _, at := range dead {
		if n := sw.c.index(at, sw.size); !sw.c.isIdle(n) && !slices.Contains(a.handed, at) {
			sw.c.setIdle(n)
			c.limbo = append(c.limbo, retired{at, epoch})
			srv.want(epoch + safeAfter)
		}
	}
	return len(dead) > sw.end/manyDead, nil
}

// manyDead is the part of a chunk's nodes that are many: then the sweeps of the next chunks come
// faster, so that what others give up here waits no longer than it takes to find it.
const manyDead = 32

// findDead finds the dead nodes of a chunk that are in nobody's hands, and settles those that need
// it.
func (p *Pool) findDead(sw *sweep) (dead []Addr, err error) {
	w, err := p.newSweeper(sw.size)
	if err != nil {
		return nil, err
	}
	var doubtful []Addr
	err = w.look(sw.c, sw.size, sw.end, func(at Addr, m Mark) {
		if m == unwritten || p.Idle(at, sw.size) {
			return
		}
		if dead = append(dead, at); m == Dead {
			doubtful = append(doubtful, at)
		}
	})
	for _, at := range doubtful {
		if err == nil {
			err = w.settle(at, sw.size)
		}
	}
	return dead, errors.Join(err, w.s.Close())
}
