package resp

import (
	"sync/atomic"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/pkg/env"
)

// budget bounds what the buffers of all RESP connections hold together. Safe for concurrent use.
//
// The connections of one user may take up to shareFree times what then stays free. So whatever one
// user does, there is room for the others: one that takes all it may leaves a quarter of what was
// free. Nothing is set aside for users who are not there.
type budget struct {
	limit int64
	used  atomic.Int64 // the sum of what the accounts have taken

	mu     env.Mutex
	shares map[string]*share // of the users who have connections
}

// shareFree is how many times what stays free the connections of one user may hold.
const shareFree = 3

// share is what the connections of one user hold of the budget.
type share struct {
	name  string
	used  atomic.Int64
	conns int // under budget.mu
}

// isTight reports whether more than half is used, so that buffers are better given back than kept
// for the next request.
func (b *budget) isTight() bool { return b.used.Load() > b.limit/2 }

// holding is something for which a connection holds memory.
type holding int

const (
	holdIn       holding = iota // bytes read
	holdArgs                    // the arguments of a command of many
	holdOut                     // replies
	holdForwards                // operations set aside, and room for their outcomes
	// operations of a command on several keys, and room for their outcomes
	holdMany
	holdQueue // commands between MULTI and EXEC, and keys that are watched
	holdSubscriptions
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
	share *share // nil before the client has authenticated, and then counts with the budget only
	bytes [holdings]int64
	sum   int64 // of bytes
	taken int64 // of the budget, for sum
}

// belong makes the account one of the user of this name; of nobody, if it is empty.
func (a *account) belong(name string) {
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	if old := a.share; old != nil {
		old.used.Add(-a.taken)
		if old.conns--; old.conns == 0 {
			delete(a.of.shares, old.name)
		}
	}
	if a.share = nil; name == "" {
		return
	}
	if a.share = a.of.shares[name]; a.share == nil {
		if a.of.shares == nil {
			a.of.shares = map[string]*share{}
		}
		a.share = &share{name: name}
		a.of.shares[name] = a.share
	}
	a.share.conns++
	a.share.used.Add(a.taken)
}

// set notes that a holding has n bytes. It returns errBudget, and changes nothing, if the budget,
// or the user's share, has not as many more; it never fails for fewer bytes than there were. It is
// called before the memory is allocated.
func (a *account) set(h holding, n int) error {
	sum := a.sum + int64(n) - a.bytes[h]
	if more := takenFor(sum) - a.taken; more > 0 && !a.tryTake(more) {
		return errBudget
	}
	a.force(h, n)
	return nil
}

// tryTake takes more of the budget, if that and the user's share have as much.
func (a *account) tryTake(more int64) bool {
	mine := int64(0)
	if a.share != nil { // before the look, so that no two connections of a user take the same room
		mine = a.share.used.Add(more)
	}
	for {
		used := a.of.used.Load()
		if free := a.of.limit - used - more; free < 0 || mine > shareFree*free {
			if a.share != nil {
				a.share.used.Add(-more)
			}
			return false
		}
		if a.of.used.CompareAndSwap(used, used+more) {
			a.taken += more
			return true
		}
	}
}

// force is set for what is there already or has to be: it takes from the budget what that does not
// have.
func (a *account) force(h holding, n int) {
	a.sum += int64(n) - a.bytes[h]
	a.bytes[h] = int64(n)
	if taken := takenFor(a.sum); taken != a.taken {
		a.of.used.Add(taken - a.taken)
		if a.share != nil {
			a.share.used.Add(taken - a.taken)
		}
		a.taken = taken
	}
}

// giveBackAll gives everything back.
func (a *account) giveBackAll() {
	for h := range holdings {
		a.force(h, 0)
	}
}

// close gives everything back and leaves the user's share.
func (a *account) close() {
	a.giveBackAll()
	a.belong("")
}

// takenFor is what is asked of the budget for so many bytes.
func takenFor(sum int64) int64 {
	return (max(sum-accountFree, 0) + accountStep - 1) / accountStep * accountStep
}

var errBudget error = &engine.Failure{Code: rpcv1.Outcome_UNAVAILABLE, Message: "the buffers of all connections, or of those of this user, are full; send less at once, or ask for less with LIMIT"}
