// Package budget divides a fixed number of bytes among the caches of a client, and moves them. It
// knows how many bytes each cache has and what it wants, and nothing of what is in them.
//
//	          SetCacheBound          Retire, Revive           Resize, by buckets
//	 inner nodes <------- spare <------ frames ------> loose ------> entries
//	                                      |
//	                                      +---------> saved -------> values
//	                                                          Grow
//
//	one side releases bytes before another one gets them, so the total is never exceeded
//
// It divides the bytes of the cache between frames and copies of inner nodes. A missing inner
// node costs every leaf below it one more READ. So inner nodes come first, up to half of all bytes.
// They are few, so frames have all that inner nodes do not need. Inner nodes begin with a small
// part. When copies that are in use find no room, frames at the ends of the shards are given up,
// with their images, and the bound of the inner nodes grows by as much. When there are fewer inner
// nodes the frames come back. Frames are also given up for values in blocks (valuecache), and these
// do not come back.
//
// The moves are made by the next session that has a leaf to READ: it holds no frame then, and may
// write leaves back.
package budget

import (
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/bufferpool"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/rowcache"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/valuecache"
)

// Nodes is the cache of inner nodes.
type Nodes interface {
	// TakeCacheShortage reports whether copies that are in use found no room since it last did.
	TakeCacheShortage() bool
	// CacheBytes is what its copies take.
	CacheBytes() int64
	// SetCacheBound sets its bound; false = it cannot be that.
	SetCacheBound(bytes int64) bool
}

// Budget divides the bytes of a client's caches.
type Budget struct {
	env    env.Env
	o      Shares
	nodes  Nodes
	frames *bufferpool.Pool
	rows   *rowcache.Cache
	values *valuecache.Cache
	finds  finds

	taken atomic.Bool // a session is at it; guards the rest
	step  int64       // bytes that move at once
	inner int64       // bound of the inner nodes
	least int64       // of inner
	most  int64       // of inner
	spare int64       // released bytes that no side has yet
	saved int64       // released bytes that are saved for values
	short bool        // inner nodes need more
	share entryShifts
}

const (
	// InnerTable: the table of inner nodes has room for a third of the cache; see
	// btree.Tree.SetCacheBound
	InnerTable = 3
	innerMost  = 2                    // they may have half of it
	innerFirst = 16                   // and begin with a sixteenth
	balances   = 2 * valuecache.Parts // steps that the cache has
)

// Start returns how many of so many bytes inner nodes have at first.
func (b *Budget) Start(in env.Env, o Shares, n Nodes, bytes, nodeBytes int) int {
	b.env, b.o, b.nodes, b.step, b.most = in, o, n, int64(bytes/balances), int64(bytes/innerMost)
	b.inner = max(int64(bytes/innerFirst), n.CacheBytes()+4*int64(nodeBytes))
	// a tiny cache: nothing moves
	if b.inner >= int64(bytes/InnerTable) || !n.SetCacheBound(b.inner) {
		b.inner, b.most = int64(bytes/InnerTable), 0
	}
	b.least = b.inner
	return int(b.inner)
}

// Serve names the caches. Before that nothing is moved.
func (b *Budget) Serve(frames *bufferpool.Pool, rows *rowcache.Cache, values *valuecache.Cache) {
	b.frames, b.rows, b.values = frames, rows, values
}

// State is how the bytes are divided now, for tests: the bound of the inner nodes, bytes that no
// side has yet, bytes that are saved for values, and how many move at once.
type State struct{ Inner, Spare, Saved, Step int64 }

// State returns the state.
func (b *Budget) State() State { return State{b.inner, b.spare, b.saved, b.step} }

// Moves reports whether bytes are moved at all.
func (b *Budget) Moves() bool { return b.most > 0 }

// Rebalance moves bytes if one side has what the other needs.
func (b *Budget) Rebalance(flush func(*frame.Frame) error) error {
	if !b.taken.CompareAndSwap(false, true) {
		return nil
	}
	defer b.taken.Store(false)
	if b.Moves() {
		if err := b.shiftNodes(flush); err != nil {
			return err
		}
	}
	return b.shiftEntries(flush)
}

// shiftNodes moves bytes between frames and inner nodes, or else values.
func (b *Budget) shiftNodes(flush func(*frame.Frame) error) error {
	tree := b.nodes
	b.short = tree.TakeCacheShortage() || b.short
	switch {
	case b.short && b.inner+b.step <= b.most:
		got, err := b.frames.Retire(b.step-b.spare, flush)
		if b.spare += got; err != nil {
			return err
		}
		if b.spare >= b.step {
			b.short = false
			if tree.SetCacheBound(b.inner + b.step) {
				b.inner, b.spare = b.inner+b.step, b.spare-b.step
			}
		}
	case b.inner-b.step >= b.least && tree.CacheBytes() < b.inner-2*b.step && tree.SetCacheBound(b.inner-b.step):
		b.inner -= b.step
		b.spare = b.frames.Revive(b.spare + b.step)
		b.values.Retry() // frames have more than before
	default:
		return b.shiftValues(flush)
	}
	return nil
}

// shiftValues saves bytes for values that find no room.
//
// That ends: each call gets frames, of which there are fewer then; or finds that there are too few,
// and values do not want more; or finds the last frame of each shard locked, which is not for long.
func (b *Budget) shiftValues(flush func(*frame.Frame) error) error {
	v := b.values
	need := v.Wants()
	if need == 0 {
		return nil
	}
	if need-b.saved > b.frames.Spare() {
		// The saved bytes are of no use there. Without the bound a value that finds no room would
		// bring every miss here again.
		b.saved = b.frames.Revive(b.saved)
		v.Settle()
		return nil
	}
	got, err := b.frames.Retire(min(b.step, need-b.saved), flush)
	if b.saved += got; err != nil {
		return err
	}
	if b.saved >= need {
		b.saved -= need
		v.Grow()
	}
	return nil
}
