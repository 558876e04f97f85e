package pool

import (
	"cmp"
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

// chunk is a chunk of this client, divided into nodes of one size.
type chunk struct {
	first Addr
	nodes int
	idle  []uint64 // a bit for each node that is free, retired or a place for images
	free  int      // how many of them are free
	open  bool     // nodes are cut from it still
}

func (c *chunk) index(a Addr, size int) int { return int(a-c.first) / size }

func (c *chunk) isIdle(i int) bool { return c.idle[i/64]>>(i%64)&1 != 0 }
func (c *chunk) setIdle(i int)     { c.idle[i/64] |= 1 << (i % 64) }
func (c *chunk) setBusy(i int)     { c.idle[i/64] &^= 1 << (i % 64) }

// retired is a node that waits until nobody can look at it any more.
type retired struct {
	addr  Addr
	epoch uint64 // of its server, that was known when it was out
}

// safeAfter is how many epochs a retired node waits: see EpochTable.
const safeAfter = 2

// addChunk makes a chunk known to its class, whose nodes are cut from first on.
func (a *allocator) addChunk(c *class, first Addr, bytes uint64) *chunk {
	n := int(bytes) / c.size
	k := &chunk{first: first, nodes: n, idle: make([]uint64, (n+63)/64)}
	at, _ := c.search(first)
	c.chunks = slices.Insert(c.chunks, at, k)
	return k
}

// search is the place of the chunk that begins at a.
func (c *class) search(a Addr) (at int, found bool) {
	return slices.BinarySearchFunc(c.chunks, a, func(k *chunk, a Addr) int { return cmp.Compare(k.first, a) })
}

// chunkOf is the chunk of this client that a lies in; nil if it is another one's.
func (c *class) chunkOf(a Addr) *chunk {
	at, found := c.search(a)
	if !found {
		if at--; at < 0 {
			return nil
		}
	}
	if k := c.chunks[at]; k.index(a, c.size) < k.nodes && a.Server() == k.first.Server() {
		return k
	}
	return nil
}

// pushFree makes the node at addr, which lies in k on server i, free.
func (c *class) pushFree(k *chunk, i int, addr Addr) {
	k.setIdle(k.index(addr, c.size))
	k.free++
	c.free[i] = append(c.free[i], addr)
}

// takeFree takes the free node of server i that was given back last.
func (a *allocator) takeFree(c *class, i int) Addr {
	n := len(c.free[i]) - 1
	addr := c.free[i][n]
	c.free[i] = c.free[i][:n]
	k := c.chunkOf(addr)
	k.free--
	k.setBusy(k.index(addr, c.size))
	if a.swept == k {
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
	if k := c.chunkOf(addr); k != nil && !k.isIdle(k.index(addr, c.size)) {
		k.setIdle(k.index(addr, c.size))
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
			c.pushFree(c.chunkOf(r.addr), i, r.addr)
			a.pool.reclaimed.Add(1)
		}
		c.limbo = kept
		leaving = append(leaving, a.giveBack(c, i)...)
	}
	return leaving
}

// giveBack takes out the chunks of server i that are wholly free, but for one that serves the next
// nodes.
func (a *allocator) giveBack(c *class, i int) (leaving []Addr) {
	srv, free := a.pool.servers[i], len(c.free[i])
	for n := len(c.chunks) - 1; n >= 0; n-- {
		k := c.chunks[n]
		if k.first.Server() != srv.id || k == a.swept || k.free == 0 {
			continue
		}
		cut, span := k.nodes, &c.chunk[i]
		if k.open {
			cut = k.index(NewAddr(srv.id, span.next), c.size)
		}
		// What is left must be able to serve a few nodes more, so that no chunk comes and goes with
		// one node.
		if k.free < cut || free-k.free < k.nodes/16 && (k.open || span.end-span.next < uint64(c.size)) {
			continue
		}
		if k.open {
			c.chunk[i].next, c.chunk[i].end = 0, 0
		}
		free -= k.free
		c.chunks = slices.Delete(c.chunks, n, n+1)
		leaving = append(leaving, k.first)
	}
	if len(leaving) > 0 {
		c.free[i] = slices.DeleteFunc(c.free[i], func(f Addr) bool { return c.chunkOf(f) == nil })
	}
	return leaving
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
	k := a.class(size).chunkOf(addr)
	return k != nil && k.isIdle(k.index(addr, size))
}

// InUse are the nodes of size bytes in this client's chunks, those that it adopted among them,
// which are neither free nor retired nor places for images.
func (p *Pool) InUse(size int) (nodes []Addr) {
	a := p.alloc
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.class(roundNode(size))
	for _, k := range c.chunks {
		cut := k.nodes
		if i, _ := p.serverOf(k.first); k.open {
			cut = k.index(NewAddr(k.first.Server(), c.chunk[i].next), c.size)
		}
		for n := range cut {
			if !k.isIdle(n) {
				nodes = append(nodes, k.first+Addr(n*c.size))
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
				turn = sw.c.first
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
