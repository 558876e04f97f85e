package client

import (
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dmindex/dmindex/api/rpc/dostream"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// run brings all tasks to an outcome, until ctx ends. Tasks of the same key take effect in any
// order.
func (c *Client) run(ctx context.Context, tasks []*task) {
	c.runBy(ctx, c.view.Load(), tasks, maxCall)
}

// runBy is run with so many tasks in one call at most, for a call that began under a view.
func (c *Client) runBy(ctx context.Context, began *view, tasks []*task, most int) {
	ctx, stop := withLimit(ctx, c.o.Limit)
	defer stop()
	c.rounds(ctx, began, tasks, most)
	if over := ctx.Err(); over != nil {
		for _, t := range tasks {
			t.over = over
		}
	}
}

func (c *Client) rounds(ctx context.Context, began *view, tasks []*task, most int) {
	pause := retryFirst
	for todo := tasks; ; pause = min(2*pause, retrySlowest) {
		v := c.view.Load()
		if err := v.incarnationError(began); err != nil {
			endAll(todo, nil, err)
			return
		}
		c.round(ctx, v, todo, most)
		var left []*task
		for _, t := range todo {
			if t.worthRetrying() {
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
					t.noteAttempt(nil, ErrClosed)
				}
			}
			return
		}
	}
}

// round sends each task once, so many in one call at most.
func (c *Client) round(ctx context.Context, v *view, todo []*task, most int) {
	if len(todo) == 1 { // the usual case, without a goroutine
		c.assignServer(v, nil, todo[0])
		c.send(ctx, v, todo)
		return
	}
	usable, ends := make([]usability, len(v.m.Servers)), make([]int, len(v.m.Servers))
	for _, t := range todo {
		c.assignServer(v, usable, t)
		ends[t.at]++
	}
	for i := 1; i < len(ends); i++ {
		ends[i] += ends[i-1]
	}
	sorted, starts := make([]*task, len(todo)), slices.Clone(ends)
	for _, t := range slices.Backward(todo) {
		starts[t.at]--
		sorted[starts[t.at]] = t
	}
	var all sync.WaitGroup
	for i, start := range starts {
		for rest := sorted[start:ends[i]]; len(rest) > 0; {
			part := rest[:min(len(rest), most)]
			rest = rest[len(part):]
			all.Go(func() { c.send(ctx, v, part) })
		}
	}
	all.Wait()
}

// maxCall is how many operations go to a server in one call: few enough that the server runs
// several calls side by side.
const maxCall = 64

var seed = maphash.MakeSeed()

// usability is whether a server is worth a try, as far as that was looked at in this round.
type usability uint8

const (
	notSeen usability = iota
	isUsable
	isAvoided
)

// assignServer picks where a task goes: to the owner of its key; where every server will do, always
// to the same for one key, unless that one failed lately; and elsewhere after a failed try, since
// any server forwards to the owner. usable remembers servers from task to task; nil = there is one
// task.
func (c *Client) assignServer(v *view, usable []usability, t *task) {
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
	at += t.tries
	for i := range n {
		if c.usable(v, usable, (at+i)%n) {
			at += i
			break
		}
	}
	t.at = at % n
	t.server = &v.m.Servers[t.at]
}

func (c *Client) usable(v *view, seen []usability, i int) bool {
	if seen != nil && seen[i] != notSeen {
		return seen[i] == isUsable
	}
	l, err := c.links.linkTo(v.m.Servers[i].RPC, "")
	is := err == nil && !l.avoided()
	switch {
	case seen == nil:
	case is:
		seen[i] = isUsable
	default:
		seen[i] = isAvoided
	}
	return is
}

// send runs tasks at the server that they were placed at by v, in the index that v is of.
func (c *Client) send(ctx context.Context, v *view, tasks []*task) {
	s := tasks[0].server
	ops := make([]*rpcv1.Operation, len(tasks))
	for i, t := range tasks {
		ops[i] = &t.op
		t.tries++
	}
	if err := ctx.Err(); err != nil {
		endAll(tasks, &rpcv1.Outcome{Code: rpcv1.Outcome_UNAVAILABLE, Message: "the time was over before the operation was sent"}, nil)
		return
	}
	var stream *dostream.Stream
	l, err := c.links.linkTo(s.RPC, "")
	if err == nil {
		stream, err = l.streamFor(v.m.Index)
	}
	switch {
	case errors.Is(err, ErrClosed), errors.Is(err, ErrDataLost):
		endAll(tasks, nil, err)
		return
	case err != nil:
		endAll(tasks, &rpcv1.Outcome{Code: rpcv1.Outcome_UNAVAILABLE, Message: err.Error()}, nil)
		return
	}
	attempt, stop := context.WithTimeoutCause(ctx, c.o.Attempt+c.slack, errNoAnswer)
	defer stop()
	reply, err := stream.Do(attempt, ops)
	if err == nil {
		c.reach.answered()
		for i, t := range tasks {
			t.noteAttempt(reply.Outcomes[i], nil)
		}
		switch reply.Outcomes[0].Code {
		case rpcv1.Outcome_UNAVAILABLE:
			l.failed()
		case rpcv1.Outcome_DATA_LOST: // it may have been made anew
			c.heardOf(0)
		}
		c.heardOf(reply.Generation)
		return
	}
	if ctx.Err() == nil || c.ctx.Err() != nil {
		l.failed()
	}
	var broken *dostream.Error
	if errors.As(err, &broken) && !broken.Sent {
		c.reach.failed(l, broken.Err)
	}
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
		t.noteAttempt(o, err)
	}
}
