// Package nodecache is the index cache of a client (Sherman, section 4.2): decoded copies of nodes
// by address, shared by its sessions. A copy never changes. It may be old: then the node that it
// leads to says so, and the copy is dropped.
//
// The cache is a table of places, ways of them for an address. Reading one takes no lock. Its
// bytes, table included, never exceed the bound. What has to be evicted is of the lowest level that
// there is, so level 1 never costs a node above it. Of a few of those the one is evicted that is
// looked for least, if that is less than the new one is looked for (as in TinyLFU): copies count
// how often they are found, and a sketch how often what is not kept was missed. Both are halved
// from time to time.
package nodecache

import (
	"sync/atomic"
	"unsafe"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index/internal/lfu"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Head is the first field of every copy, so that a design gets from a head to its copy. All but
// Stamp are set before the copy is put, and Stamp too.
type Head struct {
	Addr    pool.Addr
	Stamp   uint64        // of the operation that READ or wrote the node: see pool.Session.Stamp
	used    atomic.Uint32 // how often the copy was found
	kept    atomic.Bool
	Version uint32 // of the node: it counts up from a random start
	Level   uint8
}

// Found counts that the copy was found: a plain store, and none once the count is at its most. Of
// two that are counted at once one may be lost.
func (h *Head) Found() {
	if u := h.used.Load(); u < lfu.Most {
		h.used.Store(u + 1)
	}
}

// Kept reports whether the cache has the copy. Under the cache's lock (Cache.Locked) that stays
// true.
func (h *Head) Kept() bool { return h.kept.Load() }

// Owner is what the cache asks a design about its copies. It is called under the cache's lock.
type Owner interface {
	// Bytes returns the memory that the copy takes. It is always the same.
	Bytes(h *Head) int

	// Evicted is called when the cache drops a copy, for whatever reason.
	Evicted(h *Head)
}

// Cache is safe for concurrent use.
type Cache struct {
	owner  Owner
	paths  Paths       // nil = the cache is not path-aware
	short  atomic.Bool // see Short
	sets   uint64
	places []place

	mu struct {
		env.Mutex
		bound int64
		// how often what is not kept was looked for in vain, and before that found
		missed lfu.Sketch
		hand   int      // where victims are looked for next
		puts   int      // since counts were halved
		kept   int      // copies
		levels [256]int // of kept, how many are of each level
	}
	bytes atomic.Int64 // changes under mu
}

type place struct {
	addr atomic.Uint64 // of node; a hint, so that others' nodes need not be touched
	node atomic.Pointer[Head]
}

const (
	ways    = 4  // places of an address: one line of the processor's cache
	looks   = 8  // copies of which the least used one is evicted
	halving = 50 // times as many copies come as there are kept, before counts are halved
)

// New makes a cache of at most bound bytes for copies of about copyBytes. It has half as many
// places again as such copies fit, so that hardly ever more than ways of them want the same.
func New(e env.Env, owner Owner, bound, copyBytes int) *Cache {
	const placeBytes = int(unsafe.Sizeof(place{}))
	sets := max(1, bound*3/2/copyBytes/ways)
	c := &Cache{owner: owner, sets: uint64(sets), places: make([]place, sets*ways)}
	c.mu.Mutex, c.mu.bound, c.mu.missed = e.NewMutex(), int64(bound), lfu.New(6*sets*ways)
	c.bytes.Store(int64(len(c.places)*placeBytes + c.mu.missed.Bytes()))
	return c
}

// Bytes returns how much memory the cache takes.
func (c *Cache) Bytes() int64 { return c.bytes.Load() }

// Short reports whether copies that are in use have had no room since it was asked the last time.
func (c *Cache) Short() bool { return c.short.Load() && c.short.Swap(false) }

// SetBound makes n the bound. It reports false, and changes nothing, if there are more bytes. The
// table has room for half as many copies again as fitted the first bound.
func (c *Cache) SetBound(n int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n < c.bytes.Load() {
		return false
	}
	c.mu.bound = n
	return true
}

// Locked calls do with a and b under the cache's lock, if it has both copies.
func (c *Cache) Locked(a, b *Head, do func(a, b *Head)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.Kept() && b.Kept() {
		do(a, b)
	}
}

func (c *Cache) set(a pool.Addr) []place {
	i := lfu.Hash(a) >> 32 * c.sets >> 32 * ways
	return c.places[i : i+ways : i+ways]
}

// Get returns the copy of the node at a; nil if there is none, or only one from before floor. It is
// counted as found.
func (c *Cache) Get(a pool.Addr, floor uint64) *Head {
	set := c.set(a)
	for i := range set {
		if set[i].addr.Load() != uint64(a) {
			continue
		}
		if n := set[i].node.Load(); n != nil && n.Addr == a && n.Stamp >= floor {
			n.Found()
			return n
		}
	}
	return nil
}

// Put keeps n, which was READ or written just now, unless there is a copy that is not older, or
// what would have to be evicted is worth more. Only copies of the same stamp are of one node for
// sure.
func (c *Cache) Put(n *Head) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tick()
	set := c.set(n.Addr)
	var free *place
	for i := range set {
		if old := set[i].node.Load(); old == nil {
			free = &set[i]
		} else if old.Addr == n.Addr {
			if n.Stamp < old.Stamp || n.Stamp == old.Stamp && int32(n.Version-old.Version) <= 0 {
				return
			}
			free = &set[i]
			c.replace(free, nil)
			break
		}
	}
	n.used.Store(uint32(c.mu.missed.Miss(n.Addr)))
	if free == nil {
		if free = c.leastOf(set, n); free == nil {
			return
		}
		c.replace(free, nil)
	}
	for c.bytes.Load()+int64(c.owner.Bytes(n)) > c.mu.bound {
		p := c.victim(n)
		if p == nil {
			c.short.Store(true)
			return
		}
		if p.node.Load().used.Load() > 0 {
			c.short.Store(true)
		}
		c.replace(p, nil)
	}
	c.replace(free, n)
}

// Keeps reports whether Put would keep a copy of that many bytes, as far as can be said before. If
// not, it counts that the node was missed. Else Put will, when the node is READ.
func (c *Cache) Keeps(a pool.Addr, level uint8, bytes int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := Head{Addr: a, Level: level}
	n.used.Store(uint32(min(lfu.Most-1, c.mu.missed.Count(a))) + 1)
	if c.paths != nil {
		return true
	}
	set := c.set(a)
	full := true
	for i := range set {
		old := set[i].node.Load()
		if old != nil && old.Addr == a {
			return true // it is too old to be used, and what is READ takes its place
		}
		full = full && old != nil
	}
	if full && least(set, &n) != nil ||
		!full && (c.bytes.Load()+int64(bytes) <= c.mu.bound || c.victim(&n) != nil) {
		return true
	}
	c.short.Store(!full || c.short.Load())
	c.tick()
	c.mu.missed.Miss(a)
	return false
}

// Drop forgets n, if the cache has it still. n may be nil.
func (c *Cache) Drop(n *Head) {
	if n == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	set := c.set(n.Addr)
	for i := range set {
		if set[i].node.Load() == n {
			c.replace(&set[i], nil)
		}
	}
}

// replace puts n, or nothing, into a place. The count of what was there goes to the sketch.
func (c *Cache) replace(p *place, n *Head) {
	if old := p.node.Load(); old != nil {
		c.bytes.Add(-int64(c.owner.Bytes(old)))
		c.mu.levels[old.Level]--
		c.mu.kept--
		c.mu.missed.Raise(old.Addr, uint8(old.used.Load()))
		old.kept.Store(false)
		c.owner.Evicted(old)
	}
	if n == nil {
		p.addr.Store(0)
		p.node.Store(nil)
		return
	}
	c.bytes.Add(int64(c.owner.Bytes(n)))
	c.mu.levels[n.Level]++
	c.mu.kept++
	n.kept.Store(true)
	p.node.Store(n)
	p.addr.Store(uint64(n.Addr))
}
