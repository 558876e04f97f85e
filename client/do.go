package client

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dmindex/dmindex/api/rpc/dostream"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/partition"
)

// task is one operation on its way.
type task struct {
	op      *rpcv1.Operation
	outcome *rpcv1.Outcome // of the last attempt
	server  partition.Server
	// instead of an outcome: ErrClosed, or one that wraps ErrUnauthorized; the attempt did nothing
	err   error
	tries int
	keep  bool // an Insert to which it is all the same who stored a value for the key

	// of the first attempt that may have made the change, or may still make it; nil if none
	doubt *rpcv1.Outcome
	over  error // of the context, if the task ended with it
}

// changes reports whether the operation changes anything.
func (t *task) changes() bool { return t.op.Kind != rpcv1.Operation_LOOKUP }

// safe reports whether the operation may be sent again although it may have been done.
func (t *task) safe() bool {
	return t.op.Kind == rpcv1.Operation_LOOKUP || t.op.Kind == rpcv1.Operation_UPSERT || t.keep
}

// ended notes how an attempt ended.
func (t *task) ended(o *rpcv1.Outcome, err error) {
	t.outcome, t.err = o, err
	if err == nil && t.doubt == nil && cause(o.Code, t.changes()) == ErrUnknown {
		t.doubt = o
	}
}

// answered reports whether the last attempt has an answer of the index. If it has, doubts about
// earlier ones are settled: only a Put is sent again when it may have been done, or an Insert with
// keep, and it has done what it should.
func (t *task) answered() bool {
	if t.err != nil {
		return false
	}
	switch t.outcome.Code {
	case rpcv1.Outcome_OK, rpcv1.Outcome_NOT_FOUND, rpcv1.Outcome_ALREADY_EXISTS:
		return true
	}
	return false
}

// again reports whether the last attempt is worth another one.
func (t *task) again() bool {
	if t.err != nil {
		return false
	}
	switch t.outcome.Code {
	case rpcv1.Outcome_NOT_OWNER, rpcv1.Outcome_UNAVAILABLE, rpcv1.Outcome_TIMED_OUT:
		return true
	case rpcv1.Outcome_UNKNOWN:
		return t.safe()
	}
	return false
}

// failure is the task's error, nil if it was done.
func (c *Client) failure(t *task) error {
	if t.err == nil && t.outcome.Code == rpcv1.Outcome_OK {
		return nil
	}
	e := &Error{Op: opNames[t.op.Kind], Key: t.op.Key}
	switch {
	case t.err != nil:
		e.Message, e.Err = sentinel(t.err)
	default:
		e.Err, e.Message = cause(t.outcome.Code, t.changes()), t.outcome.Message
	}
	if t.answered() { // not a fault of somebody
		return e
	}
	if t.doubt != nil { // what a later attempt met says nothing of an earlier one
		last := e.Message
		if e.Message = t.doubt.Message; t.outcome != t.doubt {
			e.Message += "; then: " + e.Err.Error()
			if last != "" {
				e.Message += ": " + last
			}
		}
		e.Err = ErrUnknown
	}
	if e.Err == ErrUnavailable || e.Err == ErrUnknown {
		e.Cause = t.over
	}
	if t.server.RPC != "" {
		e.at(c.Map().Range(t.op.Key), t.server)
	}
	return e
}

// sentinel is which error of this package err wraps, and what it says beyond that.
func sentinel(err error) (message string, which error) {
	for _, which = range []error{ErrClosed, ErrUnauthorized} {
		if err == which {
			return "", which
		}
		if errors.Is(err, which) {
			return err.Error(), which
		}
	}
	return err.Error(), ErrUnavailable
}

// run brings all tasks to an outcome, until ctx ends. Tasks of the same key take effect in any
// order.
func (c *Client) run(ctx context.Context, tasks []*task) {
	ctx, stop := withLimit(ctx, c.o.Limit)
	defer stop()
	c.rounds(ctx, tasks)
	if over := ctx.Err(); over != nil {
		for _, t := range tasks {
			t.over = over
		}
	}
}

func (c *Client) rounds(ctx context.Context, tasks []*task) {
	pause := retryFirst
	for todo := tasks; ; pause = min(2*pause, retrySlowest) {
		v := c.view.Load()
		c.round(ctx, v, todo)
		var left []*task
		for _, t := range todo {
			if t.again() {
				left = append(left, t)
			}
		}
		if todo = left; len(todo) == 0 {
			return
		}
		c.heardOf(0)
		if !c.awaitOther(ctx, v, pause) {
			if c.ctx.Err() != nil {
				for _, t := range todo {
					t.ended(nil, ErrClosed)
				}
			}
			return
		}
	}
}

// round sends each task once.
func (c *Client) round(ctx context.Context, v *view, todo []*task) {
	if len(todo) == 1 { // the usual case, without a goroutine
		c.send(ctx, c.server(v, todo[0]), todo)
		return
	}
	groups := map[uint32][]*task{}
	var order []partition.Server
	for _, t := range todo {
		s := c.server(v, t)
		if groups[s.ID] == nil {
			order = append(order, s)
		}
		groups[s.ID] = append(groups[s.ID], t)
	}
	var all sync.WaitGroup
	for _, s := range order {
		for rest := groups[s.ID]; len(rest) > 0; {
			part := rest[:min(len(rest), maxCall)]
			rest = rest[len(part):]
			all.Go(func() { c.send(ctx, s, part) })
		}
	}
	all.Wait()
}

// maxCall is how many operations go to a server in one call: few enough that the server runs
// several calls side by side.
const maxCall = 64

var seed = maphash.MakeSeed()

// server picks where a task goes: to the owner of its key; where every server will do, always to
// the same for one key, unless that one failed lately; and elsewhere after a failed try, since any
// server forwards to the owner.
func (c *Client) server(v *view, t *task) partition.Server {
	n := len(v.m.Servers)
	at := 0
	if v.any {
		at = int(maphash.Bytes(seed, t.op.Key) % uint64(n))
	} else {
		owner := v.m.Owner(t.op.Key)
		for v.m.Servers[at].ID != owner {
			at++
		}
	}
	for i := range n {
		s := v.m.Servers[(at+t.tries+i)%n]
		if l, err := c.links.to(s.RPC, ""); err == nil && !l.avoided() {
			return s
		}
	}
	return v.m.Servers[(at+t.tries)%n]
}

// send runs tasks at one server.
func (c *Client) send(ctx context.Context, s partition.Server, tasks []*task) {
	ops := make([]*rpcv1.Operation, len(tasks))
	for i, t := range tasks {
		ops[i] = t.op
		t.server = s
		t.tries++
	}
	if err := ctx.Err(); err != nil {
		endAll(tasks, &rpcv1.Outcome{Code: rpcv1.Outcome_UNAVAILABLE, Message: "the time was over before the operation was sent"}, nil)
		return
	}
	l, err := c.links.to(s.RPC, "")
	switch {
	case errors.Is(err, ErrClosed):
		endAll(tasks, nil, ErrClosed)
		return
	case err != nil:
		endAll(tasks, &rpcv1.Outcome{Code: rpcv1.Outcome_UNAVAILABLE, Message: err.Error()}, nil)
		return
	}
	attempt, stop := context.WithTimeoutCause(ctx, c.o.Attempt+c.slack, errNoAnswer)
	defer stop()
	reply, err := l.stream.Do(attempt, ops)
	if err == nil {
		for i, t := range tasks {
			t.ended(reply.Outcomes[i], nil)
		}
		if code := reply.Outcomes[0].Code; code == rpcv1.Outcome_UNAVAILABLE {
			l.failed()
		}
		c.heardOf(reply.Generation)
		return
	}
	if ctx.Err() == nil || c.ctx.Err() != nil {
		l.failed()
	}
	var broken *dostream.Error
	switch st, _ := status.FromError(errors.Unwrap(err)); {
	case st.Code() == codes.Unauthenticated || st.Code() == codes.PermissionDenied:
		// of the stream: the server took nothing of it
		endAll(tasks, nil, wordRPC(l.address, errors.Unwrap(err)))
	case st.Code() == codes.InvalidArgument:
		// the server took nothing that it did not answer (rpc.Compute.Do)
		endAll(tasks, &rpcv1.Outcome{Code: rpcv1.Outcome_INVALID, Message: st.Message()}, nil)
	case errors.As(err, &broken) && broken.Sent:
		endAll(tasks, &rpcv1.Outcome{Code: rpcv1.Outcome_UNKNOWN, Message: err.Error()}, nil)
	default:
		endAll(tasks, &rpcv1.Outcome{Code: rpcv1.Outcome_UNAVAILABLE, Message: err.Error()}, nil)
	}
}

// attemptSlack is how much longer than its limit a server's answer is waited for.
const attemptSlack = time.Second

var errNoAnswer = errors.New("the server did not answer in time")

func endAll(tasks []*task, o *rpcv1.Outcome, err error) {
	for _, t := range tasks {
		t.ended(o, err)
	}
}
