package blink

import (
	"sync/atomic"
	"unsafe"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index/internal/lfu"
	"github.com/dmindex/dmindex/pkg/pool"
)

// cache is the index cache of a client (section 4.2): copies of inner nodes by address, shared by its sessions. A copy never
// changes. It may be old: then the node that it leads to says so by its level and fences, and the copy is dropped.
//
// It is a table of places, ways of them for an address; reading one takes no lock. Its bytes, table included, never exceed the bound. What has to go
// is of the lowest level that there is, so level 1 never costs a node above it. Among those the one goes that is looked for least, of a few, if that is less
// than what comes is looked for (as in TinyLFU): copies count how often they are found, and a sketch how often what is not kept was missed. Both are
// halved from time to time.
type cache struct {
	bound  int64       // guarded by mu
	short  atomic.Bool // a copy that was looked for went, or was not kept, since the bytes did not suffice
	sets   uint64
	places []place
	missed lfu.Sketch // how often what is not kept was looked for in vain, and before that found

	mu     env.Mutex // for changes
	hand   int       // where victims are looked for next
	puts   int       // since counts were halved
	bytes  atomic.Int64
	kept   int      // copies
	levels [256]int // of kept, how many are of each level
}

type place struct {
	addr atomic.Uint64 // of node; a hint, so that others' nodes need not be touched
	node atomic.Pointer[inner]
}

const (
	ways    = 4  // places of an address: one line of the processor's cache
	looks   = 8  // copies of which the least used one goes
	halving = 50 // times as many copies come as there are kept, before counts are halved
)

// DefaultCacheBytes bounds the index cache unless Options say otherwise.
const DefaultCacheBytes = 64 << 20

// newCache makes a cache with half as many places again as copies of nodes fit that are two thirds full, so that hardly ever more than ways of
// them want the same.
func newCache(e env.Env, bound, nodeBytes int) *cache {
	const placeBytes = int(unsafe.Sizeof(place{}))
	sets := max(1, bound*3/2/(nodeBytes*2/3+innerBytes)/ways)
	c := &cache{bound: int64(bound), sets: uint64(sets), places: make([]place, sets*ways), missed: lfu.New(6 * sets * ways), mu: e.NewMutex()}
	c.bytes.Store(int64(len(c.places)*placeBytes + c.missed.Bytes()))
	return c
}

func (c *cache) set(a pool.Addr) []place {
	i := lfu.Hash(a) >> 32 * c.sets >> 32 * ways
	return c.places[i : i+ways : i+ways]
}

// get is the copy of the node at a; nil if there is none, or only one from before floor. It is counted as found.
func (c *cache) get(a pool.Addr, floor uint64) *inner {
	set := c.set(a)
	for i := range set {
		if set[i].addr.Load() != uint64(a) {
			continue
		}
		if n := set[i].node.Load(); n != nil && n.addr == a && n.stamp >= floor {
			n.found()
			return n
		}
	}
	return nil
}

// put keeps n, which was read or written just now, unless it has a copy that is not older, or what would have to go is worth more. Versions of a node
// count up from a random start. Only copies of the same stamp are of one node for sure.
func (c *cache) put(n *inner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.puts++; c.puts > halving*(c.kept+ways) {
		c.halve()
	}
	set := c.set(n.addr)
	var free *place
	for i := range set {
		if old := set[i].node.Load(); old == nil {
			free = &set[i]
		} else if old.addr == n.addr {
			if n.stamp < old.stamp || n.stamp == old.stamp && int32(n.version-old.version) <= 0 {
				return
			}
			free = &set[i]
			c.replace(free, nil)
			break
		}
	}
	n.used.Store(uint32(c.missed.Miss(n.addr)))
	if free == nil {
		if free = least(set, n); free == nil {
			return
		}
		c.replace(free, nil)
	}
	for c.bytes.Load()+int64(n.size()) > c.bound {
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

// setBound makes n the bound; not below what there is.
func (c *cache) setBound(n int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n < c.bytes.Load() {
		return false
	}
	c.bound = n
	return true
}

// keeps says whether put would keep a node of that many bytes, as far as can be said before. If not, that it was looked for is counted here.
func (c *cache) keeps(a pool.Addr, level uint8, size int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := inner{addr: a, level: level}
	n.used.Store(uint32(min(lfu.Most-1, c.missed.Count(a))) + 1)
	set := c.set(a)
	full := true
	for i := range set {
		old := set[i].node.Load()
		if old != nil && old.addr == a {
			return true // it is too old to be used, and what is READ takes its place
		}
		full = full && old != nil
	}
	if full && least(set, &n) != nil || !full && (c.bytes.Load()+int64(size) <= c.bound || c.victim(&n) != nil) {
		return true
	}
	c.short.Store(!full || c.short.Load())
	if c.puts++; c.puts > halving*(c.kept+ways) {
		c.halve()
	}
	c.missed.Miss(a)
	return false
}

// least is the place in a full set that n may take: that of the least used copy of the lowest level; nil if each is worth more.
func least(set []place, n *inner) *place {
	v := &set[0]
	for i := range set {
		if set[i].node.Load().lessThan(v.node.Load()) {
			v = &set[i]
		}
	}
	if !v.node.Load().lessThan(n) {
		return nil
	}
	return v
}

// victim is the place of a copy that goes for n: of the next few of the lowest level the least used one; nil if it is worth more than n.
func (c *cache) victim(n *inner) (v *place) {
	lowest := uint8(1)
	for c.levels[lowest] == 0 {
		if lowest++; lowest > n.level {
			return nil
		}
	}
	for left, seen := len(c.places), 0; left > 0 && seen < looks; left-- {
		c.hand = (c.hand + 1) % len(c.places)
		p := &c.places[c.hand]
		old := p.node.Load()
		if old == nil || old.level != lowest {
			continue
		}
		if seen++; v == nil || old.lessThan(v.node.Load()) {
			v = p
		}
	}
	if !v.node.Load().lessThan(n) {
		return nil
	}
	return v
}

// lessThan says whether n goes before m.
func (n *inner) lessThan(m *inner) bool {
	return n.level < m.level || n.level == m.level && n.used.Load() < m.used.Load()
}

// halve halves all counts, so that what was looked for long ago counts for less.
func (c *cache) halve() {
	c.puts = 0
	c.missed.Halve()
	for i := range c.places {
		if n := c.places[i].node.Load(); n != nil {
			n.used.Store(n.used.Load() / 2)
		}
	}
}

// drop forgets n, if it is still what is kept.
func (c *cache) drop(n *inner) {
	if n == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	set := c.set(n.addr)
	for i := range set {
		if set[i].node.Load() == n {
			c.replace(&set[i], nil)
		}
	}
}

// replace puts n, or nothing, into a place. The count of what was there goes to the sketch.
func (c *cache) replace(p *place, n *inner) {
	if old := p.node.Load(); old != nil {
		c.bytes.Add(-int64(old.size()))
		c.levels[old.level]--
		c.kept--
		c.missed.Raise(old.addr, uint8(old.used.Load()))
		old.kept.Store(false)
		old.unlink()
	}
	if n == nil {
		p.addr.Store(0)
		p.node.Store(nil)
		return
	}
	c.bytes.Add(int64(n.size()))
	c.levels[n.level]++
	c.kept++
	n.kept.Store(true)
	p.node.Store(n)
	p.addr.Store(uint64(n.addr))
}
