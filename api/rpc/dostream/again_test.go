package dostream

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// endAgain ends a stream as a server that goes on with the caller on another one.
func endAgain(stream grpc.ServerStream) error {
	stream.SetTrailer(metadata.Pairs(TrailerAgain, "1"))
	return status.Error(codes.Aborted, "the end")
}

// TestAgain: what a stream did not answer goes on by the next one, once and in its order, if the
// server says so.
func TestAgain(t *testing.T) {
	f := func(ends int, want error) {
		t.Helper()
		streams := make(chan []string, 3)
		s := serve(t, func(stream grpc.BidiStreamingServer[rpcv1.DoRequest, rpcv1.DoReply]) error {
			var keys []string
			defer func() { streams <- keys }()
			for {
				req, err := stream.Recv()
				if err != nil {
					return nil
				}
				for _, op := range req.Operations {
					keys = append(keys, string(op.Key))
				}
				if len(keys) < 3 {
					continue
				}
				if ends--; ends >= 0 {
					return endAgain(stream)
				}
				return stream.Send(echo(req))
			}
		})
		// one call, so that its operations travel together
		reply, err := s.Do(within(t), append(append(get("a"), get("b")...), get("c")...))
		var broken *Error
		switch {
		case want == nil && (err != nil || len(reply.Outcomes) != 3 || string(reply.Outcomes[2].Value) != "c"):
			t.Errorf("%v, %v", reply, err)
		case want != nil && (!errors.As(err, &broken) || broken.Sent || status.Code(broken.Err) != codes.Aborted):
			t.Errorf("error %v; want that nothing was done", err)
		}
		<-streams
	}
	f(0, nil)
	f(1, nil)
	f(2, errors.New("moved once already"))
}

// TestAgainKeepsTheOrder: calls of several batches are sent again as they were sent first, before
// those that wait.
func TestAgainKeepsTheOrder(t *testing.T) {
	s := serve(t, func(stream grpc.BidiStreamingServer[rpcv1.DoRequest, rpcv1.DoReply]) error {
		<-stream.Context().Done()
		return nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	l := &live{ctx: ctx, cancel: cancel, wake: make(chan struct{}, 1), unanswered: map[uint64]*batch{}}
	c := func(key string, sent bool) *Call { return &Call{ops: get(key), sent: sent, ended: make(closing)} }
	gone, moved := c("gone", true), c("moved", true)
	gone.gone, moved.moved = true, true
	l.unanswered[2] = &batch{id: 2, calls: []*Call{c("c", true), gone}}
	l.unanswered[1] = &batch{id: 1, calls: []*Call{c("a", true), moved, c("b", true)}}
	s.live, s.queue, s.queued = l, []*Call{c("d", false)}, 1
	s.fail(l, status.Error(codes.Aborted, "the end"), true)
	for _, c := range []*Call{gone, moved} {
		<-c.ended.(closing)
		var broken *Error
		if !errors.As(c.err, &broken) || broken.Sent {
			t.Errorf("%s ended with %v", c.ops[0].Key, c.err)
		}
	}
	s.mu.Lock()
	var order []string
	for _, b := range s.live.unanswered { // if they were sent by now, in one batch
		for _, c := range b.calls {
			order = append(order, string(c.ops[0].Key))
		}
	}
	for _, c := range s.queue {
		order = append(order, string(c.ops[0].Key))
	}
	s.mu.Unlock()
	if got := len(order); got != 4 || order[0] != "a" || order[1] != "b" || order[2] != "c" || order[3] != "d" {
		t.Errorf("sent again: %q", order)
	}
}
