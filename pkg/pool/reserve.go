package pool

import (
	"slices"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// A sweep takes a node for dead whose head says so, and a node that is used again says so until it
// is written. So whatever is handed out and not written yet is in somebody's hands, and the sweep
// has to know it:
//
//   - An operation writes what it allocates, or frees it, before it ends. The sweep waits for the
//     operations under way, and leaves what was handed out since it began (dead.go).
//   - A bulk load allocates nodes long before it writes them, since nodes refer to each other, and
//     its source may take its time. It is no operation meanwhile: epochs would wait for the source,
//     and nobody's memory would come back. Those of its nodes that were used
//     before are reserved: a sweep leaves them alone until they are Written. Others are zero, and
//     do not look dead.
//   - A session that died may have a WRITE under way that has no answer. The node stays reserved
//     for as long as this client lives: else the WRITE could reach a node that somebody else uses
//     by then. It need not be if the WRITE is that of its dead mark, which comes when the node was
//     written, and its change is confirmed: a sweep that finds the mark finds the WRITE over, and
//     one that finds none leaves the node alone.
//
// Reserved nodes are a bit each beside those of idle nodes. A client that dies takes the bits with
// it, and whoever adopts its chunks needs none: the fence of the client is complete, so none of its
// WRITEs takes effect any more.

// Reserved hands out nodes that are written later than any operation goes on.
type Reserved struct{ pool *Pool }

// Reserve returns what hands out reserved nodes of p. Free gives them back.
func (p *Pool) Reserve() Reserved { return Reserved{p} }

// Allocate is Pool.Allocate of a node that stays reserved until it is Written or freed.
func (r Reserved) Allocate(size int, near Addr) (Addr, error) {
	return r.pool.allocate(nil, size, near, true, true)
}

// AllocateBlock is Pool.AllocateBlock of a node that stays reserved until it is Written or freed.
func (r Reserved) AllocateBlock(size int, near Addr) (Addr, error) {
	return r.pool.allocate(nil, size, near, false, true)
}

// Written says that nodes which were reserved are written, and that this is confirmed. A sweep that
// goes on may have READ one before that, so it leaves it as if it were handed out now.
func (r Reserved) Written(nodes []Addr) {
	a := r.pool.alloc
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.ContainsFunc(a.open, func(c *class) bool { return c.reserved > 0 }) {
		return
	}
	for _, addr := range nodes {
		if b := a.slabAt(addr); b != nil && b.isReserved(b.index(addr)) {
			b.setReserved(b.index(addr), false)
			b.noteHanded(b.index(addr))
		}
	}
}

// noteHanded notes that node n of b is in somebody's hands whatever the sweep under way has READ of
// it.
func (b *slab) noteHanded(n int) {
	if b.handed != nil {
		b.handed[n/64] |= 1 << (n % 64)
	}
}

// mayBeDead reports whether a sweep may take node n of b for dead: it is handed out and not
// reserved. a.mu is held.
func (a *allocator) mayBeDead(b *slab, n int) bool {
	return n < b.cut && !b.isIdle(n) && !b.isReserved(n)
}

// looksDead is mayBeDead where a.mu is not held, after the node was READ.
func (a *allocator) looksDead(b *slab, n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mayBeDead(b, n)
}

func (b *slab) isReserved(i int) bool {
	return b.reserved != nil && b.reserved[i/64]>>(i%64)&1 != 0
}

// reserveDoubtful reserves the nodes of this client that what was posted WRITEs, and that are in
// use: nobody knows whether, and when, the WRITEs take effect.
func (s *Session) reserveDoubtful() {
	p, a := s.pool, s.pool.alloc
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, list := range s.lists {
		for k := range list {
			r := &list[k]
			if r.Op != verbs.Write || r.Region != verbs.RegionData {
				continue
			}
			addr := NewAddr(p.servers()[i].id, r.Remote)
			if b := a.slabAt(addr); b != nil && a.mayBeDead(b, b.index(addr)) && !p.isMark(addr, r.Local) {
				b.setReserved(b.index(addr), true)
			}
		}
	}
}

// isMark reports whether a WRITE of b to the node at addr is that of its dead mark.
func (p *Pool) isMark(addr Addr, b []byte) bool {
	head := make([]byte, HeadBytes)
	copy(head, b)
	return p.Marked(addr, head)
}

// setReserved notes that node i is reserved, or is not.
func (b *slab) setReserved(i int, is bool) {
	if b.isReserved(i) == is {
		return
	}
	if b.reserved == nil {
		b.reserved = make([]uint64, len(b.idle))
	}
	b.reserved[i/64] ^= 1 << (i % 64)
	if is {
		b.class.reserved++
	} else {
		b.class.reserved--
	}
}
