package dex

import (
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index/internal/lfu"
	"github.com/dmindex/dmindex/pkg/pool"
)

// What goes is the least used of a few frames taken at random, if that is used less than what comes
// is looked for; a sketch says how often the leaves that are not kept were (TinyLFU). The paper's
// policy is there, too, with the switch frequencies off: two frames taken at random are cooled when
// room is wanted; those that are not found again until they leave their bucket of the cooling map
// go; and one leaf in ten is kept of those that are READ. That misses 1.24 times as often as the
// best fixed choice of leaves would, with zipfian keys (0.99) and room for 8 % of the leaves, and
// ours 1.02 times.
//
// A leaf that is changed is kept in any case. So that what is kept like that and not used goes
// first, a sample is large: leaves of which there are fewer than one in so many frames are hardly
// found.
const (
	samples = 24
	halving = 32 // times as many misses as there are frames come before counts are halved

	cooled     = 2  // frames are cooled at once
	coolShare  = 10 // which part of the frames the cooling map has room for
	bucketSize = 6  // frames in a bucket: a line of the processor's cache, with its length and lock
	admitOne   = 10 // leaf in so many
)

// cooling is a shard's part of the cooling map: buckets by the address of the leaf, each a queue of
// frames. Frames that were found again, or have another leaf by now, leave it like the others, but
// are not taken. Guarded by the shard's lock.
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

// coolCost is what a frame takes of the map, at most, rounded up: buckets are slices.
const coolCost = 3

// push puts f in the bucket of its leaf and takes the oldest one out, if that is full; -1: nothing
// came out.
func (c *cooling) push(f *frame, at int32) int32 {
	b := &c.buckets[lfu.Hash(pool.Addr(f.addr.Load()))>>32*uint64(len(c.buckets))>>32]
	out := int32(-1)
	if len(*b) == c.size {
		out = c.pop(b)
	}
	*b = append(*b, at)
	return out
}

// pop takes the oldest frame out of a bucket.
func (c *cooling) pop(b *[]int32) int32 {
	if len(*b) == 0 {
		return -1
	}
	out := (*b)[0]
	*b = (*b)[:copy(*b, (*b)[1:])]
	return out
}

// any takes the oldest frame out of a bucket taken at random, or of the next one that has any.
func (c *cooling) any(e env.Env) int32 {
	from := int(e.Uint64() % uint64(len(c.buckets)))
	for i := range c.buckets {
		if out := c.pop(&c.buckets[(from+i)%len(c.buckets)]); out >= 0 {
			return out
		}
	}
	return -1
}

// cool takes frames that are to go until one was not found since it was cooled; it has the lock of
// that. nil: none is to be had.
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
			f.used.Store(1) // somebody has it: it stays
		}
	}
	return nil
}

// admits reports whether a leaf that is worth so much shall take the place of f, if that is to go
// for it.
func (c *cache) admits(f *frame, worth uint8) bool {
	return !c.with.leafAdmission || !c.with.frequencies || f.used.Load() < uint32(worth)
}

// lucky reports whether a leaf is kept, without frequencies.
func (c *cache) lucky() bool {
	return !c.with.leafAdmission || c.with.frequencies || c.env.Uint64()%admitOne == 0
}

// hit counts that f was found: a plain store. Of two that are counted at once one may be lost.
func (f *frame) hit() {
	if u := f.used.Load(); u < lfu.Most {
		f.used.Store(u + 1)
	}
}

// miss counts that a was looked for in vain and says how often it was, lately.
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
