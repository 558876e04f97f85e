package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/partition"
)

// ScanOptions say how to scan.
type ScanOptions struct {
	Limit    uint64 // pairs; 0 = all
	Reverse  bool   // from end downwards
	KeysOnly bool   // without values
}

// Scan goes through the pairs from start (inclusive) to end (exclusive; empty = to the last one) in order. Pairs belong to the
// caller. An error is yielded last, with a zero Pair.
//
// Pairs stream from one server after the other. When one fails, the scan goes on after the last key that it delivered. The deadline
// of ctx is one for the whole scan; without one, a scan fails when nothing arrives for Options.Limit.
func (c *Client) Scan(ctx context.Context, start, end []byte, o ScanOptions) iter.Seq2[Pair, error] {
	return func(yield func(Pair, error) bool) {
		s := &scan{c: c, start: bytes.Clone(start), end: bytes.Clone(end), o: o, yield: yield}
		if err := s.run(ctx); err != nil {
			yield(Pair{}, err)
		}
	}
}

// scan is one scan under way; start and end close in on what is still to be delivered.
type scan struct {
	c          *Client
	start, end []byte
	skip       []byte // a key that was delivered already, at start; nil if none
	o          ScanOptions
	yield      func(Pair, error) bool
	delivered  uint64
	over       bool // all was delivered, or the caller has enough
	tries      int
}

func (s *scan) run(ctx context.Context) error {
	pause, progress := retryFirst, time.Now()
	var why error // says more than that time is over
	for !s.over {
		v := s.c.view.Load()
		server, span, last := s.next(v)
		before := s.delivered
		attempt, stop := withLimit(ctx, s.c.o.Limit-time.Since(progress))
		err := s.stream(attempt, server, span)
		stop()
		switch {
		case s.over:
		case err == nil:
			s.passed(span, last)
			s.tries, pause, progress = 0, retryFirst, time.Now()
		case ctx.Err() != nil:
			return s.failure(ctx.Err(), span, server)
		case !temporary(err):
			return s.failure(err, span, server)
		default:
			if s.delivered > before {
				s.tries, pause, progress = 0, retryFirst, time.Now()
			}
			s.tries++
			s.c.heardOf(0)
			if why == nil || status.Code(err) != codes.DeadlineExceeded {
				why = err
			}
			if _, has := ctx.Deadline(); !has && time.Since(progress) >= s.c.o.Limit || !s.c.awaitOther(ctx, v, pause) {
				return s.failure(why, span, server)
			}
			pause = min(2*pause, retrySlowest)
		}
	}
	return nil
}

// next is the server to ask and the keys to ask it for; last says that nothing lies beyond them.
func (s *scan) next(v *view) (server partition.Server, span partition.Span, last bool) {
	if v.any {
		servers := v.m.Servers
		at := int(s.c.turn.Add(1) % uint64(len(servers)))
		for i := range servers {
			server = servers[(at+i)%len(servers)]
			if l, err := s.c.links.to(server.RPC, ""); err == nil && !l.avoided() {
				break
			}
		}
		return server, partition.Span{Start: s.start, End: s.end}, true
	}
	i := v.m.At(s.start)
	if s.o.Reverse {
		if i = len(v.m.Ranges) - 1; len(s.end) > 0 {
			if i = v.m.At(s.end); bytes.Equal(v.m.Ranges[i].Start, s.end) && i > 0 {
				i--
			}
		}
	}
	span = v.m.Span(i)
	server, _ = v.m.Server(span.Owner)
	if s.tries > 1 { // the owner failed twice: any other server knows how to reach the owner, or its successor
		server = v.m.Servers[s.tries%len(v.m.Servers)]
	}
	if bytes.Compare(span.Start, s.start) <= 0 {
		span.Start = s.start
		last = s.o.Reverse
	}
	if len(span.End) == 0 || len(s.end) > 0 && bytes.Compare(span.End, s.end) >= 0 {
		span.End = s.end
		last = last || !s.o.Reverse
	}
	return server, span, last
}

// stream delivers the pairs of span from one server.
func (s *scan) stream(ctx context.Context, server partition.Server, span partition.Span) error {
	if len(span.End) > 0 && bytes.Compare(span.Start, span.End) >= 0 {
		return nil
	}
	l, err := s.c.links.to(server.RPC, "")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	request := &rpcv1.ScanRequest{Start: span.Start, End: span.End, Reverse: s.o.Reverse, KeysOnly: s.o.KeysOnly}
	if s.o.Limit > 0 {
		request.Limit = s.o.Limit - s.delivered
		if s.skip != nil {
			request.Limit++
		}
	}
	stream, err := l.client.Scan(ctx, request)
	for err == nil {
		var reply *rpcv1.ScanReply
		if reply, err = stream.Recv(); err != nil {
			break
		}
		for _, pair := range reply.Pairs {
			if !s.deliver(pair) {
				return nil
			}
		}
		if reply.Error != nil {
			return &Error{Op: "scan", Message: reply.Error.Message, Err: cause(reply.Error.Code)}
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	l.failed()
	return err
}

// deliver hands one pair on and moves the near end past it.
func (s *scan) deliver(pair *rpcv1.Pair) bool {
	if s.skip != nil && bytes.Equal(pair.Key, s.skip) {
		return true
	}
	if s.o.Reverse {
		s.end = pair.Key // exclusive
	} else {
		s.start, s.skip = pair.Key, pair.Key // inclusive, so it will come once more
	}
	s.delivered++
	value := pair.Value
	if value == nil && !s.o.KeysOnly {
		value = []byte{}
	}
	more := s.yield(Pair{pair.Key, value}, nil)
	s.over = !more || s.delivered == s.o.Limit || s.o.Reverse && len(pair.Key) == 0
	return !s.over
}

// passed notes that all of span was delivered.
func (s *scan) passed(span partition.Span, last bool) {
	s.over = s.over || last
	if s.o.Reverse {
		s.end = span.Start
	} else {
		s.start, s.skip = span.End, nil
	}
}

func (s *scan) failure(err error, span partition.Span, server partition.Server) error {
	e := &Error{Op: "scan", Err: err}
	var inner *Error
	switch {
	case errors.As(err, &inner):
		*e = *inner
	case status.Code(err) == codes.Unauthenticated:
		e.Err, e.Message = ErrUnauthorized, status.Convert(err).Message()
	case temporary(err):
		e.Err, e.Message = ErrUnavailable, err.Error()
	}
	return e.at(span, server)
}

// temporary says whether a scan may go on elsewhere after err.
func temporary(err error) bool {
	var e *Error
	if errors.As(err, &e) {
		return errors.Is(e.Err, ErrUnavailable)
	}
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument:
		return false
	}
	return true
}
