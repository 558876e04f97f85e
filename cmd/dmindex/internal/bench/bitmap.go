package bench

import (
	"math/bits"
	"sync/atomic"
)

// bitmap is a set of small numbers. Safe for concurrent use.
type bitmap []atomic.Uint64

func newBitmap(n uint64) bitmap { return make(bitmap, (n+63)/64) }

func (b bitmap) get(i uint64) bool { return b[i/64].Load()>>(i%64)&1 != 0 }

func (b bitmap) set(i uint64) { b[i/64].Or(1 << (i % 64)) }

// count is how many numbers are in the set.
func (b bitmap) count() (n uint64) {
	for i := range b {
		n += uint64(bits.OnesCount64(b[i].Load()))
	}
	return n
}
