package client

import (
	"fmt"
	"sync/atomic"

	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

// reach notes whether the servers of the map can be connected to. A program may have the map from a
// server behind a port-forward or a load balancer, and then dial pods that it cannot reach: each
// call waits for its whole context, as if the servers were away, so its error has to say what
// lacks.
type reach struct {
	ever   atomic.Bool
	missed atomic.Uint32          // attempts in a row that no connection came of
	last   atomic.Pointer[string] // address and reason of the last of these
}

// reachedNot is how many attempts in a row say that no server can be reached, where one could be.
const reachedNot = 3

// answered notes that a server answered.
func (r *reach) answered() {
	if r.missed.Load() != 0 {
		r.missed.Store(0)
	}
	if !r.ever.Load() {
		r.ever.Store(true)
	}
}

// failed notes an attempt that failed, if it has no connection.
func (r *reach) failed(l *link, err error) {
	if l.conn.GetState() == connectivity.Ready {
		return
	}
	why := err.Error()
	if s, ok := status.FromError(err); ok {
		why = s.Message()
	}
	why = l.address + ": " + why
	r.last.Store(&why)
	r.missed.Add(1)
}

// hint is what to do if no server can be reached; empty if one can.
func (r *reach) hint() string {
	n, last := r.missed.Load(), r.last.Load()
	if last == nil || n == 0 || n < reachedNot && r.ever.Load() {
		return ""
	}
	return fmt.Sprintf("no compute server could be connected to, of which the last was %s. A program connects to each compute pod at its own address, to which no port-forward and no load balancer leads: run it where it can, in the cluster for example", *last)
}

// explain adds the hint to an error that says that no server took the operation.
func (r *reach) explain(e *Error) {
	hint := r.hint()
	switch {
	case e.Err != ErrUnavailable || hint == "":
	case e.Message == "":
		e.Message = hint
	default:
		e.Message += "; " + hint
	}
}
