package dex

import (
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/index/dex/internal/bufferpool"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/valuecache"
)

// balance divides the bytes of the cache between frames and copies of inner nodes. A missing inner
// node costs every leaf below it one more READ. So inner nodes come first, up to half of all bytes.
// They are few, so frames have all that inner nodes do not need. Inner nodes begin with a small
// part. When copies that are in use find no room, frames at the ends of the shards are given up,
// with their images, and the bound of the inner nodes grows by as much. When there are fewer inner
// nodes the frames come back. Frames are also given up for values in blocks (valuecache), and these
// do not come back. One side releases the bytes before the other gets them, so the total is never
// exceeded.
//
// With caching off frames only serve changes that are under way, as buffers of sessions do, so all
// other bytes are for inner nodes from the start, and nothing moves. There are so many frames that
// no change waits for one, even if a small cache has less bytes for them.
//
// The moves are made by the next session that has a leaf to READ: it holds no frame then, and may
// write leaves back.
type balance struct {
	x     *dex
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
	// the table of inner nodes has room for a third of the cache; see btree.Tree.SetCacheBound
	innerTable = 3
	innerMost  = 2                    // they may have half of it
	innerFirst = 16                   // and begin with a sixteenth
	balances   = 2 * valuecache.Parts // steps that the cache has
)

// uncachedShare is the part of the cache that frames take at most with caching off.
const uncachedShare = 8

// uncached is how many frames there are with caching off, for leaves that are being changed. If
// their part of a small cache has room for less, they have bytes besides. Tests have fewer, so that
// sessions wait for frames.
var uncached = 256

// start returns how many bytes of the cache inner nodes have at first.
func (b *balance) start(x *dex, bytes int) int {
	if x.with.direct() {
		b.x, b.inner = x, int64(bytes-min(bytes/uncachedShare, x.uncachedBytes()))
		if !x.tree.SetCacheBound(b.inner) {
			b.inner = int64(bytes - bytes/uncachedShare) // as it was opened
		}
		return int(b.inner)
	}
	b.x, b.step, b.most = x, int64(bytes/balances), int64(bytes/innerMost)
	b.inner = max(int64(bytes/innerFirst), x.tree.CacheBytes()+4*int64(x.lay.NodeBytes))
	// a tiny cache: nothing moves
	if b.inner >= int64(bytes/innerTable) || !x.tree.SetCacheBound(b.inner) {
		b.inner, b.most = int64(bytes/innerTable), 0
	}
	b.least = b.inner
	return int(b.inner)
}

// uncachedBytes is what the frames take with caching off.
func (x *dex) uncachedBytes() int {
	return uncached * (x.lay.NodeBytes + bufferpool.FrameCost(x.lay.NodeBytes/8, !x.with.frequencies))
}

// moves reports whether bytes are moved at all.
func (b *balance) moves() bool { return b.most > 0 }

// shift moves bytes if one side has what the other needs.
func (b *balance) shift(s *session) error {
	if !b.taken.CompareAndSwap(false, true) {
		return nil
	}
	defer b.taken.Store(false)
	if b.moves() {
		if err := b.shiftNodes(s); err != nil {
			return err
		}
	}
	return b.shiftEntries(s)
}

// shiftNodes moves bytes between frames and inner nodes, or else values.
func (b *balance) shiftNodes(s *session) error {
	tree := b.x.tree
	b.short = tree.CacheShort() || b.short
	switch {
	case b.short && b.inner+b.step <= b.most:
		got, err := b.x.cache.Retire(b.step-b.spare, s.back)
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
		b.spare = b.x.cache.Revive(b.spare + b.step)
		b.x.values.Retry() // frames have more than before
	default:
		return b.shiftValues(s)
	}
	return nil
}

// shiftValues saves bytes for values that find no room.
//
// That ends: each call gets frames, of which there are fewer then; or finds that there are too few,
// and values do not want more; or finds the last frame of each shard locked, which is not for long.
func (b *balance) shiftValues(s *session) error {
	v := &b.x.values
	need := v.Wants()
	if need == 0 {
		return nil
	}
	if need-b.saved > b.x.cache.Spare() {
		// What was saved is of no use there. Without the bound a value that finds no room would
		// bring every miss here again.
		b.saved = b.x.cache.Revive(b.saved)
		v.Settle()
		return nil
	}
	got, err := b.x.cache.Retire(min(b.step, need-b.saved), s.back)
	if b.saved += got; err != nil {
		return err
	}
	if b.saved >= need {
		b.saved -= need
		v.Grow()
	}
	return nil
}
