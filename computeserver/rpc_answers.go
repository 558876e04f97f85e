//env:real a gRPC server: its workers and lanes share a batch

package computeserver

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/internal/count"
	"github.com/dmindex/dmindex/pkg/keyrange"
)

// answers is a batch whose outcomes come in parts: first those of what need not wait, from its
// worker, then the others, from the lanes that are parked (engine.Parts). What is there is sent at
// once, if the sender takes answers in parts. To one that does not, one answer is sent when all is
// there; its batch holds no worker meanwhile, but counts as unanswered.
//
// Each answer has an outcome for every operation that had none in an answer before, in their order:
// LATER for those that still wait. So both sides know which operation an outcome belongs to. mu is
// held while an answer is sent, since the order of a batch's answers counts.
//
// A batch has at most one answer for each of its operations, and one more.
type answers struct {
	received
	w     *doStream
	began time.Duration

	at []int // where the operations that run stand in the batch; nil: all run

	mu       sync.Mutex
	outcomes []*rpcv1.Outcome // nil: not there yet; sentOutcome: it was sent
	open     int              // operations whose outcome was not sent
	begun    bool             // the worker is done with it
	left     bool             // it counts as unanswered no more
	charged  bool             // its bytes, and its values, are among those of what is parked
}

var sentOutcome, laterOutcome = &rpcv1.Outcome{}, &rpcv1.Outcome{Code: rpcv1.Outcome_LATER}

// parked is what waits of a stream.
type parked struct {
	mu    sync.Mutex
	lanes int
	bytes int64
	// at most, of batches that are answered at once: they wait with the rest
	values int64
}

// allowed returns the operations that the user may do. The others are refused.
func (a *answers) allowed() []*rpcv1.Operation {
	all := a.req.Operations
	inner := a.req.Forwarded && !a.w.caller.isServer() && slices.ContainsFunc(all, a.w.r.core.Inner)
	if !inner && (a.user == nil || mayDoAll(a.user, all)) {
		return all
	}
	var ops []*rpcv1.Operation
	a.outcomes = make([]*rpcv1.Outcome, len(all))
	for i, op := range all {
		if inner && a.w.r.core.Inner(op) { // a program that says it is a server
			a.outcomes[i] = engine.OutcomeOf(engine.ErrInner)
			continue
		}
		if a.user == nil || mayDo(a.user, op) {
			ops, a.at = append(ops, op), append(a.at, i)
			continue
		}
		a.outcomes[i] = &rpcv1.Outcome{
			Code:    a.w.refusal,
			Message: fmt.Sprintf("the user %s may not do this to the key %s", a.user.Name(), keyrange.Quote(op.GetKey())),
		}
	}
	return ops
}

// position is where an operation that runs stands in the batch.
func (a *answers) position(i int) int {
	if a.at == nil {
		return i
	}
	return a.at[i]
}

// first takes what the worker has: the outcomes of what ran, but for those that wait.
func (a *answers) first(out []*rpcv1.Outcome, waits []int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(waits) == 0 && a.outcomes == nil { // the usual case
		a.outcomes = a.w.r.visibleTo(a.user, out)
	} else {
		a.make()
		for i := range out {
			if !slices.Contains(waits, i) {
				a.outcomes[a.position(i)] = a.w.r.shownOutcome(a.user, out[i])
				out[i] = nil // the lanes keep out
			}
		}
	}
	a.begun = true
	a.send()
}

// make makes room for outcomes. Called under mu.
func (a *answers) make() {
	if a.outcomes == nil {
		a.outcomes = make([]*rpcv1.Outcome, len(a.req.Operations))
	}
}

// Answered implements engine.Parts.
func (a *answers) Answered(at []int, out []*rpcv1.Outcome) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.make()
	news := false
	for _, i := range at {
		if p := a.position(i); a.outcomes[p] == nil {
			a.outcomes[p], news = a.w.r.shownOutcome(a.user, out[i]), true
		}
	}
	if news && a.begun {
		a.send()
	}
}

// send sends what is there and was not sent. Called under mu.
func (a *answers) send() {
	var t count.Tally
	reply, missing := a.outcomes, 0
	if a.open < len(a.outcomes) || slices.Contains(a.outcomes, nil) {
		reply = make([]*rpcv1.Outcome, 0, a.open)
		for _, o := range a.outcomes {
			switch o {
			case sentOutcome:
			case nil:
				missing++
				reply = append(reply, laterOutcome)
			default:
				reply = append(reply, o)
			}
		}
	}
	if missing > 0 && !a.req.InParts {
		return
	}
	for i, o := range a.outcomes {
		if o == nil || o == sentOutcome {
			continue
		}
		if t.Slot = 0; a.req.Operations[i].Kind.Known() {
			t.Slot = int(a.req.Operations[i].Kind)
		}
		t.Count(engine.KindOf(o))
	}
	if missing > 0 { // what is sent is kept no longer
		for i, o := range a.outcomes {
			if o != nil {
				a.outcomes[i] = sentOutcome
			}
		}
	}
	a.open = missing
	a.w.send(a, reply, &t)
	a.leave()
}

// leave ends that the batch counts as unanswered, and with its last outcome, that it runs. Called
// under mu, or by the worker alone.
func (a *answers) leave() {
	w := a.w
	if !a.left {
		a.left = true
		w.r.pending.Add(-1)
		w.bytes.Add(-a.size)
		select {
		case w.room <- struct{}{}:
		default: // it is told already
		}
	}
	if a.open > 0 && a.begun {
		return
	}
	a.end()
	if a.charged {
		w.parked.mu.Lock()
		w.parked.bytes -= a.size
		w.parked.values -= a.values()
		w.parked.mu.Unlock()
	}
}

// Park implements engine.Parts.
func (a *answers) Park() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := &a.w.parked
	p.mu.Lock()
	defer p.mu.Unlock()
	values := a.values()
	if p.lanes >= a.w.r.mostParked || !a.charged && p.bytes > 0 && (p.bytes+a.size > rpcParkedBytes || p.values+values > rpcParkedValues) {
		return false
	}
	p.lanes++
	if !a.charged {
		a.charged = true
		p.bytes += a.size
		p.values += values
	}
	a.w.workers.Add(1) // the caller is one of them
	return true
}

// values is how many bytes the values may have that wait with the last outcome of the batch.
func (a *answers) values() int64 {
	if a.req.InParts {
		return 0
	}
	return int64(rpcv1.Weight(a.req.Operations) * a.w.r.core.Index.MaxValueBytes)
}

// Leave implements engine.Parts.
func (a *answers) Leave() {
	p := &a.w.parked
	p.mu.Lock()
	p.lanes--
	p.mu.Unlock()
	a.w.workers.Done()
}

// Gone implements engine.Parts.
func (a *answers) Gone() bool { return a.w.ends.Load() || a.w.stream.Context().Err() != nil }

// Context implements engine.Parts.
func (a *answers) Context() context.Context { return a.w.forwards }
