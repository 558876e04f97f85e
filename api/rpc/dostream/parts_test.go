package dostream

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// waiter answers operations on keys that begin with "wait" when it is let.
type waiter struct {
	got   chan string   // keys that wait
	let   chan struct{} // closed
	again bool          // the stream ends then, instead of these answers
}

func (w *waiter) do(stream grpc.BidiStreamingServer[rpcv1.DoRequest, rpcv1.DoReply]) error {
	var later []*rpcv1.DoReply
	let := w.let
	requests := make(chan *rpcv1.DoRequest)
	go func() {
		defer close(requests)
		for {
			req, err := stream.Recv()
			if err != nil {
				return
			}
			requests <- req
		}
	}()
	for {
		select {
		case req := <-requests:
			if req == nil {
				return nil
			}
			now, rest := &rpcv1.DoReply{Id: req.Id}, &rpcv1.DoReply{Id: req.Id}
			for _, op := range req.Operations {
				o := &rpcv1.Outcome{Value: op.Key}
				if strings.HasPrefix(string(op.Key), "wait") {
					w.got <- string(op.Key)
					rest.Outcomes = append(rest.Outcomes, o)
					o = &rpcv1.Outcome{Code: rpcv1.Outcome_LATER}
				}
				now.Outcomes = append(now.Outcomes, o)
			}
			if len(rest.Outcomes) > 0 {
				later = append(later, rest)
			}
			if err := stream.Send(now); err != nil {
				return err
			}
		case <-let:
			if w.again {
				return endAgain(stream)
			}
			for _, reply := range later {
				if err := stream.Send(reply); err != nil {
					return err
				}
			}
			later, let = nil, nil
		}
	}
}

func newWaiter(t *testing.T) (*waiter, *Stream) {
	w := &waiter{got: make(chan string, 4*MaxUnanswered), let: make(chan struct{})}
	return w, serve(t, w.do)
}

// TestCallsInPartsOfABatch: a call whose operations are answered returns, though another one of its
// batch waits.
func TestCallsInPartsOfABatch(t *testing.T) {
	w, s := newWaiter(t)
	calls := []*Call{
		{ops: append(get("wait 1"), get("a")...), ended: make(closing)},
		{ops: append(get("b"), get("c")...), ended: make(closing)},
		{ops: get("wait 2"), ended: make(closing)},
	}
	s.mu.Lock()
	s.queue, s.queued = append(s.queue, calls...), 5
	s.live = s.open()
	s.live.poke()
	s.mu.Unlock()
	<-calls[1].ended.(closing)
	select {
	case <-calls[0].ended.(closing):
		t.Error("a call returns of which an operation waits")
	case <-calls[2].ended.(closing):
		t.Error("a call returns that waits")
	default:
	}
	close(w.let)
	for _, c := range calls {
		<-c.ended.(closing)
		for i, op := range c.ops {
			if c.err != nil || string(c.reply.Outcomes[i].Value) != string(op.Key) {
				t.Errorf("%s: %v, %v", op.Key, c.reply, c.err)
			}
		}
	}
	if left := len(s.live.unanswered) + s.live.parked; left != 0 {
		t.Errorf("%d batches are left", left)
	}
}

// TestWaitingCallsLetOthersPass: more batches than may be unanswered wait, and another one is sent
// all the same.
func TestWaitingCallsLetOthersPass(t *testing.T) {
	w, s := newWaiter(t)
	ended := make(chan error)
	for n := range MaxUnanswered + 1 {
		go func() {
			key := fmt.Sprint("wait ", n)
			reply, err := s.Do(within(t), get(key))
			if err == nil && string(reply.Outcomes[0].Value) != key {
				err = fmt.Errorf("%s: %v", key, reply)
			}
			ended <- err
		}()
		<-w.got // in a batch of its own
	}
	if reply, err := s.Do(within(t), get("quick")); err != nil || string(reply.Outcomes[0].Value) != "quick" {
		t.Errorf("%v, %v", reply, err)
	}
	close(w.let)
	for range MaxUnanswered + 1 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestEarlyOutcomes: DoEarly hands on what is there before the rest. What a stream answered in part
// is not sent again by the next one, and its caller does not hear that nothing was done.
func TestEarlyOutcomes(t *testing.T) {
	for _, again := range []bool{false, true} {
		w, s := newWaiter(t)
		early := make([]string, 2)
		reply, err := s.DoEarly(within(t), append(get("wait"), get("quick")...), func(some []*rpcv1.Outcome) {
			for n, o := range some {
				early[n] = string(o.Value)
			}
			w.again = again
			close(w.let)
		})
		var broken *Error
		switch {
		case early[0] != "" || early[1] != "quick":
			t.Errorf("early came %q", early)
		case !again && (err != nil || len(reply.Outcomes) != 2 || string(reply.Outcomes[0].Value) != "wait" || string(reply.Outcomes[1].Value) != "quick"):
			t.Errorf("%v, %v", reply, err)
		case again && (!errors.As(err, &broken) || !broken.Sent):
			t.Errorf("after an end in the middle: %v", err)
		}
	}
}
