package count

import "sync/atomic"

// Counters are what the server counts for metrics and Describe.
type Counters struct {
	Forwarded atomic.Uint64 // operations and scans sent on to another server
	// Waits of sessions for the design's log, one for all that was answered together, and how long
	// they took, in nanoseconds.
	LogWaits, LogWaited atomic.Uint64
	Swept               atomic.Uint64 // pairs that had expired and that the sweeper removed
	Divided             atomic.Uint64 // batches whose changes were divided among several sessions
	Operations          atomic.Uint64 // requests of programs, of both front ends
	// of them, those answered with an error other than "not found" and "exists"
	Errors      atomic.Uint64
	Connections atomic.Int64  // RESP connections at this moment
	Refused     atomic.Uint64 // connections beyond the bound

	// Messages on channels: that programs published here; that subscribers of this server got; that
	// another server did not get, once for each. And connections that were cut because they did not
	// take theirs.
	Published, Delivered, Undelivered, SubscribersCut atomic.Uint64
}
