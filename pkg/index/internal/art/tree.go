package art

import (
	"github.com/dmindex/dmindex/pkg/sum"
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index/internal/nodecache"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Tree is the inner nodes of an open index of one client.
type Tree struct {
	lay       Layout
	longest   int // key
	with      Techniques
	Pool      *pool.Pool
	Env       env.Env
	allocated func(error) // is told how each allocation ended

	First  pool.Addr     // the first root
	top    atomic.Uint64 // where the root lies, as far as it is known
	Root   atomic.Pointer[Copy]
	Cache  *nodecache.Cache
	spread spread
	Merges atomic.Uint64 // nodes that were taken out for want of children
}

// Init makes t a tree in p. allocated is told how each allocation of a session ended.
func (t *Tree) Init(p *pool.Pool, with Techniques, allocated func(error)) {
	t.Pool, t.Env, t.with, t.allocated = p, p.Env(), with, allocated
}

// OpenCache makes the cache of inner nodes, of so many bytes at most.
func (t *Tree) OpenCache(bytes int) {
	t.Cache = nodecache.NewSharded(t.Env, copies{}, bytes, typicalCopy, nodecache.MostShards)
}

// SetRoot says where the first root lies, what its nodes are, and how long a key may be.
func (t *Tree) SetRoot(root pool.Addr, lay Layout, longest int) {
	t.lay, t.longest, t.First = lay, longest, root
	t.top.Store(uint64(root))
}

// FirstNode makes the root.
func (t *Tree) FirstNode(ps *pool.Session, k *sum.Key) (pool.Addr, error) {
	b, err := ps.Buffer(RootBytes)
	if err != nil {
		return pool.Nil, err
	}
	a, err := t.Pool.AllocateBlock(RootBytes, pool.Nil)
	if err != nil {
		return pool.Nil, err
	}
	ps.Write(pool.Sole, a, BuildRoot(k, b, a, unit.NewVersion(t.Env)))
	return a, ps.Post()
}
