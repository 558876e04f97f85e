//go:build !amd64 || race

package seqlock

import "sync/atomic"

// Store stores w in *p, which others load atomically. Other processors may let a plain store pass
// the atomic operation before it. And the race detector shall see that each such word is meant to
// be loaded meanwhile.
func Store(p *uint64, w uint64) { atomic.StoreUint64(p, w) }
