package resp

import (
	"sync/atomic"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/engine"
)

// budget bounds what the buffers of all RESP connections hold together. Safe for concurrent use.
type budget struct {
	limit int64
	used  atomic.Int64 // the sum of what the accounts have taken
}

// tight reports whether more than half is used, so that buffers are better given back than kept for
// the next request.
func (b *budget) tight() bool { return b.used.Load() > b.limit/2 }

// holding is something for which a connection holds memory.
type holding int

const (
	holdIn       holding = iota // bytes read
	holdArgs                    // the arguments of a command of many
	holdOut                     // replies
	holdForwards                // operations set aside, and room for their outcomes
	// operations of a command on several keys, and room for their outcomes
	holdMany
	holdLists // what is remembered of the replies of a pipeline
	holdings
)

// Sizes of what is counted, with room for what the allocator rounds up.
const (
	argBytes         = 24
	provisionalBytes = 48
	forwardBytes     = 48  // a pointer and a hole
	opBytes          = 320 // an operation and its outcome, without key and value
)

// Bounds of an account.
const (
	accountFree = 32 << 10 // bytes that every connection holds without asking
	accountStep = 16 << 10 // the budget is asked for as many at a time
)

// account is what one connection holds of the budget. It belongs to the goroutine of the
// connection.
//
// A holding is always set to what there is, never added to or subtracted from. So nothing that a
// command did, and no way in which it ended, leaves a difference behind: whatever was charged for a
// buffer is given back when that buffer is set to another size, and all of it by close.
type account struct {
	of    *budget
	bytes [holdings]int64
	sum   int64 // of bytes
	taken int64 // of the budget, for sum
}

// set notes that a holding has n bytes. It returns errBudget, and changes nothing, if the budget
// has not as many more; it never fails for fewer bytes than there were. It is called before the
// memory is allocated.
func (a *account) set(h holding, n int) error {
	sum := a.sum + int64(n) - a.bytes[h]
	if taken := takenFor(sum); taken > a.taken {
		more := taken - a.taken
		for {
			used := a.of.used.Load()
			if used+more > a.of.limit {
				return errBudget
			}
			if a.of.used.CompareAndSwap(used, used+more) {
				break
			}
		}
		a.taken = taken
	} else if taken < a.taken {
		a.of.used.Add(taken - a.taken)
		a.taken = taken
	}
	a.bytes[h], a.sum = int64(n), sum
	return nil
}

// force is set for what is there already or has to be: it takes from the budget what that does not
// have.
func (a *account) force(h holding, n int) {
	a.sum += int64(n) - a.bytes[h]
	a.bytes[h] = int64(n)
	if taken := takenFor(a.sum); taken != a.taken {
		a.of.used.Add(taken - a.taken)
		a.taken = taken
	}
}

// close gives everything back.
func (a *account) close() {
	for h := range holdings {
		a.force(h, 0)
	}
}

// takenFor is what is asked of the budget for so many bytes.
func takenFor(sum int64) int64 {
	return (max(sum-accountFree, 0) + accountStep - 1) / accountStep * accountStep
}

var errBudget error = &engine.Failure{Code: rpcv1.Outcome_UNAVAILABLE, Message: "the buffers of all connections are full; send less at once, or ask for less with LIMIT"}
