//go:build !race

package seqlock

// Store stores w in *p, which others load atomically.
//
// An aligned store of 8 bytes is one access on this processor. No store passes another one, nor an
// atomic operation that changes memory. A later load may pass it, even an atomic one: who stores
// and then has to look at what others do needs atomic.StoreUint64. The compiler keeps stores where
// they are beside atomic operations, since these order what is around them. The Go memory model
// calls such a store a race. Of races on a single machine word it promises that a load finds a
// value that was stored.
func Store(p *uint64, w uint64) { *p = w }
