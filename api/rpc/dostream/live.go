//env:real streams of gRPC are channels and goroutines

package dostream

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// live is one open stream: a goroutine that sends and one that receives. The first of them to meet
// an error ends both, and every call that waits; the next call opens another stream.
type live struct {
	ctx    context.Context
	cancel context.CancelFunc
	wake   chan struct{} // one element: there is something to send, or room to send it

	// Under Stream.mu.
	unanswered map[uint64]*batch // wholly, or in part
	parked     int               // of these, those that are answered in part
	next       uint64
}

// waiting is how many batches have no answer, not even in part: what operations wait for whose keys
// have no server does not keep others from being sent. Called under Stream.mu.
func (l *live) waiting() int { return len(l.unanswered) - min(l.parked, MaxParked) }

// batch is the calls of one DoRequest that have no reply yet, in order.
type batch struct {
	id     uint64
	calls  []*Call
	weight int  // of all that were added
	count  int  // their operations that have no outcome yet
	parked bool // it is answered in part
	// that the server has: until the first of the callers stops waiting; 0 = there is no limit
	left time.Duration
}

// timeLeft is how long the server may take for a call that is sent now: until its caller stops
// waiting, and the stream's limit (0 = none) at most.
func (c *Call) timeLeft(most time.Duration, now time.Time) time.Duration {
	if c.until.IsZero() {
		return most
	}
	left := max(c.until.Sub(now), time.Millisecond)
	if most > 0 {
		left = min(left, most)
	}
	return left
}

// canCarry reports whether a call may travel in b. One limit is for all of a batch, and no change
// may be begun for a caller who has given up; so the shortest decides, and who has much more time
// travels in another one.
func (b *batch) canCarry(c *Call, left time.Duration) bool {
	if len(b.calls) == 0 {
		return true
	}
	if b.weight+c.weight > MaxBatch || (left == 0) != (b.left == 0) {
		return false
	}
	longer, shorter := max(left, b.left), min(left, b.left)
	return longer-shorter <= longer/4
}

// add puts a call into b.
func (b *batch) add(c *Call, left time.Duration) {
	if len(b.calls) == 0 || left < b.left {
		b.left = left
	}
	b.calls = append(b.calls, c)
	b.count += len(c.ops)
	b.weight += c.weight
}

// operations are those of all calls.
func (b *batch) operations() []*rpcv1.Operation {
	if len(b.calls) == 1 {
		return b.calls[0].ops
	}
	all := make([]*rpcv1.Operation, 0, b.count)
	for _, c := range b.calls {
		all = append(all, c.ops...)
	}
	return all
}

// takeOutcomes takes the outcomes of a reply to a batch, of which some are LATER, or some were
// before. It returns the calls that have all of theirs now. Called under Stream.mu.
func (b *batch) takeOutcomes(reply *rpcv1.DoReply) (ready []*Call) {
	outcomes := reply.Outcomes
	b.count = 0
	b.calls = slices.DeleteFunc(b.calls, func(c *Call) bool {
		if c.reply.Outcomes == nil {
			c.reply.Outcomes, outcomes = outcomes[:len(c.ops):len(c.ops)], outcomes[len(c.ops):]
		} else {
			for i, o := range c.reply.Outcomes {
				if o.Code == rpcv1.Outcome_LATER {
					c.reply.Outcomes[i], outcomes = outcomes[0], outcomes[1:]
				}
			}
		}
		c.reply.Generation = reply.MapGeneration
		open := 0
		for _, o := range c.reply.Outcomes {
			if o.Code == rpcv1.Outcome_LATER {
				open++
			}
		}
		b.count += open
		if open > 0 {
			if c.some != nil && open < len(c.ops) {
				poke(c.some)
			}
			return false
		}
		ready = append(ready, c)
		return true
	})
	return ready
}

// limit is b.left in milliseconds, as requests have it.
func (b *batch) limit() uint32 { return uint32((b.left + time.Millisecond - 1) / time.Millisecond) }

func (l *live) poke() { poke(l.wake) }

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it has its element
	}
}

// open starts a stream. Called under s.mu.
func (s *Stream) open() *live {
	ctx, cancel := context.WithCancel(context.Background())
	if s.o.Index != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, HeaderIndex, s.o.Index)
	}
	if s.o.KnowsDenied {
		ctx = metadata.AppendToOutgoingContext(ctx, HeaderKnows, KnowsDenied)
	}
	l := &live{ctx: ctx, cancel: cancel, wake: make(chan struct{}, 1), unanswered: map[uint64]*batch{}}
	go func() {
		stream, err := s.client.Do(ctx, grpc.ForceCodecV2(Codec()))
		if err != nil {
			s.fail(l, err, false)
			return
		}
		go s.receive(l, stream)
		s.send(l, stream)
	}()
	return l
}

func (s *Stream) send(l *live, stream rpcv1.Compute_DoClient) {
	for {
		b := s.nextBatch(l)
		if b == nil {
			select {
			case <-l.wake:
				if s.gathers(l) {
					runtime.Gosched()
				}
				continue
			case <-l.ctx.Done():
				return
			}
		}
		req := &rpcv1.DoRequest{Id: b.id, Operations: b.operations(), Forwarded: s.o.Forwarded, LimitMilliseconds: b.limit(), InParts: true}
		if err := stream.Send(req); err != nil {
			// The reason arrives at the receiving end; Send only says that there is one.
			return
		}
	}
}

// spread is over how many batches the calls that wait are spread, and how many calls travel
// together at least, if so many wait. A server runs batches side by side, but the operations of
// one in turn, as far as its index needs that.
const spread = 8

// gathers reports whether more calls are likely to come at once if others run first. A message
// costs some ten times what one more operation of it does, on either side. A caller that is alone,
// and a batch that is full, do not wait.
func (s *Stream) gathers(l *live) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queued < MaxBatch && (s.awake > 0 || len(s.queue) > 1 || l.waiting() > 0)
}

// nextBatch makes a batch of what is queued; nil when there is nothing, or too much is unanswered.
func (s *Stream) nextBatch(l *live) *batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 || l.waiting() >= MaxUnanswered || s.live != l {
		return nil
	}
	l.next++
	b, now := &batch{id: l.next}, time.Now()
	for most := max(spread, len(s.queue)/spread); len(s.queue) > 0 && len(b.calls) < most; {
		c := s.queue[0]
		left := c.timeLeft(s.o.Limit, now)
		if !b.canCarry(c, left) {
			break
		}
		c.sent = true
		b.add(c, left)
		s.queue[0] = nil
		s.queue = s.queue[1:]
		s.queued -= c.weight
	}
	l.unanswered[b.id] = b
	return b
}

func (s *Stream) receive(l *live, stream rpcv1.Compute_DoClient) {
	for {
		reply, err := stream.Recv()
		if err != nil {
			s.fail(l, err, status.Code(err) == codes.Aborted && len(stream.Trailer().Get(TrailerAgain)) > 0)
			return
		}
		later := slices.ContainsFunc(reply.Outcomes, func(o *rpcv1.Outcome) bool { return o.GetCode() == rpcv1.Outcome_LATER })
		s.mu.Lock()
		b := l.unanswered[reply.Id]
		fits := b != nil && len(reply.Outcomes) == b.count
		whole := fits && !later && !b.parked
		var ready []*Call
		switch {
		case whole:
			ready = b.calls
		case fits:
			ready = b.takeOutcomes(reply)
		}
		if fits {
			l.answered(b, later)
			s.awake = len(ready)
		}
		s.mu.Unlock()
		if !fits {
			s.fail(l, fmt.Errorf("the server answered batch %d with %d outcomes, which fits nothing that was asked", reply.Id, len(reply.Outcomes)), false)
			return
		}
		l.poke()
		outcomes := reply.Outcomes
		for _, c := range ready {
			if whole {
				c.reply = Reply{Outcomes: outcomes[:len(c.ops):len(c.ops)], Generation: reply.MapGeneration}
				outcomes = outcomes[len(c.ops):]
			}
			c.end()
		}
	}
}

// answered notes that a batch was answered, with later only in part. Called under Stream.mu.
func (l *live) answered(b *batch, later bool) {
	if later != b.parked {
		b.parked = later
		if later {
			l.parked++
		} else {
			l.parked--
		}
	}
	if !later {
		delete(l.unanswered, b.id)
	}
}

// fail ends a stream and all calls that wait for it or for being sent. With again they move to
// another stream, in their order, since the server did nothing of them. A call moves once. One
// whose caller waits no more does not: the caller was told that it may have been done, and may have
// tried again elsewhere. Nor does one that was answered in part.
func (s *Stream) fail(l *live, err error, again bool) {
	l.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live != l {
		return
	}
	taken := true
	switch status.Code(err) { // see rpc.Compute.Do
	case codes.Aborted, codes.Unauthenticated, codes.PermissionDenied, codes.FailedPrecondition:
		taken = false
	}
	var waiting []*Call
	for _, id := range slices.Sorted(maps.Keys(l.unanswered)) {
		waiting = append(waiting, l.unanswered[id].calls...)
	}
	waiting = append(waiting, s.queue...)
	l.unanswered = nil // an answer that is under way still finds nobody
	s.live, s.queue, s.queued = nil, nil, 0
	for _, c := range waiting {
		partly := c.reply.Outcomes != nil
		if again && !s.closed && !c.moved && !c.gone && !partly {
			c.moved, c.sent = true, false
			s.queue, s.queued = append(s.queue, c), s.queued+c.weight
			continue
		}
		c.err = &Error{Sent: c.sent && (taken || partly), Err: err}
		c.end()
	}
	if len(s.queue) > 0 {
		s.live = s.open()
		s.live.poke()
	}
}
