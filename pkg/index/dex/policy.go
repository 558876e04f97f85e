package dex

import (
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index/internal/lfu"
	"github.com/dmindex/dmindex/pkg/pool"
)

// The victim is the least used of a few frames drawn at random, if it is used less than the new
// leaf is looked for. A sketch counts how often leaves without a frame were looked for (TinyLFU).
// The switch frequencies off selects the paper's policy: two frames drawn at random are cooled when
// room is wanted; frames that are not found again before they leave their bucket of the cooling map
// are evicted; and one in ten of the leaves that are READ is kept. With zipfian keys (0.99) and
// room for 8 % of the leaves that misses 1.28 times as often as the best fixed choice of leaves,
// and this policy 1.02 times (TestCachePolicies).
//
// A leaf that is changed is always kept. A sample is large so that such leaves are evicted first
// when they are not used again: leaves that are rarer than one in so many frames are hardly found.
const (
	samples = 24
	halving = 32 // counts are halved after so many misses for each frame

	cooled     = 2  // frames are cooled at once
	coolShare  = 10 // the cooling map has room for one in so many frames
	bucketSize = 6  // frames in a bucket: a cache line, with its length and lock
	admitOne   = 10 // leaf in so many is kept
)

// cooling is a shard's part of the cooling map: buckets by the address of the leaf, each a queue of
// frames. Frames that were found again, or have another leaf by now, leave the queue like the
// others, but are not evicted. Guarded by the shard's lock.
type cooling struct {
	size    int // of a bucket
	buckets [][]int32
}

// start makes room for a part of n frames. Without the map there is one bucket.
func (c *cooling) start(n int, buckets bool) {
	room := max(1, n/coolShare)
	if c.size = room; buckets {
		c.size = min(bucketSize, room)
	}
	c.buckets = make([][]int32, room/c.size)
	for i := range c.buckets {
		c.buckets[i] = make([]int32, 0, c.size)
	}
}

// coolCost is the most that a frame takes of the map, rounded up: buckets are slices.
const coolCost = 3

// push puts f into the bucket of its leaf. If that is full it removes and returns the oldest frame;
// otherwise -1.
func (c *cooling) push(f *frame, at int32) int32 {
	b := &c.buckets[lfu.Hash(pool.Addr(f.addr.Load()))>>32*uint64(len(c.buckets))>>32]
	out := int32(-1)
	if len(*b) == c.size {
		out = c.pop(b)
	}
	*b = append(*b, at)
	return out
}

// pop removes the oldest frame of a bucket.
func (c *cooling) pop(b *[]int32) int32 {
	if len(*b) == 0 {
		return -1
	}
	out := (*b)[0]
	*b = (*b)[:copy(*b, (*b)[1:])]
	return out
}

// any removes the oldest frame of a bucket drawn at random, or of the next one that is not empty.
func (c *cooling) any(e env.Env) int32 {
	from := int(e.Uint64() % uint64(len(c.buckets)))
	for i := range c.buckets {
		if out := c.pop(&c.buckets[(from+i)%len(c.buckets)]); out >= 0 {
			return out
		}
	}
	return -1
}

// cool draws victims until one was not found since it was cooled, and returns that one locked; nil
// if there is none.
func (h *shard) cool(e env.Env) *frame {
	for range 2 * h.cooling.size * len(h.cooling.buckets) {
		out := int32(-1)
		for range cooled {
			f := &h.frames[e.Uint64()%uint64(len(h.frames))]
			if f.addr.Load() != 0 && f.version.Load()&1 == 0 && f.used.Load() > 0 && out < 0 {
				f.used.Store(0)
				out = h.cooling.push(f, h.at(f))
			}
		}
		if out < 0 {
			out = h.cooling.any(e)
		}
		if out < 0 {
			continue
		}
		if f := &h.frames[out]; f.addr.Load() != 0 && f.used.Load() == 0 && f.tryLock() {
			if f.addr.Load() != 0 {
				return f
			}
			f.unlock()
		} else if f.used.Load() == 0 {
			f.used.Store(1) // it is locked: it stays
		}
	}
	return nil
}

// admits reports whether a leaf that is worth so much should replace the leaf of f.
func (c *cache) admits(f *frame, worth uint8) bool {
	return !c.with.leafAdmission || !c.with.frequencies || f.used.Load() < uint32(worth)
}

// lucky reports whether a leaf is kept, with frequencies off.
func (c *cache) lucky() bool {
	return !c.with.leafAdmission || c.with.frequencies || c.env.Uint64()%admitOne == 0
}

// hit counts that f was found, by a plain store. Of two concurrent counts one may be lost.
func (f *frame) hit() {
	if u := f.used.Load(); u < lfu.Most {
		f.used.Store(u + 1)
	}
}

// miss counts that a was looked for without a frame, and returns how often it was recently.
func (h *shard) miss(c *cache, a pool.Addr) uint8 {
	if !c.with.frequencies {
		return 1
	}
	if h.seen++; h.seen > halving*len(h.frames) {
		h.seen = 0
		h.missed.Halve()
		for i := range h.frames {
			h.frames[i].used.Store(h.frames[i].used.Load() / 2)
		}
	}
	return h.missed.Miss(a)
}
