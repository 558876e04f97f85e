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
	outcome *rpcv1.Outcome
	server  partition.Server
	err     error // of the context or the connection, instead of an outcome
	tries   int
}

// safe says whether the operation may be sent again although it may have been done.
func (t *task) safe() bool {
	return t.op.Kind == rpcv1.Operation_LOOKUP || t.op.Kind == rpcv1.Operation_UPSERT
}

// again says whether the last try is worth another one.
func (t *task) again() bool {
	switch t.outcome.GetCode() {
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
	e := &Error{Op: opNames[t.op.Kind], Key: t.op.Key, Err: t.err}
	if t.outcome != nil {
		e.Err, e.Message = cause(t.outcome.Code), t.outcome.Message
	}
	if e.Err == ErrNotFound || e.Err == ErrExists { // an answer, not a fault of somebody
		return e
	}
	if t.server.RPC != "" {
		e.at(c.Map().Range(t.op.Key), t.server)
	}
	return e
}

// run brings all tasks to an outcome, until ctx ends. Tasks on the same key keep their order.
func (c *Client) run(ctx context.Context, tasks []*task) {
	ctx, stop := withLimit(ctx, c.o.Limit)
	defer stop()
	pause := retryFirst
	for todo := tasks; ; pause = min(2*pause, retrySlowest) {
		v := c.view.Load()
		c.round(ctx, v, todo)
		var left []*task
		for _, t := range todo {
			if t.err == nil && t.again() {
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
					t.err, t.outcome = ErrClosed, nil
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

// maxCall is how many operations go to a server in one call: few enough that the server runs several calls side by side.
const maxCall = 64

var seed = maphash.MakeSeed()

// server picks where a task goes: to the owner of its key; where every server will do, always to the same for one key, unless that
// one failed lately; and elsewhere after a failed try, since any server forwards to the owner.
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
		t.server, t.outcome = s, nil
		t.tries++
	}
	l, err := c.links.to(s.RPC, "")
	if err != nil {
		setAll(tasks, nil, err)
		return
	}
	attempt, stop := context.WithTimeoutCause(ctx, c.o.Attempt+attemptSlack, errNoAnswer)
	defer stop()
	reply, err := l.stream.Do(attempt, ops)
	if err == nil {
		for i, t := range tasks {
			t.outcome = reply.Outcomes[i]
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
		setAll(tasks, nil, wordRPC(l.address, errors.Unwrap(err)))
	case st.Code() == codes.InvalidArgument:
		setAll(tasks, &rpcv1.Outcome{Code: rpcv1.Outcome_INVALID, Message: st.Message()}, nil)
	case errors.As(err, &broken) && broken.Sent:
		setAll(tasks, &rpcv1.Outcome{Code: rpcv1.Outcome_UNKNOWN, Message: err.Error()}, nil)
	default:
		setAll(tasks, &rpcv1.Outcome{Code: rpcv1.Outcome_UNAVAILABLE, Message: err.Error()}, nil)
	}
}

// attemptSlack is how much longer than its limit a server's answer is waited for.
const attemptSlack = time.Second

var errNoAnswer = errors.New("the server did not answer in time")

func setAll(tasks []*task, o *rpcv1.Outcome, err error) {
	for _, t := range tasks {
		t.outcome, t.err = o, err
	}
}
