package dostream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// server runs a Do handler that the test gives.
type server struct {
	rpcv1.UnimplementedComputeServer
	do func(grpc.BidiStreamingServer[rpcv1.DoRequest, rpcv1.DoReply]) error
}

func (s *server) Do(stream grpc.BidiStreamingServer[rpcv1.DoRequest, rpcv1.DoReply]) error {
	return s.do(stream)
}

func serve(t *testing.T, do func(grpc.BidiStreamingServer[rpcv1.DoRequest, rpcv1.DoReply]) error) *Stream {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	rpcv1.RegisterComputeServer(g, &server{do: do})
	go func() { _ = g.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	s := New(rpcv1.NewComputeClient(conn), Options{})
	t.Cleanup(func() { s.Close(); _ = conn.Close(); g.Stop() })
	return s
}

// echo answers each operation with its key as the value.
func echo(req *rpcv1.DoRequest) *rpcv1.DoReply {
	reply := &rpcv1.DoReply{Id: req.Id, MapGeneration: 7}
	for _, op := range req.Operations {
		reply.Outcomes = append(reply.Outcomes, &rpcv1.Outcome{Value: op.Key})
	}
	return reply
}

func get(key string) []*rpcv1.Operation {
	return []*rpcv1.Operation{{Kind: rpcv1.Operation_LOOKUP, Key: []byte(key)}}
}

func within(t *testing.T) context.Context {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(stop)
	return ctx
}

// TestEveryCallGetsItsOwnAnswer: calls of many goroutines share batches, and each gets what belongs
// to it.
func TestEveryCallGetsItsOwnAnswer(t *testing.T) {
	s := serve(t, func(stream grpc.BidiStreamingServer[rpcv1.DoRequest, rpcv1.DoReply]) error {
		for {
			first, err := stream.Recv()
			if err != nil {
				return nil
			}
			if err := stream.Send(echo(first)); err != nil {
				return err
			}
		}
	})
	ctx := within(t)
	var callers sync.WaitGroup
	for i := range 32 {
		callers.Go(func() {
			for j := range 200 {
				key := fmt.Sprint(i, " ", j)
				reply, err := s.Do(ctx, append(get(key), get(key+"+")...))
				if err != nil || len(reply.Outcomes) != 2 || string(reply.Outcomes[0].Value) != key || string(reply.Outcomes[1].Value) != key+"+" || reply.Generation != 7 {
					t.Errorf("%s: %v, %v", key, reply, err)
					return
				}
			}
		})
	}
	callers.Wait()
}

// TestWhatIsKnownAfterABreak: a stream that breaks leaves what was sent unknown; one that ends with
// ABORTED, or whose caller is refused, does not.
func TestWhatIsKnownAfterABreak(t *testing.T) {
	for code, sent := range map[codes.Code]bool{
		codes.Unavailable: true, codes.Unknown: true, codes.Internal: true, codes.Aborted: false, codes.Unauthenticated: false, codes.PermissionDenied: false,
	} {
		streams := 0
		s := serve(t, func(stream grpc.BidiStreamingServer[rpcv1.DoRequest, rpcv1.DoReply]) error {
			streams++
			req, err := stream.Recv()
			if err != nil {
				return err
			}
			if streams == 1 {
				return status.Error(code, "the end")
			}
			return stream.Send(echo(req))
		})
		var broken *Error
		if _, err := s.Do(within(t), get("a")); !errors.As(err, &broken) || broken.Sent != sent {
			t.Errorf("%v: error %v, sent should be %v", code, err, sent)
		}
		if reply, err := s.Do(within(t), get("b")); err != nil || string(reply.Outcomes[0].Value) != "b" {
			t.Errorf("%v: the next stream gave %v, %v", code, reply, err)
		}
	}
}

// TestBounds fills the window and the queue of a server that never answers.
func TestBounds(t *testing.T) {
	full := make(chan struct{})
	s := serve(t, func(stream grpc.BidiStreamingServer[rpcv1.DoRequest, rpcv1.DoReply]) error {
		for n := 1; ; n++ {
			if _, err := stream.Recv(); err != nil {
				return nil
			}
			switch {
			case n == MaxUnanswered:
				close(full)
			case n > MaxUnanswered:
				t.Errorf("batch %d was sent without an answer", n)
			}
		}
	})
	ctx, stop := context.WithCancel(within(t))
	var callers sync.WaitGroup
	call := make([]*rpcv1.Operation, MaxCall)
	for i := range call {
		call[i] = get("x")[0]
	}
	for range MaxUnanswered {
		callers.Go(func() { _, _ = s.Do(ctx, call[:MaxBatch]) }) // each fills a batch
	}
	<-full
	for range MaxQueued / MaxCall {
		callers.Go(func() { _, _ = s.Do(ctx, call) })
	}
	for queued := 0; queued < MaxQueued; runtime.Gosched() { // until the callers above have queued
		s.mu.Lock()
		queued = s.queued
		s.mu.Unlock()
		if ctx.Err() != nil {
			t.Fatal("the queue never filled")
		}
	}
	if _, err := s.Do(ctx, get("y")); !errors.Is(err, ErrQueueFull) {
		t.Errorf("one more than the queue takes: %v", err)
	}
	stop()
	callers.Wait()
	if _, err := s.Do(within(t), make([]*rpcv1.Operation, MaxCall+1)); err == nil {
		t.Error("a call beyond the bound was taken")
	}
	s.Close()
	if _, err := s.Do(within(t), get("z")); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed stream: %v", err)
	}
}

// lateAnswer is a stream whose answer arrives while the Stream is closed.
type lateAnswer struct {
	rpcv1.Compute_DoClient
	close func()
	reply *rpcv1.DoReply
}

func (a *lateAnswer) Recv() (*rpcv1.DoReply, error) {
	a.close()
	return a.reply, nil
}

// TestAnswerAfterClose: a call that Close has failed is not answered once more by what was under
// way.
func TestAnswerAfterClose(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	c := &Call{ops: get("a"), sent: true, ended: make(closing)}
	l := &live{ctx: ctx, cancel: cancel, wake: make(chan struct{}, 1), unanswered: map[uint64]*batch{1: {id: 1, calls: []*Call{c}, count: 1}}}
	s := New(nil, Options{})
	s.live = l
	s.receive(l, &lateAnswer{close: s.Close, reply: echo(&rpcv1.DoRequest{Id: 1, Operations: c.ops})})
	<-c.ended.(closing)
	var broken *Error
	if !errors.As(c.err, &broken) || !broken.Sent || !errors.Is(c.err, ErrClosed) {
		t.Errorf("the call ended with %v", c.err)
	}
}

// TestLimit: the server has no more time than any caller of a batch waits, and never more than the
// stream's limit; who waits for much longer travels in the next batch.
func TestLimit(t *testing.T) {
	now := time.Now()
	in := func(d time.Duration) *Call { return &Call{ops: get("a"), until: now.Add(d)} }
	ever := &Call{ops: get("a")}
	for _, c := range []struct {
		calls []*Call
		most  time.Duration
		want  uint32
		taken int
	}{
		{[]*Call{ever, ever}, 0, 0, 2},
		{[]*Call{ever, ever}, 5 * time.Second, 5000, 2},
		{[]*Call{ever, in(time.Hour)}, 0, 0, 1},
		{[]*Call{in(time.Second), ever}, 0, 1000, 1},
		{[]*Call{ever, in(time.Minute)}, 5 * time.Second, 5000, 2},
		{[]*Call{in(time.Second), ever}, 5 * time.Second, 1000, 1},
		{[]*Call{in(time.Second)}, 5 * time.Second, 1000, 1},
		{[]*Call{in(time.Second)}, 0, 1000, 1},
		{[]*Call{in(100 * time.Millisecond), in(80 * time.Millisecond), in(30 * time.Millisecond)}, 5 * time.Second, 80, 2},
		{[]*Call{in(80 * time.Millisecond), in(100 * time.Millisecond), in(200 * time.Millisecond)}, 5 * time.Second, 80, 2},
		{[]*Call{in(time.Minute)}, 5 * time.Second, 5000, 1},
		{[]*Call{in(10 * time.Microsecond)}, 5 * time.Second, 1, 1},
		{[]*Call{in(-time.Second)}, 5 * time.Second, 1, 1},
	} {
		b := &batch{}
		for _, call := range c.calls {
			left := call.timeLeft(c.most, now)
			if !b.canCarry(call, left) {
				break
			}
			b.add(call, left)
		}
		if got := b.limit(); got != c.want || len(b.calls) != c.taken {
			t.Errorf("%d of %d calls, at most %v: %d ms, want %d calls and %d ms", len(b.calls), len(c.calls), c.most, got, c.taken, c.want)
		}
	}
}

// TestDeadlineTravels: the server learns for how long the caller waits.
func TestDeadlineTravels(t *testing.T) {
	asked := make(chan uint32, 1)
	s := serve(t, func(stream grpc.BidiStreamingServer[rpcv1.DoRequest, rpcv1.DoReply]) error {
		req, err := stream.Recv()
		if err != nil {
			return nil
		}
		asked <- req.LimitMilliseconds
		return stream.Send(echo(req))
	})
	if _, err := s.Do(within(t), get("k")); err != nil {
		t.Fatal(err)
	}
	if got := <-asked; got == 0 || got > 60_000 {
		t.Errorf("the server has %d ms, and the caller waits for a minute", got)
	}
}
