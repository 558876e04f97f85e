package verbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
)

// A two-sided call is a [Request] of kind [Call], alone in its list: the first Args bytes of Local
// go to the memory server's [Executor], and Local holds its answer when Wait returns nil. It is
// ordered after all that its caller's completed requests did, and sees it. What else runs at the
// same time, the caller's other queue pairs included, it sees as a READ does. A call changes
// nothing, so one whose queue pair died may be made again.
//
// The answer begins with a status and a length, 4 bytes each, little-endian; see [Request.Answer].
const (
	callHeader = 8

	// MaxCall bounds Local of a Call: request, and answer with its header.
	MaxCall = 64 << 10
)

// CallStatus says what became of a call.
type CallStatus uint32

// The statuses.
const (
	CallDone   CallStatus = iota
	CallBusy              // all threads for calls are taken
	CallFailed            // the executor cannot answer this request
)

// Errors of calls. The QP lives on.
var (
	// ErrBusy is returned when the memory server has no thread left for a call. Nothing was
	// executed: do it with one-sided requests.
	ErrBusy = errors.New("memory server has no thread left for a call")
	// ErrCall is returned when the executor of a memory server cannot answer a request: it is of
	// another version, or the memory is not as the caller thinks.
	ErrCall = errors.New("memory server cannot answer the call")
)

// Executor answers calls in a memory server, beside its memory. Safe for concurrent use.
type Executor interface {
	// Call answers a request of peer: it puts the answer into answer and says how long it is. It is
	// short, and waits for nobody. The bytes of request may be any. Nothing of its arguments is
	// kept. An error becomes CallFailed; what it says stays in the server.
	Call(peer Peer, near Near, request, answer []byte) (n int, err error)
}

// Near is a server's memory as an Executor sees it.
type Near interface {
	// Read copies len(dst) bytes from remote on, as a READ does: aligned words are whole, and in
	// any order. What is complete when it begins, it sees. ErrOutOfRange: they are not all in the
	// region.
	Read(region RegionID, remote uint64, dst []byte) error
}

// CallBytes is how large Local has to be for answers of n bytes.
func CallBytes(n int) int { return callHeader + n }

// SetAnswer makes Local what it is after a call: for providers. The n bytes of the answer stand
// behind the header already.
func (r *Request) SetAnswer(s CallStatus, n int) {
	binary.LittleEndian.PutUint32(r.Local, uint32(s))
	binary.LittleEndian.PutUint32(r.Local[4:], uint32(n))
}

// AnswerRoom is where the answer of a call goes: for providers.
func (r *Request) AnswerRoom() []byte { return r.Local[callHeader:] }

// Answer is what a call that has completed brought; it is part of Local. Errors: ErrBusy, ErrCall.
func (r *Request) Answer() ([]byte, error) {
	n := binary.LittleEndian.Uint32(r.Local[4:])
	switch CallStatus(binary.LittleEndian.Uint32(r.Local)) {
	case CallDone:
		if int64(n) <= int64(len(r.Local)-callHeader) {
			return r.Local[callHeader : callHeader+int(n)], nil
		}
		return nil, fmt.Errorf("answer of %d bytes where %d have room: %w", n, len(r.Local)-callHeader, ErrCall)
	case CallBusy:
		return nil, ErrBusy
	}
	return nil, ErrCall
}

// checkCall is what Check asks of a call.
func (r *Request) checkCall(a *Arena, c *Capabilities) error {
	switch {
	case !c.Calls:
		return ErrUnsupported
	case len(r.Local) < callHeader || len(r.Local) > MaxCall || r.Args < 0 || r.Args > len(r.Local):
		return ErrMalformed
	case !a.Contains(r.Local):
		return ErrNotRegistered
	}
	return nil
}

// Callers bounds how many calls a memory server executes at once. A provider that executes them
// where they arrive asks it before each. The zero value allows none. Safe for concurrent use.
type Callers struct {
	executor Executor
	most     int64
	busy     atomic.Int64
}

// NewCallers is for the options o.
func NewCallers(o ServerOptions) *Callers {
	return &Callers{executor: o.Executor, most: int64(o.WithDefaults().CallThreads)}
}

// Any reports whether calls can be executed at all.
func (c *Callers) Any() bool { return c.executor != nil }

// Call executes a call, or says at once that no thread is left for it.
func (c *Callers) Call(peer Peer, near Near, request, answer []byte) (CallStatus, int) {
	defer c.busy.Add(-1)
	if c.busy.Add(1) > c.most {
		return CallBusy, 0
	}
	return Execute(c.executor, peer, near, request, answer)
}

// Execute lets an executor answer, for providers with threads of their own.
func Execute(e Executor, peer Peer, near Near, request, answer []byte) (CallStatus, int) {
	n, err := e.Call(peer, near, request, answer)
	if err != nil || n < 0 || n > len(answer) {
		return CallFailed, 0
	}
	return CallDone, n
}
