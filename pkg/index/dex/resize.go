package dex

import (
	"slices"

	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/internal/memory"
	"github.com/dmindex/dmindex/pkg/pool"
)

// retire empties frames from the end of each shard until images of so many bytes are free, and
// returns their memory to the kernel. Each shard keeps a minimum. It returns how many bytes it got:
// fewer if frames are locked.
func (c *cache) retire(bytes int64, flush func(*frame.Frame) error) (got int64, err error) {
	each := int64(8 * c.stride)
	defer func() { c.bytes.Add(-got) }() // also of what it got before an error
	for before := int64(-1); got < bytes && got > before; {
		before = got
		if !c.with.frequencies {
			ok, err := c.paper.retireLast(c, flush)
			if err != nil {
				return got, err
			}
			if ok {
				got += each
			}
			continue
		}
		for i := range c.shards {
			if got >= bytes {
				break
			}
			ok, err := c.shards[i].retire(c, flush)
			if err != nil {
				return got, err
			}
			if ok {
				got += each
			}
		}
	}
	return got, nil
}

// spare returns how many bytes retire can get at most.
func (c *cache) spare() (bytes int64) {
	n := 0
	if !c.with.frequencies {
		n = int(c.paper.live.Load()) - leastFrames(len(c.frames))
	}
	for i := range c.shards {
		if h := &c.shards[i]; c.with.frequencies {
			h.mu.Lock()
			n += h.live - h.least()
			h.mu.Unlock()
		}
	}
	return int64(8*c.stride) * int64(max(0, n))
}

// retire empties the last frame in use.
func (h *shard) retire(c *cache, flush func(*frame.Frame) error) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := &h.frames[h.live-1]
	if h.live <= h.least() || !f.TryLock() {
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

// shared returns the end of what is released with frame id, of n: frames that were retired before
// share pages with it.
func (c *cache) shared(id, n int) int { return min(n, id+2*memory.PageBytes/(8*c.stride)+2) }

// release returns the memory of a retired frame of no shard to the kernel.
func (c *cache) release(id int) {
	memory.Free(c.images[id*c.stride : c.shared(id, len(c.frames))*c.stride])
}

// least returns how many frames the shard always keeps.
func (h *shard) least() int { return leastFrames(len(h.frames)) }

func leastFrames(n int) int { return max(leastInCache, n/8) }

// revive reuses retired frames whose images have at most so many bytes, and returns how many bytes
// are left.
func (c *cache) revive(bytes int64) (left int64) {
	each := int64(8 * c.stride)
	for moved := true; moved; {
		moved = false
		if !c.with.frequencies {
			if bytes >= each && c.paper.reviveNext(c) {
				c.bytes.Add(each)
				bytes -= each
				moved = true
			}
			continue
		}
		for i := range c.shards {
			if bytes >= each && c.shards[i].revive() {
				c.bytes.Add(each)
				bytes -= each
				moved = true
			}
		}
	}
	return bytes
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
