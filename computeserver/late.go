package computeserver

import (
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// timing is the time that operations which came together have.
type timing struct {
	deadline time.Duration // of the environment's clock
	short    bool          // it is too short for the engine's hand
}

// shortLimit is below which the clock is read before each operation. Reading it can take as long as
// an operation, so where there is time the engine's hand is looked at, which is up to leaseLooks
// behind: that much earlier nothing is begun any more.
const shortLimit = 4 * leaseLooks

// errLate is the failure of what was not begun in time.
var errLate error = &failure{code: rpcv1.Outcome_TIMED_OUT, message: "nothing was done: the time was over before it was begun"}

// late reports whether the time is over. It may be true up to leaseLooks too early, and is false
// for longer than the time if the process stands still just then, or the engine's turn is late.
func (g *engine) late(t timing) bool {
	if t.short {
		return g.env.Now() >= t.deadline
	}
	return time.Duration(g.hand.Load())+leaseLooks >= t.deadline
}
