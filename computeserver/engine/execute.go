package engine

import (
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/partition"
)

// retries of requests whose owner did not take them: while a map changes, or an owner is away.
const (
	retryFirst   = time.Millisecond
	retrySlowest = 100 * time.Millisecond
)

// Do runs operations, here or at their owners, and returns an outcome for each. Operations on the
// same key take effect in their order. Requests that came from another server are not sent on: they
// are answered with NOT_OWNER, and the sender looks again. Requests for keys that this server is
// taking over wait, wherever they came from.
//
// No change is begun when limit is over, counted from the call, nor handed to another server: who
// asked has given up by then, and may have asked another server (docs/design/serving.md, "Writes
// that nobody waits for").
//
// term is that of the connection that they came from; 0 is every term.
//
// No session is held while another server is waited for, so that two servers that forward to each
// other cannot starve each other of sessions.
func (c *Engine) Do(ops []*rpcv1.Operation, forwarded bool, limit time.Duration, term uint64) []*rpcv1.Outcome {
	out := make([]*rpcv1.Outcome, len(ops))
	if err := c.Blocked(); err != nil {
		return fill(out, OutcomeOf(err))
	}
	if limit <= 0 {
		return fill(out, OutcomeOf(ErrLate))
	}
	t := NewTiming(env.Deadline(c.Env, limit), limit)
	todo := make([]int, 0, len(ops))
	for i, op := range ops {
		if err := c.check(op); err != nil {
			out[i] = OutcomeOf(err)
			continue
		}
		todo = append(todo, i)
	}
	for pause := retryFirst; len(todo) > 0; pause = min(2*pause, retrySlowest) {
		m := c.View.Route()
		again := c.round(m, ops, out, todo, forwarded, t, term)
		// With hardly any time left, the reason of this failure says more than "too late"; and with
		// none, as the pause may have taken longer.
		if left := env.Remaining(c.Env, t.Deadline); left <= 2*pause || c.ending() {
			break
		}
		if todo = again; len(todo) > 0 {
			c.View.AwaitOther(m, pause)
			if env.Remaining(c.Env, t.Deadline) == 0 {
				break
			}
		}
	}
	return out
}

func (c *Engine) check(op *rpcv1.Operation) error {
	if err := c.CheckKey(op.Key); err != nil {
		return err
	}
	return c.CheckValue(op.Value)
}

// round tries the operations at todo once, under one map: the same key goes the same way. It
// returns those worth another try.
func (c *Engine) round(m *partition.Map, ops []*rpcv1.Operation, out []*rpcv1.Outcome, todo []int, forwarded bool, t Timing, term uint64) (again []int) {
	var here []int
	var there []remote
	for _, i := range todo {
		place, owner := c.View.Place(m, ops[i].Key)
		switch {
		case place == ownership.Here:
			here = append(here, i)
		case place == ownership.Unknown:
			out[i] = OutcomeOf(c.unowned())
			if !forwarded {
				again = append(again, i)
			}
		case forwarded:
			out[i] = &rpcv1.Outcome{Code: rpcv1.Outcome_NOT_OWNER, Message: c.At(m, ops[i].Key, "this server is not in charge of them")}
		default:
			there = addRemote(there, owner, i)
		}
	}
	if len(there) == 0 {
		return append(again, c.here(m, ops, out, here, t, term)...)
	}
	if err := c.Sessions.inTerm(term); err != nil {
		for _, i := range todo {
			out[i] = OutcomeOf(err)
		}
		return nil
	}
	group := env.NewWaitGroup(c.Env)
	for g := range there {
		group.Go("forward", func() { c.there(m, &there[g], ops, out, t) })
	}
	if len(here) > 0 {
		again = append(again, c.here(m, ops, out, here, t, term)...)
	}
	group.Wait(env.Forever) // each of them keeps to the limit
	for _, r := range there {
		again = append(again, r.again...)
		for _, i := range r.todo {
			c.failed(r.owner, ops[i].Key, false, out[i].Code)
		}
	}
	return again
}

// here runs operations in a session of this server. It returns those whose keys this server does
// not serve yet, or not for this session: nothing was done of them.
func (c *Engine) here(m *partition.Map, ops []*rpcv1.Operation, out []*rpcv1.Outcome, todo []int, t Timing, term uint64) (again []int) {
	s, err := c.Sessions.Borrow(env.Remaining(c.Env, t.Deadline), term)
	if err != nil {
		o := OutcomeOf(err)
		for _, i := range todo {
			out[i] = o
		}
		return nil
	}
	var worst error
	for n, i := range todo {
		if n > 0 && s.Hurries() { // all the rest, so that nothing overtakes anything
			o := OutcomeOf(errRangeMoves)
			for _, j := range todo[n:] {
				out[j], again = o, append(again, j)
			}
			break
		}
		if n > 0 && c.Sessions.Late(t) { // all the rest, so that nothing overtakes anything
			o := OutcomeOf(ErrLate)
			for _, j := range todo[n:] {
				out[j] = o
			}
			break
		}
		if !s.Serves(ops[i].Key) {
			out[i], again = OutcomeOf(c.notYet(m, ops[i].Key)), append(again, i)
			continue
		}
		var value []byte
		value, err = apply(s, ops[i], nil)
		out[i] = OutcomeOf(err)
		out[i].Value = value
		if out[i].Message != "" {
			out[i].Message = c.At(m, ops[i].Key, out[i].Message)
		}
		if Kills(err) {
			// The session is dead. What follows was not tried, and must not overtake what failed if
			// it is tried again.
			worst = err
			for _, j := range todo[n+1:] {
				out[j] = &rpcv1.Outcome{Code: rpcv1.Outcome_UNAVAILABLE, Message: "an operation before this one failed: " + err.Error()}
			}
			break
		}
	}
	if lapsed := c.Sessions.Repay(s, worst); lapsed != nil {
		for _, i := range todo {
			out[i] = Withheld(ops[i].Kind, out[i], lapsed)
		}
	}
	return again
}

// errRangeMoves is the failure of what was not begun since its session had to be given back.
var errRangeMoves error = &Failure{Code: rpcv1.Outcome_UNAVAILABLE, Message: "a range of keys is moving; try again"}

// notYet is the failure of a request for a key that the map gives to this server and that it does
// not serve yet: nothing was done.
func (c *Engine) notYet(m *partition.Map, key []byte) error {
	why := errOpening
	if h := c.manager.Load(); h != nil {
		c.seek()
		why = h.Why(key)
	}
	return &Failure{Code: rpcv1.Outcome_UNAVAILABLE, Message: c.At(m, key, why.Error()), waits: true}
}

// remote is the operations of one round that belong to one other server, in order.
type remote struct {
	owner uint32
	todo  []int
	again []int // of them, those that were not done and are worth another try
}

func addRemote(groups []remote, owner uint32, i int) []remote {
	for g := range groups {
		if groups[g].owner == owner {
			groups[g].todo = append(groups[g].todo, i)
			return groups
		}
	}
	return append(groups, remote{owner: owner, todo: []int{i}})
}

// MaxForward is how many operations travel to another server in one call.
const MaxForward = 1024

// there runs operations at their owner.
func (c *Engine) there(m *partition.Map, r *remote, ops []*rpcv1.Operation, out []*rpcv1.Outcome, t Timing) {
	to, _ := m.Server(r.owner)
	for rest := r.todo; len(rest) > 0; {
		part := rest[:min(len(rest), MaxForward)]
		rest = rest[len(part):]
		send := make([]*rpcv1.Operation, len(part))
		for n, i := range part {
			send[n] = ops[i]
		}
		outcomes, err := c.Peers.Do(to, send, env.Remaining(c.Env, t.Deadline))
		c.Count.Forwarded.Add(uint64(len(part)))
		for n, i := range part {
			if err != nil {
				out[i] = OutcomeOf(err)
				out[i].Message = c.At(m, ops[i].Key, out[i].Message)
			} else {
				out[i] = outcomes[n]
			}
		}
		if !r.sift(ops, out, part, rest) {
			return
		}
	}
}

func fill(out []*rpcv1.Outcome, o *rpcv1.Outcome) []*rpcv1.Outcome {
	for i := range out {
		out[i] = o
	}
	return out
}
