package sherman

import (
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/pool"
)

// cache is the index cache of a client (section 4.2): copies of inner nodes by address, shared by its sessions. A copy never
// changes. It may be old: then the node that it leads to says so by its level and fences, and the copy is dropped.
//
// It is a table of fixed size with as many places as its bound has room for, ways of them for an address; reading one takes no
// lock. A copy that finds no empty place takes that of another of the lowest level, in turn.
type cache struct {
	sets   uint64
	places []place
	mu     env.Mutex // for changes
	turn   int
	bytes  atomic.Int64
}

type place struct {
	addr atomic.Uint64 // of node; a hint, so that others' nodes need not be touched
	node atomic.Pointer[inner]
}

const ways = 4

// DefaultCacheBytes bounds the index cache unless Options say otherwise.
const DefaultCacheBytes = 64 << 20

func newCache(e env.Env, bound, nodeBytes int) *cache {
	sets := max(1, bound/(nodeBytes+64)/ways)
	return &cache{sets: uint64(sets), places: make([]place, sets*ways), mu: e.NewMutex()}
}

func (c *cache) set(a pool.Addr) []place {
	h := uint64(a) >> 6 * 0x9E3779B97F4A7C15 >> 32
	i := h * c.sets >> 32 * ways
	return c.places[i : i+ways : i+ways]
}

// get is the copy of the node at a; nil if there is none, or only one from before floor.
func (c *cache) get(a pool.Addr, floor uint64) *inner {
	set := c.set(a)
	for i := range set {
		if set[i].addr.Load() != uint64(a) {
			continue
		}
		if n := set[i].node.Load(); n != nil && n.addr == a && n.stamp >= floor {
			return n
		}
	}
	return nil
}

// put keeps n, unless it has a copy that is not older. Versions of a node count up from a random start. Only copies of the same stamp are of one
// node for sure.
func (c *cache) put(n *inner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	set := c.set(n.addr)
	victim := -1
	for i := range set {
		old := set[i].node.Load()
		switch {
		case old == nil:
			victim = i
			continue
		case old.addr != n.addr:
			continue
		case n.stamp < old.stamp || n.stamp == old.stamp && int32(n.version-old.version) <= 0:
			return
		}
		victim = i
		break
	}
	if victim < 0 {
		victim = c.evict(set)
	}
	c.replace(&set[victim], n)
}

// evict chooses whose place is taken: in turn one of those of the lowest level.
func (c *cache) evict(set []place) int {
	lowest := uint8(255)
	for i := range set {
		lowest = min(lowest, set[i].node.Load().level)
	}
	for {
		c.turn++
		if i := c.turn % ways; set[i].node.Load().level == lowest {
			return i
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

func (c *cache) replace(p *place, n *inner) {
	if old := p.node.Load(); old != nil {
		c.bytes.Add(-int64(old.size()))
	}
	if n == nil {
		p.addr.Store(0)
		p.node.Store(nil)
		return
	}
	c.bytes.Add(int64(n.size()))
	p.node.Store(n)
	p.addr.Store(uint64(n.addr))
}
