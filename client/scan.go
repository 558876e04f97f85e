package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/keyrange"
	"github.com/dmindex/dmindex/pkg/partition"
)

// ScanOptions say how to scan.
type ScanOptions struct {
	Limit    uint64 // pairs; 0 = all
	Reverse  bool   // from end downwards
	KeysOnly bool   // without values
}

// Scan goes through the pairs from start (inclusive) to end (exclusive; empty = to the last one) in
// order. Pairs belong to the caller, and so do start and end again when Scan has returned. An error
// is yielded last, with a zero Pair; it wraps ErrUnavailable when the pairs that are missing may be
// had later.
//
// Pairs stream from one server after the other. When one fails, the scan goes on after the last key
// that it delivered. The deadline of ctx is one for the whole scan; without one, a scan fails when
// nothing arrives for Options.Limit while it waits. If the index is made anew meanwhile, the scan
// ends with ErrDataLost.
func (c *Client) Scan(ctx context.Context, start, end []byte, o ScanOptions) iter.Seq2[Pair, error] {
	start, end = bytes.Clone(start), bytes.Clone(end)
	return func(yield func(Pair, error) bool) {
		s := &scan{c: c, start: start, end: end, o: o, yield: yield, progress: time.Now()}
		if err := s.watched(ctx); err != nil {
			yield(Pair{}, err)
		}
	}
}

// ScanPrefix is [Client.Scan] of the keys that begin with prefix; an empty one is that of all keys.
func (c *Client) ScanPrefix(ctx context.Context, prefix []byte, o ScanOptions) iter.Seq2[Pair, error] {
	return c.Scan(ctx, prefix, keyrange.PrefixEnd(prefix), o)
}

// scan is one scan under way; start and end close in on what is still to be delivered.
type scan struct {
	c          *Client
	start, end []byte      // not to be written to: they may be the caller's, the map's or near
	near       []byte      // copy of the key that was delivered last, which its caller may change
	after      *rpcv1.Pair // the member that was delivered last, if it was one, at near
	skip       bool        // near was delivered already, and is start
	o          ScanOptions
	yield      func(Pair, error) bool
	delivered  uint64
	over       bool // all was delivered, or the caller has enough
	tries      int
	progress   time.Time // since when the scan waits and nothing arrived
}

// errMoved is how a stream ends when the keys that are left have another owner than the server that
// streams them.
var errMoved = errors.New("the keys belong to another server by now")

// watched runs the scan, and tells of it.
func (s *scan) watched(ctx context.Context) (err error) {
	w := s.c.watch(ctx, "scan", 0)
	defer func() { w.call.Keys = int(s.delivered); w.reportCall(err) }()
	return s.run(ctx)
}

func (s *scan) run(ctx context.Context) error {
	if n := len(s.start) + len(s.end); n > maxOperation {
		return &Error{Op: "scan", Err: ErrInvalid, Message: fmt.Sprintf("start and end have %d bytes; no index has keys of more than %d", n, maxOperation)}
	}
	pause := retryFirst
	began := s.c.view.Load()
	var why error // says more than that time is over
	for !s.over {
		v := s.c.view.Load()
		server, span, last := s.next(v)
		if err := v.incarnationError(began); err != nil {
			return s.failure(err, nil, span, server)
		}
		before := s.delivered
		err := s.stream(ctx, v, server, span)
		if s.delivered > before || err == nil {
			s.tries, pause, why = 0, retryFirst, nil
		}
		switch {
		case s.over:
		case err == nil:
			s.passed(span, last)
			s.progress = time.Now()
		case err == errMoved:
		case !temporary(err):
			return s.failure(err, nil, span, server)
		default:
			s.tries++
			s.c.heardOf(0)
			if code := status.Code(err); why == nil || code != codes.DeadlineExceeded && code != codes.Canceled {
				why = err
			}
			over := ctx.Err()
			if _, has := ctx.Deadline(); !has && over == nil && time.Since(s.progress) >= s.c.o.Limit {
				over = context.DeadlineExceeded
			}
			if over == nil && !s.c.awaitOther(ctx, v, pause) {
				over = ctx.Err()
			}
			if over != nil || s.c.ctx.Err() != nil {
				return s.failure(why, over, span, server)
			}
			pause = min(2*pause, retrySlowest)
		}
	}
	return nil
}

// next is the server to ask and the keys to ask it for, which stay as they are; last says that
// nothing lies beyond them.
func (s *scan) next(v *view) (server partition.Server, span partition.Span, last bool) {
	if v.any {
		servers := v.m.Servers
		at := int(s.c.turn.Add(1) % uint64(len(servers)))
		for i := range servers {
			server = servers[(at+i)%len(servers)]
			if l, err := s.c.links.linkTo(server.RPC, ""); err == nil && !l.avoided() {
				break
			}
		}
		return server, partition.Span{Start: bytes.Clone(s.start), End: bytes.Clone(s.end)}, true
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
	// the owner failed twice: any other server knows how to reach the owner, or its successor
	if s.tries > 1 {
		server = v.m.Servers[s.tries%len(v.m.Servers)]
	}
	if bytes.Compare(span.Start, s.start) <= 0 {
		span.Start = bytes.Clone(s.start)
		last = s.o.Reverse
	}
	if len(span.End) == 0 || len(s.end) > 0 && bytes.Compare(span.End, s.end) >= 0 {
		span.End = bytes.Clone(s.end)
		last = last || !s.o.Reverse
	}
	return server, span, last
}

// stream delivers the pairs of span from one server, which was chosen by v.
func (s *scan) stream(ctx context.Context, v *view, server partition.Server, span partition.Span) error {
	if len(span.End) > 0 && bytes.Compare(span.Start, span.End) >= 0 {
		return nil
	}
	l, err := s.c.links.linkTo(server.RPC, "")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	request := &rpcv1.ScanRequest{Index: v.m.Index, Start: span.Start, End: span.End, Reverse: s.o.Reverse, KeysOnly: s.o.KeysOnly, Types: true, Sets: true, After: s.after}
	if s.o.Limit > 0 {
		request.Limit = s.o.Limit - s.delivered
		if s.skip {
			request.Limit++
		}
	}
	// runs while something is waited for
	watchdog := time.AfterFunc(max(s.c.o.Limit-time.Since(s.progress), time.Millisecond), cancel)
	defer watchdog.Stop()
	stream, err := l.client.Scan(ctx, request)
	for err == nil {
		var reply *rpcv1.ScanReply
		if reply, err = stream.Recv(); err != nil {
			break
		}
		watchdog.Stop()
		s.c.reach.answered()
		for _, pair := range reply.Pairs {
			if !s.deliver(pair) {
				return nil
			}
		}
		// The caller takes its time with the pairs. Only what follows is waited for.
		s.progress = time.Now()
		if reply.Error != nil {
			return &Error{Op: "scan", Message: reply.Error.Message, Err: cause(reply.Error.Code, false)}
		}
		s.c.heardOf(reply.MapGeneration)
		if s.moved(v) {
			return errMoved
		}
		watchdog.Reset(s.c.o.Limit)
	}
	if errors.Is(err, io.EOF) {
		s.c.reach.answered()
		return nil
	}
	if temporary(err) { // else it answered
		l.failed()
	}
	s.c.reach.failed(l, err)
	return err
}

// moved reports whether what is left would now be asked of another server than v says.
func (s *scan) moved(v *view) bool {
	now := s.c.view.Load()
	if now == v || v.any || s.tries > 1 {
		return false
	}
	was, _, _ := s.next(v)
	is, _, _ := s.next(now)
	return was.ID != is.ID
}

// deliver hands one pair on and moves the near end past it.
func (s *scan) deliver(pair *rpcv1.Pair) bool {
	member := pair.Type == rpcv1.Pair_MEMBER
	switch same := s.delivered > 0 && bytes.Equal(pair.Key, s.near); {
	case same && s.skip && (s.after == nil || !member):
		return true
	case s.o.Reverse && member && !same && s.delivered > 0:
		s.end = bytes.Clone(s.near) // not past the set, of which more may come
	}
	s.near = append(s.near[:0], pair.Key...)
	switch {
	case !s.o.Reverse:
		s.start, s.skip = s.near, true // inclusive, so it will come once more
	case !member:
		s.end = s.near // exclusive
	}
	deadline := pair.Deadline
	if member && s.after != nil && bytes.Equal(s.after.Key, pair.Key) { // a set has one in a dump
		deadline = s.after.Deadline
	}
	if s.after = nil; member {
		s.after = &rpcv1.Pair{Key: bytes.Clone(pair.Key), Value: bytes.Clone(pair.Value), Deadline: deadline}
	}
	s.delivered++
	value := pair.Value
	if value == nil && !s.o.KeysOnly {
		value = []byte{}
	}
	p := Pair{Key: pair.Key, Value: value, Hash: pair.Type == rpcv1.Pair_HASH, Member: member, Score: pair.Score}
	if deadline != 0 {
		p.Expires = time.UnixMilli(deadline)
	}
	more := s.yield(p, nil)
	s.over = !more || s.delivered == s.o.Limit || s.o.Reverse && len(s.near) == 0 && !member
	return !s.over
}

// passed notes that all of span was delivered.
func (s *scan) passed(span partition.Span, last bool) {
	s.over = s.over || last
	if s.o.Reverse {
		s.end = span.Start
	} else {
		s.start, s.skip = span.End, false
	}
}

// failure is how the scan ends by err. over is what ended it, if its time was over.
func (s *scan) failure(err, over error, span partition.Span, server partition.Server) error {
	e := &Error{Op: "scan", Err: ErrUnavailable}
	var inner *Error
	switch code := status.Code(err); {
	case s.c.ctx.Err() != nil:
		e.Err = ErrClosed
		return e
	case errors.As(err, &inner):
		*e = *inner
	case errors.Is(err, ErrDataLost):
		e.Err, e.Message = ErrDataLost, err.Error()
	case code == codes.Unauthenticated:
		e.Err, e.Message = ErrUnauthorized, status.Convert(err).Message()
	case code == codes.PermissionDenied: // to read all of the range
		e.Err, e.Message = ErrDenied, status.Convert(err).Message()
	case code == codes.InvalidArgument:
		e.Err, e.Message = ErrInvalid, status.Convert(err).Message()
	default:
		e.Message = err.Error()
	}
	s.c.reach.explain(e)
	if e.Err == ErrUnavailable {
		e.Cause = over
	}
	return e.withPlace(span, server)
}

// temporary reports whether a scan may go on elsewhere after err.
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
