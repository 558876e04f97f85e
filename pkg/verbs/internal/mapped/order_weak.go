//go:build !amd64

package mapped

// weakOrder says that the processor reorders more than a store with a later load, so that every
// pair of requests needs a barrier.
const weakOrder = true

// KeepOrder is a barrier between two stores, or between two loads, where the processor would not
// keep them in order.
func KeepOrder() { Barrier() }
