package pool

import (
	"slices"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
)

// Reclamation of nodes that a design has taken out of its structure. Others may still follow an
// address of such a node that they got before: an operation under way, or the index cache of a
// client. So a node is used again only when nobody can (EpochTable).
//
// # What a client has passed
//
// A client counts on a clock of its own, which ticks when it learns of a new epoch of any server.
// An operation shows the clock's time at its begin (Session.Begin), and nothing when it is over
// (Session.End); what a cache keeps is stamped with that time. When the client learns of an epoch,
// the floor becomes the next time, and then the clock ticks: what is stamped with less than the
// floor must not be followed any more. So when all operations show nothing or at least that time,
// the client holds no address that it got before it ticked, and has passed the epoch.
//
// The floor comes first. Begin stores the time and then looks at the floor (by way of the cache).
// So an operation that shows the new time has begun after the floor was raised, and sees it. One
// that shows the old time is waited for, whichever floor it sees. The other way around an operation
// could begin in between: with the new time, for which nobody waits, and the old floor. The clock
// also ticks for sweeps, which raise no floor: so the time that a floor was raised for is one that
// this keeper's own tick brought (pass). The keeper looks at the operations after that; one that it
// sees nothing of begins later, and sees the floor.
//
// # Whose a dead node is
//
// A chunk belongs to one client, and only its owner hands out its nodes. A client that takes a node
// out which lies in a chunk of its own retires it itself. Others leave it where it lies, marked as
// dead by its design, and its owner finds it: when an epoch grows, it sweeps its chunks. Under the
// lock of a dead node it makes sure that the change which killed it is over, then it retires the
// node. The nodes that it handed out since the sweep of a chunk began, or that were handed out
// before by operations that still go on, may look dead, too, as they are not written yet; so a
// sweep begins when those operations are over, and leaves what was handed out since.
//
// # What clients leave behind
//
// A client that needs a chunk first adopts one that a fenced client left (AllocateChunk), with all
// that is in it. Nodes that were never written are free at once: nobody knows them. Dead ones are
// retired. What looks like anything else stays as it is: nodes that are in use, and with them the
// few that the dead client had taken for images, or for a split that it did not finish.

// retired is a node that waits until nobody can look at it any more.
type retired struct {
	addr  Addr
	epoch uint64 // of its server, that was known when it was out
}

// safeAfter is how many epochs a retired node waits: see EpochTable.
const safeAfter = 2

// pushFree makes node n of b free.
func (a *allocator) pushFree(b *slab, n int) {
	c, i := b.class, b.chunk.server
	b.setIdle(n)
	if b.freed = append(b.freed, uint32(n)); b.inFreed < 0 {
		b.inFreed = len(c.freed[i])
		c.freed[i] = append(c.freed[i], b)
	}
	c.freedNodes[i]++
	if !b.empty() {
		return
	}
	b.chunk.busy--
	if !b.candidate {
		b.candidate = true
		a.emptied[i] = append(a.emptied[i], b)
	}
}

// takeFree takes a node of server i that was given back, which there is: the last one of the slab
// that comes first.
func (a *allocator) takeFree(c *class, i int) Addr {
	b := c.freed[i][len(c.freed[i])-1]
	if b.empty() {
		b.chunk.busy++
	}
	last := len(b.freed) - 1
	n := int(b.freed[last])
	if b.freed = b.freed[:last]; last == 0 {
		c.dropFreed(b)
	}
	c.freedNodes[i]--
	b.setBusy(n)
	addr := b.addr(n)
	if a.swept == b.chunk {
		a.handed = append(a.handed, addr)
	}
	return addr
}

// Retire gives back the node of size bytes at addr, which is dead: whoever begins now cannot find
// it, and nobody changes it any more, but others may still look at it. It is used again when that
// is over.
func (p *Pool) Retire(addr Addr, size int) {
	a := p.alloc
	a.mu.Lock()
	defer a.mu.Unlock()
	i, ok := p.serverOf(addr)
	if !ok {
		return
	}
	// Who does not own the node wants the epochs to grow all the same: that is how its owner learns
	// that there is something to find.
	c := a.class(roundNode(size))
	epoch := p.servers[i].epoch.Load()
	p.servers[i].want(epoch + safeAfter)
	if b := a.slabOf(c, addr); b != nil && !b.isIdle(b.index(addr)) {
		b.setIdle(b.index(addr))
		c.limbo = append(c.limbo, retired{addr, epoch})
	}
}

// want asks for an epoch to become safe.
func (s *server) want(epoch uint64) {
	for {
		old := s.wanted.Load()
		if epoch <= old || s.wanted.CompareAndSwap(old, epoch) {
			return
		}
	}
}

// reap frees the retired nodes of server i that nobody can look at any more, now that epoch safe
// is, and gives back the chunks that are wholly free.
func (a *allocator) reap(i int, safe uint64) {
	srv := a.pool.servers[i]
	for _, first := range a.reapLocked(i, safe) {
		// It is this client's no more even if the call fails, since it may have taken effect; if
		// not, it is adopted one day.
		_ = a.pool.control.FreeChunk(srv.id, a.pool.client, first.Offset(), a.pool.limit)
	}
}

// reapLocked is reap without the calls: it returns the chunks to give back, which this client does
// not know any more.
func (a *allocator) reapLocked(i int, safe uint64) (leaving []Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := a.pool.servers[i].id
	for _, c := range a.open {
		kept := c.limbo[:0]
		for _, r := range c.limbo {
			if r.addr.Server() != id || r.epoch+safeAfter > safe {
				kept = append(kept, r)
				continue
			}
			a.giveNode(c, r.addr)
			a.pool.reclaimed.Add(1)
		}
		c.limbo = kept
	}
	return a.giveBack(i)
}

// giveBack closes slabs of server i that are empty, and takes out the chunks in which nothing else
// is, but for what serves the next nodes and slabs.
func (a *allocator) giveBack(i int) (leaving []Addr) {
	g := &a.pool.servers[i].geometry
	vacant := 0
	for _, k := range a.chunks[i] {
		if !k.lost {
			vacant += k.vacant
		}
	}
	for n := len(a.chunks[i]) - 1; n >= 0; n-- {
		k := a.chunks[i][n]
		if k.busy > 0 || k.lost || k == a.swept || !k.settled() {
			continue
		}
		// What is left must be able to serve a few slabs more, so that no chunk comes and goes with
		// one node.
		if vacant-k.vacant < max(1, g.slabs/16) {
			continue
		}
		vacant -= k.vacant
		for at := 0; at < g.slabs; at++ {
			if b := k.slabs[at]; b != nil {
				a.close(b)
			}
		}
		a.chunks[i] = slices.Delete(a.chunks[i], n, n+1)
		leaving = append(leaving, k.first)
	}
	a.emptied[i] = slices.DeleteFunc(a.emptied[i], func(b *slab) bool {
		b.candidate = b.empty() && !(b.mayClose() && b.class.keeps(i, b) && a.swept != b.chunk && a.closed(b))
		return !b.candidate
	})
	return leaving
}

// settled reports whether the table says all open slabs of k.
func (k *chunk) settled() bool {
	return !slices.ContainsFunc(k.slabs, func(b *slab) bool { return b != nil && !b.ready })
}

// mayClose reports whether b may be closed while its chunk stays: see slab.go.
func (b *slab) mayClose() bool { return !b.class.strip }

// keeps reports whether a class can serve a few nodes more of server i without b, so that no slab
// comes and goes with one node.
func (c *class) keeps(i int, b *slab) bool {
	few := b.nodes / 16
	if b.run <= len(b.chunk.slabs)/16 {
		few = max(1, few)
	}
	return c.freedNodes[i]+c.uncutNodes[i]-b.nodes >= few
}

func (a *allocator) closed(b *slab) bool {
	a.close(b)
	return true
}

// closeEmpty closes all slabs of server i that are empty, of whatever class, and reports whether
// there were any: what is done before the pool is called full.
func (a *allocator) closeEmpty(i int) (some bool) {
	for _, k := range a.chunks[i] {
		for _, b := range k.slabs {
			if b != nil && b.empty() && b.mayClose() && k != a.swept {
				a.close(b)
				some = true
			}
		}
	}
	return some
}

// Reclaiming says, to who found no memory, whether it is worth another try: whether nodes of this
// client wait until nobody can look at them any more, or have become free since Reclaimed was
// since, which is to be from before the try.
func (p *Pool) Reclaiming(since uint64) bool {
	a := p.alloc
	a.mu.Lock()
	defer a.mu.Unlock()
	return p.Reclaimed() != since || slices.ContainsFunc(a.open, func(c *class) bool { return len(c.limbo) > 0 })
}

// Reclaimed is how many dead nodes this client has made free.
func (p *Pool) Reclaimed() uint64 { return p.reclaimed.Load() }

// Idle says whether the node of size bytes at addr is this client's, and free, retired or a place
// for images: no part of anything.
func (p *Pool) Idle(addr Addr, size int) bool {
	a := p.alloc
	a.mu.Lock()
	defer a.mu.Unlock()
	size = roundNode(size)
	b := a.slabOf(a.class(size), addr)
	return b != nil && b.isIdle(b.index(addr))
}

// InUse are the nodes of size bytes in this client's chunks, those that it adopted among them,
// which are neither free nor retired nor places for images.
func (p *Pool) InUse(size int) (nodes []Addr) {
	a := p.alloc
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.class(roundNode(size))
	for _, chunks := range a.chunks {
		for _, k := range chunks {
			for b := range k.open() {
				for n := 0; b.class == c && n < b.cut; n++ {
					if !b.isIdle(n) {
						nodes = append(nodes, b.addr(n))
					}
				}
			}
		}
	}
	return nodes
}

// leaveImages makes the places for images look as if they had never been written, so that who
// adopts their chunks can use them. It is a courtesy: a client that dies does not do it.
func (a *allocator) leaveImages() {
	s, err := a.pool.NewSession(HeadBytes)
	if err != nil {
		return
	}
	defer s.Close()
	s.SetLimit(partingLimit)
	s.Begin()
	zero, err := s.Buffer(HeadBytes)
	if err != nil {
		return
	}
	for _, place := range a.takeImages() {
		if s.write(place, zero); s.Post() != nil {
			return
		}
	}
}

// takeImages takes all places for images that nobody uses.
func (a *allocator) takeImages() (places []Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, of := range a.images {
		for _, i := range of {
			places = append(places, i.free...)
			i.free = nil
		}
	}
	return places
}

// tidy reaps and sweeps for as long as the pool is open: when a keeper has news, it reaps what is
// safe, and begins to sweep all chunks, one after another.
func (k *leaseKeeper) tidy() {
	a := k.pool.alloc
	var sw *sweep
	turn := Nil
	sweeping, many := false, false
	for wait := env.Forever; ; {
		if k.news.Wait(wait) {
			sweeping = true
		}
		if k.stopped.Load() || k.pool.condemned.Load() != nil {
			return
		}
		for i, s := range k.pool.servers {
			a.reap(i, s.safe.Load())
		}
		switch {
		case sw == nil && sweeping:
			if sw = a.beginSweep(turn); sw == nil {
				turn, sweeping, many = Nil, false, false
			} else {
				turn = sw.k.first
			}
		case sw != nil && k.pool.sessions.quiet(sw.since):
			many, _ = a.finish(sw) // what it did not find, the next sweep finds
			sw = nil
		}
		switch between := k.pool.servers[0].lease.between(); {
		case !sweeping:
			wait = env.Forever
		case many:
			wait = min(time.Millisecond, between)
		default:
			wait = min(sweepPause, between)
		}
	}
}

// sweepPause is how long a sweep waits between its steps: it takes little of what servers can do.
const sweepPause = 100 * time.Millisecond
