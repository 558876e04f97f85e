package engine

import (
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// Timing is the time that operations which came together have.
type Timing struct {
	Deadline time.Duration // of the environment's clock
	short    bool          // it is too short for the engine's hand
}

// NewTiming is that of operations whose limit is over at a deadline.
func NewTiming(deadline, limit time.Duration) Timing { return Timing{deadline, limit < shortLimit} }

// Clock is the time, up to leaseLooks ago, while the index is open.
func (g *Sessions) Clock() time.Duration { return time.Duration(g.hand.Load()) }

// shortLimit is below which the clock is read before each operation. Reading it can take as long as
// an operation, so where there is time the engine's hand is looked at, which is up to leaseLooks
// behind: that much earlier nothing is begun any more.
const shortLimit = 4 * leaseLooks

// ErrLate is the failure of what was not begun in time.
var ErrLate error = &Failure{Code: rpcv1.Outcome_TIMED_OUT, Message: "nothing was done: the time was over before it was begun"}

// Late reports whether the time is over. It may be true up to leaseLooks too early, and is false
// for longer than the time if the process stands still just then, or the engine's turn is late.
func (g *Sessions) Late(t Timing) bool {
	if t.short {
		return g.env.Now() >= t.Deadline
	}
	return g.Clock()+leaseLooks >= t.Deadline
}
