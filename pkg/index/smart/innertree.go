package smart

import (
	"github.com/dmindex/dmindex/pkg/sum"
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/index/internal/nodecache"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// innerTree is the inner nodes of an open index of one client.
type innerTree struct {
	lay       art.Layout
	longest   int // key
	with      art.Techniques
	pool      *pool.Pool
	env       env.Env
	allocated func(error) // is told how each allocation ended

	first  pool.Addr     // the first root
	top    atomic.Uint64 // where the root lies, as far as it is known
	root   atomic.Pointer[art.Copy]
	cache  *nodecache.Cache
	spread spread
	merges atomic.Uint64 // nodes that were taken out for want of children
}

// init makes t a tree in p. allocated is told how each allocation of a session ended.
func (t *innerTree) init(p *pool.Pool, with art.Techniques, allocated func(error)) {
	t.pool, t.env, t.with, t.allocated = p, p.Env(), with, allocated
}

// keep makes the cache of inner nodes, of so many bytes at most.
func (t *innerTree) keep(bytes int) {
	t.cache = nodecache.NewSharded(t.env, art.Copies{}, bytes, art.TypicalCopy, nodecache.MostShards)
}

// begin says where the first root lies, what its nodes are, and how long a key may be.
func (t *innerTree) begin(root pool.Addr, lay art.Layout, longest int) {
	t.lay, t.longest, t.first = lay, longest, root
	t.top.Store(uint64(root))
}

// firstNode makes the root.
func (t *innerTree) firstNode(ps *pool.Session, k *sum.Key) (pool.Addr, error) {
	b, err := ps.Buffer(rootBytes)
	if err != nil {
		return pool.Nil, err
	}
	a, err := t.pool.AllocateBlock(rootBytes, pool.Nil)
	if err != nil {
		return pool.Nil, err
	}
	ps.Write(pool.Sole, a, buildRoot(k, b, a, unit.NewVersion(t.env)))
	return a, ps.Post()
}
