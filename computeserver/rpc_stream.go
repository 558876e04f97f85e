//env:real a gRPC server: streams are channels and goroutines

package computeserver

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dmindex/dmindex/api/rpc/dostream"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/internal/count"
	"github.com/dmindex/dmindex/computeserver/users"
)

// doStream is one Do stream: a receiver puts batches into a queue, a bounded number of workers take
// them, so that one slow batch does not hold up the others. There is a worker for each pending
// batch, up to the bound: a batch counts as pending from before it is queued until its worker is
// done with it, so a worker that has taken a batch and not begun it is never taken for an idle one.
//
// A worker does not wait for keys that have no server, or for another server: what waits is parked
// (rpc_answers.go).
type doStream struct {
	r       *rpcServer
	stream  grpc.BidiStreamingServer[rpcv1.DoRequest, rpcv1.DoReply]
	caller  *caller // the receiver's
	term    uint64
	refusal rpcv1.Outcome_Code // of what the caller's user may not do
	batches chan received
	workers sync.WaitGroup // and lanes that are parked
	running int            // workers; the receiver's
	pending atomic.Int32   // batches that are queued, or that workers have
	bytes   atomic.Int64   // of batches without any answer
	parked  parked
	room    chan struct{} // one of them was answered
	mute    atomic.Bool   // an answer could not be sent
	ends    atomic.Bool   // before its sender ended it
	sending sync.Mutex    // of stream.Send

	forwards context.Context // of what waits for other servers

	mu    sync.Mutex // held while a batch is queued
	ended bool       // nothing more is queued
}

// received is a batch and when it was: its limit counts from then.
type received struct {
	req  *rpcv1.DoRequest
	at   time.Duration
	end  func() // of rpcServer.begin
	size int64
	user *users.User // whose rights count; nil: all may be read and written
}

// Do runs batches until the stream or the server ends.
func (r *rpcServer) Do(stream grpc.BidiStreamingServer[rpcv1.DoRequest, rpcv1.DoReply]) error {
	for _, index := range metadata.ValueFromIncomingContext(stream.Context(), dostream.HeaderIndex) {
		if err := r.checkIndex(index); err != nil {
			return err
		}
	}
	forwards, cut := context.WithCancelCause(stream.Context())
	defer cut(nil)
	refusal := rpcv1.Outcome_INVALID
	if slices.Contains(metadata.ValueFromIncomingContext(stream.Context(), dostream.HeaderKnows), dostream.KnowsDenied) {
		refusal = rpcv1.Outcome_DENIED
	}
	w := &doStream{r: r, stream: stream, refusal: refusal, forwards: forwards, caller: callerOf(stream.Context()), term: termOf(stream.Context()), batches: make(chan received, rpcUnanswered-rpcWorkers), room: make(chan struct{}, 1)}
	received := make(chan error, 1)
	go func() { received <- w.receive() }()
	var err error
	select {
	case err = <-received:
	case <-connOf(stream.Context()).ending():
		err = errOld
	case <-r.cut:
		err = errDrained
	}
	// Batches that were queued by now are answered. Those that the receiver still reads are
	// dropped, and the sender learns that it was when the stream ends. So that is not put off by
	// what waits, here or, for long, at another server.
	if w.ends.Store(err != nil); err != nil {
		defer time.AfterFunc(rpcForwardsEnd, func() { cut(errEnds) }).Stop()
	}
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	close(w.batches)
	w.workers.Wait()
	if err == errOld || err == errCredentialGone {
		stream.SetTrailer(againTrailer())
	}
	if w.mute.Load() { // ABORTED would say that nothing was done of what is not answered
		return errMute
	}
	return err
}

// errCredentialGone is how a stream ends whose caller showed a password that is not right any more,
// or a certificate that counts no more; and a scan, for a password. The batches that it took are
// answered. A new stream with the present one goes on.
var errCredentialGone = status.Error(codes.Aborted, "the password or certificate of this stream is not right any more; this server took no more of it")

// errOld is how the streams of a connection end that is to be replaced.
var errOld = status.Error(codes.Aborted, "the connection of this stream is old; this server took no more of it")

// errEnds is why what waits for another server does not wait on.
var errEnds = errors.New("the stream of this request ends")

// errMute is how a stream ends that took a batch and could not answer it.
var errMute = status.Error(codes.Internal, "a batch was taken, and its answer could not be sent")

// receive reads batches until the stream ends.
func (w *doStream) receive() error {
	for {
		req, err := w.stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		at := w.r.core.Env.Now()
		if n := rpcv1.Weight(req.Operations); n == 0 || n > rpcMaxOperations {
			return status.Errorf(codes.InvalidArgument, "batch %d has %d operations; 1 to %d are possible", req.Id, n, rpcMaxOperations)
		}
		if !w.caller.renew() {
			return errCredentialGone
		}
		size := int64(dostream.Size(req))
		w.await(size)
		end := w.r.begin()
		w.mu.Lock()
		if w.ended || w.r.isDraining() {
			w.mu.Unlock()
			end()
			return errDrained // which nobody looks at where the stream has ended
		}
		w.bytes.Add(size)
		if n := int(w.pending.Add(1)); w.running < rpcWorkers && n > w.running {
			w.running++
			w.workers.Go(w.work)
		}
		w.r.pending.Add(1)
		w.batches <- received{req, at, end, size, w.caller.user()} // the workers make room
		w.mu.Unlock()
	}
}

// await waits until there is room for a batch. All that are taken are answered, or dropped, soon:
// also when the stream ends.
func (w *doStream) await(size int64) {
	for have := w.bytes.Load(); have > 0 && have+size > rpcUnansweredBytes; have = w.bytes.Load() {
		<-w.room
	}
}

func (w *doStream) work() {
	for b := range w.batches {
		w.batch(b)
		w.pending.Add(-1)
	}
}

// batch runs what need not wait of a batch, and answers it, unless all is to be answered at once
// and some of it waits.
func (w *doStream) batch(b received) {
	c, req := w.r.core, b.req
	a := &answers{w: w, received: b, began: c.Env.Now(), open: len(req.Operations)}
	if w.stream.Context().Err() != nil {
		a.leave() // who sent it is gone, and may have asked another server by now
		return
	}
	limit := c.Limit
	if asked := time.Duration(req.LimitMilliseconds) * time.Millisecond; asked > 0 {
		limit = min(limit, asked)
	}
	limit -= a.began - b.at
	ops := a.allowed()
	if len(ops) == 0 {
		a.first(nil, nil)
		return
	}
	a.first(c.DoParts(ops, req.Forwarded, limit, w.term, a))
}

// send sends one answer, and counts what it answers.
func (w *doStream) send(a *answers, outcomes []*rpcv1.Outcome, t *count.Tally) {
	c := w.r.core
	t.Publish(&w.r.metrics.rpc, c.Env.Now()-a.began)
	w.sending.Lock()
	defer w.sending.Unlock()
	// a broken stream ends Recv as well; what is too large to be sent does not
	if w.stream.Send(&rpcv1.DoReply{Id: a.req.Id, Outcomes: outcomes, MapGeneration: c.View.Generation()}) != nil {
		w.mute.Store(true)
	}
}

// mayDo reports whether a user may do an operation.
func mayDo(u *users.User, op *rpcv1.Operation) bool {
	if op.GetKind() == rpcv1.Operation_GROUP {
		ops, err := op.Group()
		return err != nil || !slices.ContainsFunc(ops, func(op *rpcv1.Operation) bool { return !mayDoAlone(u, op) })
	}
	return mayDoAlone(u, op)
}

// mayDoAlone reports whether a user may do an operation that is no group. A group in a group is
// refused, as other groups that are not well formed are, whoever sends it.
func mayDoAlone(u *users.User, op *rpcv1.Operation) bool {
	is := op.GetKind().Traits()
	if op.GetKind().IsScript() {
		may := true
		op.Keys(func(key []byte) { may = may && u.May(is.Reads, is.Changes, key) })
		return may
	}
	return op.GetKind() == rpcv1.Operation_GROUP || u.May(is.Reads, is.Changes, op.GetKey())
}

// mayDoAll reports whether a user may do all of some operations.
func mayDoAll(u *users.User, ops []*rpcv1.Operation) bool {
	for _, op := range ops {
		if !mayDo(u, op) {
			return false
		}
	}
	return true
}
