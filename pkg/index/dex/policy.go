package dex

import (
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/pool"
)

// The victim is the least used of a few neighbours drawn at random, if it is used less than the new
// leaf is looked for. A sketch counts how often leaves without a frame were looked for (TinyLFU).
// The switch frequencies off selects the paper's policy (cooling.go). With zipfian keys (0.99) and
// room for 8 % of the leaves that misses 1.28 times as often as the best fixed choice of leaves,
// and this policy 1.02 times (TestCachePolicies).
//
// A leaf that is changed is always kept. A sample is large so that such leaves are evicted first
// when they are not used again: leaves that are rarer than one in so many frames are hardly found.
const (
	samples = 24
	halving = 32 // counts are halved after so many misses for each frame
)

// admits reports whether a leaf that is worth so much should replace the leaf of f.
func (c *cache) admits(f *frame.Frame, worth uint8) bool {
	return !c.with.leafAdmission || f.Uses() < uint32(worth)
}

// miss counts that a was looked for without a frame, and returns how often it was recently.
func (h *shard) miss(a pool.Addr) uint8 {
	if h.seen++; h.seen > halving*len(h.frames) {
		h.seen = 0
		h.missed.Halve()
		h.ghosts.halve()
		for i := range h.frames {
			h.frames[i].SetUses(h.frames[i].Uses() / 2)
		}
	}
	return h.missed.Miss(a)
}
