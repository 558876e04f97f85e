//go:build (!amd64 && !arm64) || (amd64 && race)

package mapped

import "sync/atomic"

// StoreRelease stores v after every access before it, and promises no order with what comes after.
// Under the race detector it is an operation that the detector knows.
func StoreRelease(p *uint32, v uint32) { atomic.StoreUint32(p, v) }
