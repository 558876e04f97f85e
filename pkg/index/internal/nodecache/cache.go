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
//
// What changes the table takes a lock. A large cache can be divided into shards (NewSharded), each
// with a lock of its own, so that this costs no more where many processors do it at once. A shard
// is a part of the table with a part of the bytes, and evicts of its own copies. Were the bytes
// those of all, a shard whose few copies are in use could never get any that others have. So there
// is no order between copies of two shards, and one shard can lack a copy of the lowest level where
// another has some: a shard has room for many copies.
package nodecache

import (
	"sync/atomic"
	"unsafe"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/index/internal/lfu"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Head is the first field of every copy, so that a design gets from a head to its copy. It is set
// before the copy is put.
type Head struct {
	Addr    pool.Addr
	Stamp   uint64        // of the operation that READ or wrote the node: see pool.Session.Stamp
	state   atomic.Uint32 // how often the copy was found, whether it is kept, and its level
	Version uint32        // of two copies with one stamp the later one has the higher: it counts up
}

// The state of a copy. Most copies are small, so it is one word. All of it but the count changes
// only before the copy is put, and under the lock of its shard. What sets another part of the state
// there may lose a count that comes at the same time.
const (
	usedMask   = 1<<8 - 1 // the count, up to lfu.Most
	keptFlag   = 1 << 8
	levelShift = 24
)

// Found counts that the copy was found, once the count is at its most by no store. Of two that are
// counted at once one may be lost, but nothing else of the state.
func (h *Head) Found() {
	if s := h.state.Load(); s&usedMask < lfu.Most {
		h.state.CompareAndSwap(s, s+1)
	}
}

// Kept reports whether the cache has the copy. Under the cache's lock (Cache.Locked) that stays
// true.
func (h *Head) Kept() bool { return h.state.Load()&keptFlag != 0 }

// Level returns the level of the node, which SetLevel said.
func (h *Head) Level() uint8 { return uint8(h.state.Load() >> levelShift) }

// SetLevel says the level of the node, before the copy is put.
func (h *Head) SetLevel(level uint8) {
	h.state.Store(h.state.Load()&(1<<levelShift-1) | uint32(level)<<levelShift)
}

// useCount is how often the copy was found, as far as it is counted.
func (h *Head) useCount() uint32 { return h.state.Load() & usedMask }

// setUsed sets the count.
func (h *Head) setUsed(n uint32) { h.state.Store(h.state.Load()&^usedMask | n) }

// setKept notes that the cache has the copy, or has it no more.
func (h *Head) setKept(kept bool) {
	s := h.state.Load() &^ keptFlag
	if kept {
		s |= keptFlag
	}
	h.state.Store(s)
}

// Owner is what the cache asks a design about its copies. It is called under the lock of the copy's
// shard.
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
	short  atomic.Bool // see TakeShortage
	sets   uint64      // a multiple of the number of shards
	places []place
	shards []shard
	bound  int64        // it changes under the lock of the only shard, if at all
	bytes  atomic.Int64 // of all shards
}

// shard is a part of the places.
type shard struct {
	env.Mutex
	places []place
	// how often what is not kept was looked for in vain, and before that found
	missed lfu.Sketch
	hand   int      // where victims are looked for next
	puts   int      // since counts were halved
	bytes  int64    // of table and copies
	kept   int      // copies
	levels [256]int // of kept, how many are of each level
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
	return NewSharded(e, owner, bound, copyBytes, 1)
}

// MostShards is as many as processors hardly ever wait for each other's.
const MostShards = 16

// shardCopies is how many copies a shard has room for, at least.
var shardCopies = 1000

func init() {
	if invariants.Enabled {
		shardCopies = 40
	}
}

// NewSharded is New of a cache with several shards, at most so many, if it is large. Locked,
// SetBound, and a path-aware cache, need one of a single shard.
func NewSharded(e env.Env, owner Owner, bound, copyBytes, most int) *Cache {
	const placeBytes = int(unsafe.Sizeof(place{}))
	n := max(1, min(most, bound/copyBytes/shardCopies))
	sets := max(1, bound*3/2/copyBytes/ways/n)
	c := &Cache{owner: owner, sets: uint64(n * sets), places: make([]place, n*sets*ways), shards: make([]shard, n)}
	c.bound = int64(bound)
	for i := range c.shards {
		s := &c.shards[i]
		s.Mutex, s.missed = e.NewMutex(), lfu.New(6*sets*ways)
		s.places = c.places[i*sets*ways : (i+1)*sets*ways]
		c.count(s, len(s.places)*placeBytes+s.missed.Bytes())
	}
	return c
}

// Bytes returns how much memory the cache takes.
func (c *Cache) Bytes() int64 { return c.bytes.Load() }

// TakeShortage reports whether copies that are in use have had no room since it was asked the last
// time.
func (c *Cache) TakeShortage() bool { return c.short.Load() && c.short.Swap(false) }

// SetBound makes n the bound of a cache with one shard. It reports false, and changes nothing, if
// there are more bytes. The table has room for half as many copies again as fitted the first bound.
func (c *Cache) SetBound(n int64) bool {
	s := c.single()
	s.Lock()
	defer s.Unlock()
	if s.bytes > n {
		return false
	}
	c.bound = n
	return true
}

// hasRoom reports whether s, which is locked, has so many bytes left of its part of the bound.
func (c *Cache) hasRoom(s *shard, bytes int) bool {
	return s.bytes+int64(bytes) <= c.bound/int64(len(c.shards))
}

// count counts so many bytes more, or fewer, of s, which is locked.
func (c *Cache) count(s *shard, bytes int) {
	s.bytes += int64(bytes)
	c.bytes.Add(int64(bytes))
}

// Locked calls do with a and b under the cache's lock, if it has both copies.
func (c *Cache) Locked(a, b *Head, do func(a, b *Head)) {
	s := c.single()
	s.Lock()
	defer s.Unlock()
	if a.Kept() && b.Kept() {
		do(a, b)
	}
}

// single is the shard of a cache that has one.
func (c *Cache) single() *shard {
	if invariants.Enabled {
		invariants.Check(len(c.shards) == 1, "the cache has %d shards, and is used as if it had one", len(c.shards))
	}
	return &c.shards[0]
}

// set is the number of the set of places of a node.
func (c *Cache) set(a pool.Addr) uint64 { return lfu.Hash(a) >> 32 * c.sets >> 32 }

// setOf is the places of a node.
func (c *Cache) setOf(a pool.Addr) []place {
	i := c.set(a) * ways
	return c.places[i : i+ways : i+ways]
}

// shardOf is the shard of a node.
func (c *Cache) shardOf(a pool.Addr) *shard {
	return &c.shards[c.set(a)*uint64(len(c.shards))/c.sets]
}

// Get returns the copy of the node at a; nil if there is none, or only one from before floor. It is
// counted as found.
func (c *Cache) Get(a pool.Addr, floor uint64) *Head {
	set := c.setOf(a)
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
	s := c.shardOf(n.Addr)
	s.Lock()
	defer s.Unlock()
	c.tick(s)
	set := c.setOf(n.Addr)
	var free *place
	for i := range set {
		if old := set[i].node.Load(); old == nil {
			free = &set[i]
		} else if old.Addr == n.Addr {
			if n.Stamp < old.Stamp || n.Stamp == old.Stamp && int32(n.Version-old.Version) <= 0 {
				return
			}
			free = &set[i]
			c.dropCopy(s, free)
			break
		}
	}
	n.setUsed(uint32(s.missed.Miss(n.Addr)))
	if free == nil {
		if free = c.leastOf(set, n); free == nil {
			return
		}
		c.dropCopy(s, free)
	}
	bytes := c.owner.Bytes(n)
	for !c.hasRoom(s, bytes) {
		p := c.victim(s, n)
		if p == nil {
			c.short.Store(true)
			return
		}
		if p.node.Load().useCount() > 0 {
			c.short.Store(true)
		}
		c.dropCopy(s, p)
	}
	c.count(s, bytes)
	s.levels[n.Level()]++
	s.kept++
	n.setKept(true)
	free.node.Store(n)
	free.addr.Store(uint64(n.Addr))
}

// Keeps reports whether Put would keep a copy of that many bytes, as far as can be said before. If
// not, it counts that the node was missed. Else Put will, when the node is READ.
func (c *Cache) Keeps(a pool.Addr, level uint8, bytes int) bool {
	s := c.shardOf(a)
	s.Lock()
	defer s.Unlock()
	n := Head{Addr: a}
	n.SetLevel(level)
	n.setUsed(uint32(min(lfu.Most-1, s.missed.Count(a))) + 1)
	if c.paths != nil {
		return true
	}
	set := c.setOf(a)
	full := true
	for i := range set {
		old := set[i].node.Load()
		if old != nil && old.Addr == a {
			return true // it is too old to be used, and what is READ takes its place
		}
		full = full && old != nil
	}
	if full && victimOf(set, &n) != nil ||
		!full && (c.hasRoom(s, bytes) || c.victim(s, &n) != nil) {
		return true
	}
	c.short.Store(!full || c.short.Load())
	c.tick(s)
	s.missed.Miss(a)
	return false
}

// Drop forgets n, if the cache has it still. n may be nil.
func (c *Cache) Drop(n *Head) {
	if n == nil {
		return
	}
	s := c.shardOf(n.Addr)
	s.Lock()
	defer s.Unlock()
	set := c.setOf(n.Addr)
	for i := range set {
		if set[i].node.Load() == n {
			c.dropCopy(s, &set[i])
		}
	}
}

// dropCopy takes the copy out of a place of s, if there is one. Its count goes to the sketch.
func (c *Cache) dropCopy(s *shard, p *place) {
	old := p.node.Load()
	if old == nil {
		return
	}
	c.count(s, -c.owner.Bytes(old))
	s.levels[old.Level()]--
	s.kept--
	s.missed.Raise(old.Addr, uint8(old.useCount()))
	old.setKept(false)
	c.owner.Evicted(old)
	p.addr.Store(0)
	p.node.Store(nil)
}
