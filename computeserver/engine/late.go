package engine

import (
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// Timing is the time limit of operations that arrived together.
type Timing struct {
	Deadline time.Duration // of the environment's clock
	short    bool          // too short for the published time
	parked   bool          // of operations in a lane that is parked
	parks    bool          // of operations in a lane that must not wait, and parks what would
}

// NewTiming returns the timing of operations whose limit ends at a deadline.
func NewTiming(deadline, limit time.Duration) Timing {
	return Timing{Deadline: deadline, short: limit < shortLimit}
}

// Clock returns the time, up to leaseLooks old, while the index is open.
func (g *Sessions) Clock() time.Duration { return time.Duration(g.hand.Load()) }

// shortLimit is the limit below which the clock is read before each operation. Reading it can take
// as long as an operation. So with longer limits the published time is used, which is up to
// leaseLooks old, and operations stop beginning that much before the deadline.
const shortLimit = 4 * leaseLooks

// ErrLate is the failure of an operation that did not begin in time.
var ErrLate error = &Failure{Code: rpcv1.Outcome_TIMED_OUT, Message: "nothing was done: the time was over before it was begun"}

// Late reports whether the time is over. It may return true up to leaseLooks early. It returns
// false too long if the process is suspended at that moment, or the goroutine that publishes the
// time is late.
func (g *Sessions) Late(t Timing) bool {
	if t.short {
		return g.env.Now() >= t.Deadline
	}
	return g.Clock()+leaseLooks >= t.Deadline
}
