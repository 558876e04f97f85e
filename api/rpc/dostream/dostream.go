//env:real streams of gRPC are channels and goroutines

// Package dostream runs point operations over one pipelined Do stream of a compute server. Calls of
// many goroutines that come together travel in one batch. Compute servers forward with it, and the
// SDK is built on it.
package dostream

import (
	"errors"
	"sync"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// Bounds of one stream.
const (
	MaxUnanswered = 64 // batches without any answer; a server takes 256
	// batches of which a part is answered; those beyond count as unanswered. A server that lets
	// fewer operations wait answers the others UNAVAILABLE.
	MaxParked = 4096
	// Operations, as rpcv1.Weight counts them: of one batch, unless one call has more (a server
	// runs batches side by side), of one call, and of all that wait to be sent.
	MaxBatch  = 64
	MaxCall   = 1024
	MaxQueued = 16384
)

// TrailerAgain is set by a server that ends a stream with ABORTED and would go on with the caller
// on another one: the connection is old, or what the caller showed counts no more. Nothing was done
// of what is not answered, and the same server takes it. A server that drains does not set it.
const TrailerAgain = "dmindex-again"

// HeaderIndex names the index that the operations of a stream are for: its identity. A server of
// another one refuses the stream with FAILED_PRECONDITION. So operations that are meant for an
// index never take effect in one that was made anew, at the address of a server of the former one.
const HeaderIndex = "dmindex-index"

// HeaderKnows names what the sender of a stream knows beside the first version of the protocol.
// Servers answer in other words to those that do not name it. KnowsDenied is the outcome DENIED; it
// comes as INVALID to others.
const (
	HeaderKnows = "dmindex-knows"
	KnowsDenied = "denied"
)

// ErrQueueFull is returned when MaxQueued operations wait to be sent already. Nothing was done.
var ErrQueueFull = errors.New("too many operations wait for the server")

// ErrClosed is returned by a closed stream. Nothing was done.
var ErrClosed = errors.New("stream is closed")

// Error is how a call fails as a whole.
type Error struct {
	Sent bool // the operations may have reached the server: whether they were done is not known
	Err  error
}

func (e *Error) Error() string {
	if e.Sent {
		return "operations were sent, but not answered: " + e.Err.Error()
	}
	return "operations were not sent: " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Reply is what a server answered to one call.
type Reply struct {
	Outcomes   []*rpcv1.Outcome // one an operation
	Generation uint64           // of the server's partition map
}

// Options of a stream.
type Options struct {
	Forwarded bool // the caller is a compute server: the server may not forward again
	// of each operation at the server, if its caller waits for that long; 0 = the server's default
	Limit time.Duration
	Index string // the identity of the index that is meant; empty: any
	// The caller knows the outcome DENIED. A server that passes outcomes on does not: who asked it
	// may not.
	KnowsDenied bool
}

// Stream is a Do stream that is opened when it is first needed and again after it broke. Safe for
// concurrent use.
type Stream struct {
	client rpcv1.ComputeClient
	o      Options

	mu     sync.Mutex
	closed bool
	queue  []*Call // not sent yet, in order
	queued int     // the weight of queue
	awake  int     // callers that the last answer woke and that have not called since; a guess
	live   *live   // nil when no stream is open
}

// New makes a stream to the server behind client.
func New(client rpcv1.ComputeClient, o Options) *Stream { return &Stream{client: client, o: o} }

// Close fails everything that is under way.
func (s *Stream) Close() {
	s.mu.Lock()
	s.closed = true
	l := s.live
	s.mu.Unlock()
	if l != nil {
		s.fail(l, ErrClosed, false)
	}
}
