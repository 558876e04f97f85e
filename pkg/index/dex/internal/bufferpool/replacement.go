package bufferpool

import (
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/pool"
)

// replacement decides which leaf leaves its frame for another one. No lookup that is led to its
// frame by a hint calls it.
type replacement interface {
	// found is called when the table, and no hint, has led to f. hint is where the copy of the
	// inner node above has the hint of f's leaf; nil if nowhere. It is no path: what an interface
	// takes is allocated.
	found(hint *uint32, f *frame.Frame)
	// reserve is Pool.Reserve.
	reserve(a pool.Addr, must bool, flush func(*frame.Frame) error) (f *frame.Frame, fresh bool, err error)
	// drop frees f, whose lock the caller has, and unlocks it.
	drop(f *frame.Frame)
	// retire takes as many frames as most out of use; it may do fewer at a time. 0 = none can go
	// now.
	retire(most int, flush func(*frame.Frame) error) (n int, err error)
	// revive takes as many as most into use again; 0 = all are.
	revive(most int) (n int)
	// spare is how many frames retire can get at most.
	spare() int
}
