package dex

import (
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/budget"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/bufferpool"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/rowcache"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
)

// The caches of a client: how many bytes they have at first, and what decides that.

// shardFrames is from how many frames on a shard is divided in two, departedShare how many frames
// share a time of departure. Tests with few frames change them, so that leaves of several shards
// meet.
var shardFrames, departedShare = 256, 1

// initial is how caches are divided at first. Tests with many entries change it.
var initial = budget.Defaults()

// sharesOf are the shares of a cache with some techniques, in an index.
func (t *techniques) sharesOf(lay *fence.Layout) budget.Shares {
	o := initial
	o.Entries, o.Moves, o.SmallPairs = t.entries, t.frequencies, lay != nil && rowcache.KeepsAll(lay)
	return o
}

// cachesOf divides so many bytes between frames for leaves of nodeBytes and entries. If their
// shares move, ghosts of leaves are counted.
func cachesOf(e env.Env, with techniques, o budget.Shares, bytes, nodeBytes int, inners bufferpool.InnerNodes, ghosts *atomic.Int64) (c *bufferpool.Pool, room rowcache.Room) {
	each, image := nodeBytes+bufferpool.FrameCost(nodeBytes/8, !with.frequencies), 8*bufferpool.StrideOf(nodeBytes/8)
	room, frames, live := o.Divide(bytes, each, image)
	if !room.Moves() {
		ghosts = nil
	}
	return bufferpool.New(e, bufferpool.Options{NodeBytes: nodeBytes, Frames: frames, Live: live, Ghosts: ghosts, Least: o.LeastFrames,
		ShardFrames: shardFrames, DepartedShare: departedShare,
		LeafAdmission: with.leafAdmission, Paper: !with.frequencies, CoolingMap: with.coolingMap, Inners: inners}), room
}

// fetches counts that a lookup READs a leaf, because the cache has neither that nor the entry of
// key.
func (x *dex) fetches(key []byte) {
	x.fetched.Add(1)
	x.budget.Missed(key)
}
