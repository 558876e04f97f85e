package pool

import (
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
// this keeper's own tick brought (passTime). The keeper looks at the operations after that; one
// that it sees nothing of begins later, and sees the floor.
//
// # Memory that no cache leads to
//
// The floor costs: after it rose, every inner node is READ again before it is followed. So what is
// given up is of two classes, with epochs of their own (EpochTables). The design says of which:
//
//	cached      a cached copy may lead to it: inner nodes, leaves, the old root
//	uncached    nothing that is cached has its address: blocks of long values
//
// For an epoch of the second class a client ticks and does not raise the floor. It has passed the
// epoch when all operations show nothing or at least the time that came with that tick. Who may
// reach such memory after each step of giving it up:
//
//  1. The last pointer to it is taken out of the memory, and that is confirmed. Operations may have
//     its address that READ the pointer before; caches have none. Who READs from now on finds none.
//  2. It is retired under the epoch that this client learned last, e, of each server (limbo.go).
//     Epoch e+2 comes after this client passed e+1, which it had not at 1: so after 1.
//  3. Each client learns of e+2, ticks, and waits for its operations that began before the tick.
//     All others began after 1, and got no address but from the memory or from caches: not this
//     one.
//  4. When all have passed e+2 on each server the memory is used again: nobody has its address, and
//     no request that compares it takes effect any more.
//
// It has a cached copy in step 1, and all is lost: an operation that begins after 3 may follow
// that, since no floor tells it not to. TestWrongClassIsFound shows it.
//
// An address in a cache counts as long as an operation may follow it without finding it anew in the
// memory or in what its owner keeps up to date. DEX's frames have references to blocks, and are no
// such copies: the change that takes a reference out of the leaf takes it out of the frame, which
// is all that there is of the leaf until it is written back; and who READs the leaf before has no
// right to, and answers nothing. Nor are its cached values: they are found by a reference that was
// read in the same operation. Sherman's caches have inner nodes only, and these lead to leaves, not
// to blocks.
//
// # Whose a dead node is
//
// A chunk belongs to one client, and only its owner hands out its nodes. A client that takes a node
// out which lies in a chunk of its own retires it itself. Others leave it where it lies, marked as
// dead by its design, and its owner finds it: when an epoch grows, it sweeps its chunks. Under the
// lock of a dead node it makes sure that the change which killed it is over, then it retires the
// node. The nodes that it handed out since the sweep of a chunk began, or that were handed out
// before by operations that still go on, may look dead, too, as they are not written yet; so a
// sweep begins when those operations are over, and leaves what was handed out since. What is
// written later than an operation goes on is reserved until then (reserve.go).
//
// # What clients leave behind
//
// A client that needs a chunk first adopts one that a fenced client left (AllocateChunk), with all
// that is in it. Nodes that were never written are free at once: nobody knows them. Dead ones are
// retired. What looks like anything else stays as it is: nodes that are in use, and with them the
// few that the dead client had taken for images, or for a split that it did not finish.

// reach is the class of what is given up: what may lead to it, besides operations under way.
type reach int

const (
	cached   reach = iota // copies in caches
	uncached              // nothing
	reaches
)

// reachOf is the class of a node that is marked dead.
func reachOf(m Mark) reach {
	if m == Uncached {
		return uncached
	}
	return cached
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
	if !b.isFree() {
		return
	}
	b.chunk.busy--
	if !b.candidate {
		b.candidate = true
		a.emptied[i] = append(a.emptied[i], b)
	}
}

// popFreed pops a node of server i that was given back, which there is: the last one of the slab
// that comes first. It is reserved, or not.
func (a *allocator) popFreed(c *class, i int, reserved bool) Addr {
	b := c.freed[i][len(c.freed[i])-1]
	if b.isFree() {
		b.chunk.busy++
	}
	last := len(b.freed) - 1
	n := int(b.freed[last])
	if b.freed = b.freed[:last]; last == 0 {
		c.dropFreed(b)
	}
	c.freedNodes[i]--
	b.setBusy(n)
	b.setReserved(n, reserved)
	b.noteHanded(n)
	return b.addr(n)
}

// Retire gives back the node of size bytes at addr, which is dead: whoever begins now cannot find
// it, and nobody changes it any more, but others may still look at it. It is used again when that
// is over.
func (p *Pool) Retire(addr Addr, size int) { p.retire(addr, size, cached) }

// RetireUncached is Retire of what no cached copy leads to: only operations that are under way now
// have its address. No cache is emptied for it. A sweep has to find the same, so it is marked
// Uncached where another client may own it.
func (p *Pool) RetireUncached(addr Addr, size int) { p.retire(addr, size, uncached) }

func (p *Pool) retire(addr Addr, size int, r reach) {
	a := p.alloc
	a.mu.Lock()
	defer a.mu.Unlock()
	i, ok := p.serverOf(addr)
	if !ok {
		return
	}
	// A client that does not own the node wants the epochs to grow all the same: that is how its
	// owner learns that there is something to find.
	p.servers()[i].wantSafe(r)
	if b := a.givenBack(roundNode(size), addr); b != nil && !b.isIdle(b.index(addr)) {
		a.retire(b, b.index(addr), r)
	}
}

// retire puts node n of b, which is not idle, where it waits. a.mu is held.
func (a *allocator) retire(b *slab, n int, r reach) {
	b.setIdle(n)
	w := a.batch(r)
	w.nodes = append(w.nodes, b.addr(n))
}

// wantSafe asks for the epoch of s to become safe that what is given up now waits for. It returns
// the one under which that is given up.
func (s *server) wantSafe(r reach) (epoch uint64) {
	e := &s.epochs[s.asKnown(r)]
	epoch = e.known.Load()
	raise(&e.wanted, epoch+safeAfter)
	return epoch
}

// asKnown is r, where the server knows of it. An older one has no epochs for memory that no cache
// leads to: it waits as what caches lead to does, which is longer.
func (s *server) asKnown(r reach) reach {
	if s.grant.UncachedEpoch == 0 { // epochs begin with 1
		return cached
	}
	return r
}

// GiveChunksBack has the chunks that are wholly free given back soon. Who frees many nodes that
// were never published calls it: of these no epoch has news.
func (p *Pool) GiveChunksBack() { p.keeper.news.Set() }

// reap frees the retired nodes that nobody can look at any more, and gives back the chunks that are
// wholly free. It begins no call after limit.
func (a *allocator) reap(limit time.Duration) {
	p := a.pool
	deadline := env.Deadline(p.env, limit)
	for _, l := range a.reapLocked() {
		i, _ := p.serverOf(l.first)
		left := min(env.Remaining(p.env, deadline), p.limit)
		if left <= 0 {
			return
		}
		// It is this client's no more even if the call fails, since it may have taken effect; if
		// not, it is adopted one day.
		switch acquired, err := p.freeWords(i, l.strips, left); {
		case err != nil:
		case acquired:
			a.linger(l)
		default:
			_ = p.control.FreeChunk(l.first.Server(), p.number, l.first.Offset(), left)
		}
	}
}

// reapLocked is reap without the calls: it returns the chunks to give back, which this client does
// not know any more.
func (a *allocator) reapLocked() (gone []leaving) {
	a.mu.Lock()
	defer a.mu.Unlock()
	gone = a.returned()
	for i := range a.pool.servers() {
		gone = append(gone, a.giveBack(i)...)
	}
	return gone
}

// Reclaiming says, to who found no memory, whether it is worth another try: whether nodes of this
// client wait until nobody can look at them any more, or have become free since Reclaimed was
// since, which is to be from before the try.
func (p *Pool) Reclaiming(since uint64) bool {
	a := p.alloc
	a.mu.Lock()
	defer a.mu.Unlock()
	return p.Reclaimed() != since || len(a.limbo[cached]) > 0 || len(a.limbo[uncached]) > 0
}

// Reclaimed is how many dead nodes this client has made free.
func (p *Pool) Reclaimed() uint64 { return p.reclaimed.Load() }

// leaveImages makes the places for images look as if they had never been written, so that who
// adopts their chunks can use them. It is a courtesy: a client that dies does not do it.
func (a *allocator) leaveImages() {
	s, err := a.pool.NewSession(HeadBytes)
	if err != nil {
		return
	}
	defer s.Close()
	s.SetLimit(partingLimit)
	s.certain = true // nobody uses these places any more
	s.Begin()
	zero, err := s.Buffer(HeadBytes)
	if err != nil {
		return
	}
	for _, place := range a.popImages() {
		if s.write(place, zero); s.Post() != nil {
			return
		}
	}
}

// popImages pops all places for images that nobody uses.
func (a *allocator) popImages() (places []Addr) {
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

// reapAndSweep reaps and sweeps for as long as the pool is open: when a keeper has news, it reaps
// what is safe, and begins to sweep all chunks, one after another.
func (k *leaseKeeper) reapAndSweep() {
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
		a.reap(env.Forever)
		switch {
		case sw == nil && sweeping:
			if sw = a.beginSweep(turn); sw == nil {
				turn, sweeping, many = Nil, false, false
			} else {
				turn = sw.k.first
			}
		case sw != nil && k.pool.sessions.allBeganSince(sw.since):
			many, _ = a.finish(sw) // what it did not find, the next sweep finds
			sw = nil
		}
		switch between := k.pool.servers()[0].lease.interval(); {
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
