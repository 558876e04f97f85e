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
	lay     Layout
	longest int // key
	with    Techniques
	Pool    *pool.Pool
	Env     env.Env

	First  pool.Addr     // the first root
	top    atomic.Uint64 // where the root lies, as far as it is known
	Root   atomic.Pointer[Copy]
	Cache  *nodecache.Cache
	spread spread
	Merges atomic.Uint64 // nodes that were taken out for want of children

	sweeps     sweeps
	shortUntil atomic.Int64 // memory is short, on the clock of env; 0 = never
}

// Init makes t a tree in p.
func (t *Tree) Init(p *pool.Pool, with Techniques) {
	t.Pool, t.Env, t.with = p, p.Env(), with
}

// OpenCache makes the cache of inner nodes, of so many bytes at most.
func (t *Tree) OpenCache(bytes int) {
	t.Cache = nodecache.NewSharded(t.Env, copies{}, bytes, typicalCopy, nodecache.MostShards)
}

// SetRoot says where the first root lies, what its nodes are, and how long a key may be.
func (t *Tree) SetRoot(root pool.Addr, lay Layout, longest int) {
	t.lay, t.longest, t.First = lay, longest, root
	t.with.loneLeaves = lay.LoneLeaves
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
	ps.Write(pool.Sole, a, buildRoot(k, b, a, unit.NewVersion(t.Env)))
	return a, ps.Post()
}
