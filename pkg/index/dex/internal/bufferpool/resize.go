package bufferpool

import (
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/internal/memory"
)

// Retire empties frames until images of so many bytes are free, and returns their memory to the
// kernel. It returns how many bytes it got: fewer if frames are locked, or too few are left.
func (c *Pool) Retire(bytes int64, flush func(*frame.Frame) error) (got int64, err error) {
	each := int64(c.FrameBytes())
	defer func() { c.taken.Add(-got) }() // also of what it got before an error
	for got < bytes {
		n, err := c.replaces.retire(int((bytes-got+each-1)/each), flush)
		if got += int64(n) * each; err != nil || n == 0 {
			return got, err
		}
	}
	return got, nil
}

// Spare returns how many bytes Retire can get at most.
func (c *Pool) Spare() int64 { return int64(c.FrameBytes()) * int64(max(0, c.replaces.spare())) }

// Revive reuses retired frames whose images have at most so many bytes, and returns how many bytes
// are left.
func (c *Pool) Revive(bytes int64) (left int64) {
	each := int64(c.FrameBytes())
	for bytes >= each {
		n := c.replaces.revive(int(bytes / each))
		if n == 0 {
			break
		}
		c.taken.Add(int64(n) * each)
		bytes -= int64(n) * each
	}
	return bytes
}

// leastFrames returns how many of n frames are always kept.
func (c *Pool) leastFrames(n int) int { return max(c.o.Least, n/8) }

// shared returns the end of what is released with frame id, of n: frames that were retired before
// share pages with it.
func (c *Pool) shared(id, n int) int { return min(n, id+2*memory.PageBytes/(8*c.stride)+2) }

// release returns the memory of a retired frame of no shard to the kernel.
func (c *Pool) release(id int) {
	memory.Free(c.images[id*c.stride : c.shared(id, len(c.frames))*c.stride])
}
