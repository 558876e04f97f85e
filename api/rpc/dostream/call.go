//env:real streams of gRPC are channels and goroutines

package dostream

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// Call is operations that are handed to a stream, from Start until they have their reply or are
// given up.
type Call struct {
	s      *Stream
	ops    []*rpcv1.Operation
	weight int       // rpcv1.Weight
	until  time.Time // when its caller stops waiting; zero: never
	ended  Waker
	over   atomic.Bool // reply and err do not change any more

	// Under Stream.mu.
	sent  bool
	gone  bool  // its caller does not wait any more
	moved bool  // from a stream that ended to the next one
	reply Reply // until over, LATER stands in place of some outcomes
	err   error

	// one element: outcomes came before the last; nil: nobody takes them early
	some chan struct{}
}

// Waker is told that a call is over. Set is called once, by a goroutine of the stream, and does not
// wait. Several calls may have the same one.
type Waker interface{ Set() }

// Start hands operations, at most MaxCall, to the stream, and does not wait. The server begins none
// of them after until, counted from when it received them; zero: whenever. The operations and what
// they point to belong to the stream from then on, even after an error. ended is told when Reply
// has something, unless there is an error: then nothing was sent. Every error is an *Error.
func (s *Stream) Start(ops []*rpcv1.Operation, until time.Time, ended Waker) (*Call, error) {
	c := &Call{s: s, ops: ops, weight: rpcv1.Weight(ops), until: until, ended: ended}
	if err := s.enqueue(c); err != nil {
		return nil, &Error{Err: err}
	}
	return c, nil
}

// Reply returns what became of a call. It returns false while that is not known.
func (c *Call) Reply() (Reply, error, bool) {
	if !c.over.Load() {
		return Reply{}, nil, false
	}
	return c.reply, c.err, true
}

// GiveUp returns the reply of a call, if it is there. If not, nobody waits for it any more, because
// of why, and Reply must not be called.
func (c *Call) GiveUp(why error) (Reply, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if reply, err, over := c.Reply(); over { // the answer won the race
		return reply, err
	}
	c.gone = true
	if !c.sent {
		c.s.unqueue(c)
	}
	return Reply{}, &Error{Sent: c.sent, Err: why}
}

// end makes the reply, or the error, of a call known.
func (c *Call) end() {
	c.over.Store(true)
	c.ended.Set()
}

// Do runs operations as Start does, and waits for their outcomes until ctx ends.
func (s *Stream) Do(ctx context.Context, ops []*rpcv1.Operation) (Reply, error) {
	return s.DoEarly(ctx, ops, nil)
}

// closing is a channel that is closed when a call is over.
type closing chan struct{}

func (c closing) Set() { close(c) }

// DoEarly is Do for several operations of which some may wait long. Unless early is nil, it is
// called meanwhile, by the same goroutine, when outcomes came and others are still to come. It gets
// all that are there, and LATER in place of the others. An error says nothing of what it got.
func (s *Stream) DoEarly(ctx context.Context, ops []*rpcv1.Operation, early func(some []*rpcv1.Outcome)) (Reply, error) {
	done := make(closing)
	c := &Call{s: s, ops: ops, weight: rpcv1.Weight(ops), ended: done}
	if early != nil {
		c.some = make(chan struct{}, 1)
	}
	c.until, _ = ctx.Deadline()
	if err := s.enqueue(c); err != nil {
		return Reply{}, &Error{Err: err}
	}
	for {
		select {
		case <-done:
			return c.reply, c.err
		case <-c.some:
			s.mu.Lock()
			some := slices.Clone(c.reply.Outcomes)
			s.mu.Unlock()
			early(some)
		case <-ctx.Done():
			return c.GiveUp(context.Cause(ctx))
		}
	}
}

func (s *Stream) enqueue(c *Call) error {
	if c.weight == 0 || c.weight > MaxCall {
		return fmt.Errorf("%d operations in one call; 1 to %d are possible", c.weight, MaxCall)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if s.queued+c.weight > MaxQueued {
		return ErrQueueFull
	}
	s.queue = append(s.queue, c)
	s.queued += c.weight
	s.awake = max(0, s.awake-1)
	if s.live == nil {
		s.live = s.open()
	}
	s.live.poke()
	return nil
}

func (s *Stream) unqueue(c *Call) {
	for i := range s.queue {
		if s.queue[i] == c {
			s.queue = append(s.queue[:i], s.queue[i+1:]...)
			s.queued -= c.weight
			return
		}
	}
}
