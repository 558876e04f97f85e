package control

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// dialBackoff tries a server that is away again and again, at most two seconds apart: memory
// servers restart in place.
var dialBackoff = backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second}

// ErrStale is returned when the partition map has another generation than was expected.
var ErrStale = errors.New("partition map has another generation")

// allocateError is the error of AllocateChunk as pool.Control promises it: a quota that is used up,
// nothing to adopt and a server that drains all mean that there is no chunk here.
func allocateError(err error) error {
	if code := status.Code(err); code == codes.ResourceExhausted || code == codes.FailedPrecondition {
		return fmt.Errorf("%w: %s", pool.ErrPoolFull, status.Convert(err).Message())
	}
	return err
}

// stranger is the error of a renewal as pool.Control promises it: a server that never told a client
// of what it passed refuses it.
func stranger(err error) error {
	if status.Code(err) == codes.InvalidArgument {
		return fmt.Errorf("%w: %s", verbs.ErrRefused, status.Convert(err).Message())
	}
	return err
}

// fenced is the error of a call that servers do not take from a fenced client.
func fenced(err error) error {
	if status.Code(err) == codes.Aborted {
		return fmt.Errorf("%w: %s", pool.ErrFenced, status.Convert(err).Message())
	}
	return err
}

// released is the error of Release as pool.Ranges promises it. OutOfRange comes from the ledger of
// the home alone, so it proves that nothing was released. ResourceExhausted proves nothing: gRPC
// makes it, and so does a server that has no room for the reply to a call that was done.
func released(err error) error {
	return fenced(kind(kind(err, codes.OutOfRange, pool.ErrHoldings), codes.FailedPrecondition, pool.ErrNotHeld))
}

// errorOf is the error of a call as pool.Control promises it. The server's message stays.
func errorOf(err error) error {
	s, ok := status.FromError(err)
	if !ok {
		return err // of this package
	}
	var kind error
	switch s.Code() {
	case codes.NotFound, codes.PermissionDenied, codes.Unauthenticated:
		kind = verbs.ErrRefused
	case codes.Unavailable:
		kind = verbs.ErrDisconnected
	case codes.DeadlineExceeded:
		kind = verbs.ErrTimeout
	case codes.Canceled: // calls have no other end than their limit and Close
		kind = verbs.ErrClosed
	case codes.Aborted:
		kind = ErrStale
	default:
		return err
	}
	return fmt.Errorf("%w: %s", kind, s.Message())
}
