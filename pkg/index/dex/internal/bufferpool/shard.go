package bufferpool

import (
	"slices"
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/internal/lfu"
	"github.com/dmindex/dmindex/pkg/index/internal/memory"
	"github.com/dmindex/dmindex/pkg/pool"
)

// shard has a part of the leaves, by their addresses.
type shard struct {
	first  int32 // number of its first frame in the cache
	mu     env.Mutex
	frames []frame.Frame
	live   int // the number of frames in use, which are the first ones, see Retire
	free   []int32
	table  []place    // ways for each hash, in one line of the processor's cache
	missed lfu.Sketch // how often leaves without a frame were looked for
	ghosts leafGhosts
	seen   int // misses since counts were halved

	evictions *Clock
}

// place has the number of a frame, plus 1, in its lower half, and a part of the hash of its leaf's
// address in the upper; 0 = free. It is a hint; the frame has the leaf's address.
type place struct{ atomic.Uint64 }

func placeOf(a pool.Addr, frame int32) uint64 { return tagOf(a)<<32 | uint64(frame+1) }

func tagOf(a pool.Addr) uint64 { return lfu.Hash(a) & (1<<32 - 1) }

// start gives a shard n frames from first on, of which so many are in use.
func (h *shard) start(c *Pool, first, n, live int) {
	h.first = int32(first)
	h.frames, h.live = c.frames[first:first+n:first+n], live
	h.free = make([]int32, 0, n)
	for i := range h.frames {
		f := &h.frames[i]
		f.Init(int32(first+i), c.image(int32(first+i)))
		if i < live {
			h.free = append(h.free, int32(live-1-i))
		}
	}
	h.missed = lfu.New(counts * n)
}

// at is the number of f in the shard.
func (h *shard) at(f *frame.Frame) int32 { return f.ID() - h.first }

func (h *shard) set(a pool.Addr) []place {
	i := lfu.Hash(a) << 4 >> 32 * uint64(len(h.table)/ways) >> 32 * ways
	return h.table[i : i+ways : i+ways]
}

// find returns the frame of the leaf at a, or nil. The caller checks the version, and then the
// address again.
func (h *shard) find(a pool.Addr) *frame.Frame {
	set, tag := h.set(a), tagOf(a)
	for i := range set {
		if p := set[i].Load(); p>>32 == tag && p != 0 {
			if f := &h.frames[uint32(p)-1]; f.Addr() == a {
				return f
			}
		}
	}
	return nil
}

// vacancy is a free place of the table for a; nil if there is none.
func (h *shard) vacancy(a pool.Addr) *place {
	set := h.set(a)
	for i := range set {
		if set[i].Load() == 0 {
			return &set[i]
		}
	}
	return nil
}

// take locks a frame that is free, or the least used one of a few; of those that take the places
// for a, if none of these is left. nil: somebody has the lock of what was found.
func (h *shard) take(c *Pool, a pool.Addr, full bool) *frame.Frame {
	for i := len(h.free) - 1; i >= 0 && !full; i-- {
		// else somebody has it who is about to see that it is free
		if f := &h.frames[h.free[i]]; f.TryLock() {
			h.free = append(h.free[:i], h.free[i+1:]...)
			return f
		}
	}
	set, n := h.set(a), samples
	if full {
		n = len(set)
	}
	var best *frame.Frame
	next := 0 // samples lie one behind the other: that is one random number, and few cache misses
	if !full {
		next = int(c.env.Uint64() % uint64(h.live))
	}
	for i := range n {
		var f *frame.Frame
		if full {
			f = &h.frames[uint32(set[i].Load())-1]
		} else {
			f = &h.frames[next]
			if next++; next == h.live {
				next = 0
			}
		}
		if f.Addr() != pool.Nil && !f.IsLocked() && (best == nil || f.Uses() < best.Uses()) {
			best = f
		}
	}
	if best == nil || !best.TryLock() {
		return nil
	}
	if best.Addr() == pool.Nil {
		best.Unlock()
		return nil
	}
	return best
}

// forget takes the place of f away, whose lock the caller has, besides that of the shard.
func (h *shard) forget(f *frame.Frame) {
	a := f.Addr()
	h.evictions.record(a) // before nobody finds it any more
	h.missed.Raise(a, uint8(f.Uses()))
	h.ghosts.add(lfu.Hash(a), uint8(f.Uses()))
	set := h.set(a)
	for i := range set {
		if set[i].Load() == placeOf(a, h.at(f)) {
			set[i].Store(0)
			break
		}
	}
	f.SetAddr(pool.Nil)
}

// retire empties the last frame in use.
func (h *shard) retire(c *Pool, flush func(*frame.Frame) error) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := &h.frames[h.live-1]
	if h.live <= c.leastFrames(len(h.frames)) || !f.TryLock() {
		return false, nil
	}
	defer f.Unlock()
	if f.RecLSN() != 0 {
		h.mu.Unlock()
		err := flush(f)
		h.mu.Lock()
		if err != nil {
			return false, err
		}
	}
	if f.Addr() != pool.Nil {
		h.forget(f)
	} else {
		h.free = slices.DeleteFunc(h.free, func(i int32) bool { return i == h.at(f) })
	}
	h.live--
	memory.Free(c.images[(int(h.first)+h.live)*c.stride : (int(h.first)+c.shared(h.live, len(h.frames)))*c.stride])
	return true, nil
}

func (h *shard) revive() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.live == len(h.frames) {
		return false
	}
	h.free = append(h.free, int32(h.live))
	h.live++
	return true
}
