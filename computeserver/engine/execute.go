package engine

import (
	"errors"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/partition"
)

// Pauses between retries of requests that their owner did not accept, because the map changes or
// the owner is away.
const (
	retryFirst   = time.Millisecond
	retrySlowest = 100 * time.Millisecond
)

// Do runs operations, here or at their owners, and returns an outcome for each. Operations on the
// same key take effect in their order. Requests that another server forwarded are not forwarded
// again: they are answered with NOT_OWNER, and the sender routes them anew. Requests for keys that
// this server is taking over wait, forwarded or not.
//
// No change begins, or is handed to another server, after limit, counted from the call: its sender
// has given up by then, and may have asked another server (docs/design/serving.md, "Writes whose
// sender has given up").
//
// term is the term of the connection; 0 stands for every term.
//
// No session is held while another server is waited for, so two servers that forward to each other
// cannot exhaust each other's sessions.
func (c *Engine) Do(ops []*rpcv1.Operation, forwarded bool, limit time.Duration, term uint64) []*rpcv1.Outcome {
	return c.Begin(ops, forwarded, limit, term).Wait()
}

// Begin is Do in two steps: what belongs to other servers is handed to them, and Wait does the
// rest, waits, and returns the outcomes. One goroutine calls Wait, once and soon.
func (c *Engine) Begin(ops []*rpcv1.Operation, forwarded bool, limit time.Duration, term uint64) *Lanes {
	l := &Lanes{c: c, ops: ops, forwarded: forwarded, term: term}
	if l.todo = l.begin(limit); len(l.todo) > 0 && !l.addsMembers(l.todo) {
		l.first = l.start(c.View.Route(), l.todo)
	}
	return l
}

// Wait returns the outcomes of what Begin began, within its limit.
func (l *Lanes) Wait() []*rpcv1.Outcome {
	if len(l.todo) > 0 {
		l.runLane(l.todo, true, l.first)
	}
	if l.group != nil {
		l.group.Wait(env.Forever) // each of them ends within the limit
	}
	return l.out
}

// DoParts is Do without waiting: it returns when all is done that need not wait. Operations that
// wait, for another server or for this one to open its index or take their keys over, are parked.
// waits are their positions in ops, whose outcomes parts gets as they come; the others are in out.
// ops is read, and the outcomes of what waits are written, until parts has the last of them.
func (c *Engine) DoParts(ops []*rpcv1.Operation, forwarded bool, limit time.Duration, term uint64, parts Parts) (out []*rpcv1.Outcome, waits []int) {
	l := &Lanes{c: c, ops: ops, forwarded: forwarded, term: term, parts: parts}
	if todo := l.begin(limit); len(todo) > 0 {
		l.runLane(todo, false, nil)
	}
	return l.out, l.parked
}

// inSession runs operations in one session of this server. It returns those whose keys this server,
// or this session, does not serve yet; all of a parked lane if too many wait for a session; and all
// of a lane that must not wait if the index is not open. Nothing was done for them.
func (c *Engine) inSession(m *partition.Map, ops []*rpcv1.Operation, out []*rpcv1.Outcome, todo []int, t Timing, term uint64) (again []int) {
	most, opening := c.Sessions.maxWaiting, notOpenWaitsAtMost
	switch {
	case t.parked: // many may go on at once, and must not turn away what comes
		most = (most + 1) / 2
	case t.parks:
		opening = 0
	}
	s, err := c.Sessions.borrow(env.Remaining(c.Env, t.Deadline), opening, term, most)
	if err != nil {
		o := OutcomeOf(err)
		for _, i := range todo {
			out[i] = o
		}
		if t.parked && err == errOverloaded || t.parks && errors.Is(err, errNotOpen) {
			return todo
		}
		return nil
	}
	for _, i := range todo {
		out[i] = nil // it may have failed before
	}
	var worst error
	l := local{c: c, s: s, m: m, ops: ops, out: out, todo: todo}
	for n, i := range todo {
		if n > 0 && s.Hurries() { // all the rest, so that none overtakes another
			o := OutcomeOf(errRangeMoves)
			for _, j := range todo[n:] {
				out[j], again = o, append(again, j)
			}
			break
		}
		if n > 0 && c.Sessions.Late(t) { // all the rest, so that none overtakes another
			o := OutcomeOf(ErrLate)
			for _, j := range todo[n:] {
				out[j] = o
			}
			break
		}
		if worst = l.lookAhead(n); worst != nil {
			l.failRest(n, worst)
			break
		}
		if out[i] != nil {
			continue // the batch of its run has it
		}
		if key, all := s.servesAll(ops[i]); !all {
			out[i], again = OutcomeOf(c.notYet(m, key)), append(again, i)
			continue
		}
		if err := l.run(n); Kills(err) {
			worst = err
			l.failRest(n, worst)
			break
		}
	}
	if why := c.Sessions.Repay(s, worst); why != nil {
		for _, i := range todo {
			out[i] = Withheld(ops[i].Kind, out[i], why)
		}
	}
	return again
}

// errRangeMoves is the failure of operations that had not begun when their session had to be
// returned.
var errRangeMoves error = &Failure{Code: rpcv1.Outcome_UNAVAILABLE, Message: "a range of keys is moving; try again"}

// notYet is the failure of a request for a key that the map gives to this server and that it does
// not serve yet. Nothing was done.
func (c *Engine) notYet(m *partition.Map, key []byte) error {
	why := errOpening
	if h := c.manager.Load(); h != nil {
		c.seek()
		why = h.Why(key)
	}
	return &Failure{Code: rpcv1.Outcome_UNAVAILABLE, Message: c.At(m, key, why.Error()), waits: true}
}

func fill(out []*rpcv1.Outcome, o *rpcv1.Outcome) []*rpcv1.Outcome {
	for i := range out {
		out[i] = o
	}
	return out
}
