package btree

import (
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index/internal/nodecache"
)

// inners implements nodecache.Owner.
type inners struct{}

// Bytes implements nodecache.Owner.
func (inners) Bytes(h *nodecache.Head) int { return innerOf(h).memory }

// Evicted implements nodecache.Owner.
func (inners) Evicted(h *nodecache.Head) { innerOf(h).unswizzleAll() }

// newCache makes the cache of inner nodes. Nodes are two thirds full.
func newCache(e env.Env, bound, nodeBytes int) *nodecache.Cache {
	return nodecache.New(e, inners{}, bound, nodeBytes*2/3+innerBytes)
}

// DefaultCacheBytes bounds the index cache unless Options say otherwise.
const DefaultCacheBytes = 64 << 20

// SetCacheBound makes n the bound of the cache of inner nodes, which may become up to half as large
// again as it was opened with: its table has room for that. false: there are more bytes in it.
func (t *Tree) SetCacheBound(n int64) bool { return t.cache.SetBound(n) }

// CacheBytes are those of the cache of inner nodes.
func (t *Tree) CacheBytes() int64 { return t.cache.Bytes() }

// TakeCacheShortage reports whether inner nodes that are in use have had no room in the cache since
// it was asked the last time.
func (t *Tree) TakeCacheShortage() bool { return t.cache.TakeShortage() }
