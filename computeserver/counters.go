package computeserver

import "sync/atomic"

// counters are what the server counts for metrics and Describe.
type counters struct {
	forwarded  atomic.Uint64 // operations and scans sent on to another server
	operations atomic.Uint64 // requests of programs, of both front ends
	// of them, those answered with an error other than "not found" and "exists"
	errors      atomic.Uint64
	connections atomic.Int64  // RESP connections at this moment
	refused     atomic.Uint64 // connections beyond the bound
}
