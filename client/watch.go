package client

import (
	"context"
	"errors"
	"time"
)

// Call is a call of a client that has ended: see Options.OnCall.
type Call struct {
	// Op is what the call did, as Error.Op names it: "get", "put", "compare and swap", "scan".
	// GetMany is "get many", and so on; Load is "load".
	Op string
	// Keys is how many keys the call named. Of a scan it is how many pairs were delivered, of Load
	// how many were stored, and of a transaction how many keys its last attempt read or changed.
	Keys int
	// Server is the address of the server that was asked last. It is empty if none was, and for
	// calls that may ask several.
	Server string
	Began  time.Time
	Took   time.Duration
	// Err is the error that the call returned, and ErrExists of a PutIfAbsent that found a value.
	Err error
}

// classes are the errors of this package by a word each, for metrics and traces.
var classes = []struct {
	err    error
	class  string
	answer bool // of the index: nothing is wrong with it
}{
	{ErrNotFound, "not_found", true},
	{ErrExists, "exists", true},
	{ErrMismatch, "mismatch", true},
	{ErrWrongValue, "wrong_value", false},
	{ErrScript, "script", false},
	{ErrWrongType, "wrong_type", false},
	{ErrInvalid, "invalid", false},
	{ErrDenied, "denied", false},
	{ErrPoolFull, "pool_full", false},
	{ErrUnavailable, "unavailable", false},
	{ErrUnknown, "unknown", false},
	{ErrDataLost, "data_lost", false},
	{ErrUnsupported, "unsupported", false},
	{ErrUnauthorized, "unauthorized", false},
	{ErrClosed, "closed", false},
}

// Class is a word for the error of a call, one for each error of this package: "not_found" for
// ErrNotFound, "unavailable" for ErrUnavailable. It is empty without an error, and "other" for one
// that is not of this package, as a transaction's function may return. answer reports whether the
// error is an answer that a program may well expect: ErrNotFound, ErrExists and ErrMismatch.
func Class(err error) (class string, answer bool) {
	if err == nil {
		return "", true
	}
	for i := range classes {
		if c := &classes[i]; errors.Is(err, c.err) {
			return c.class, c.answer
		}
	}
	return "other", false
}

// watch is a call under way, for Options.OnCall. The zero value is one that nobody watches.
type watch struct {
	tell func(context.Context, Call)
	ctx  context.Context
	call Call
}

// watch begins to watch a call. Without OnCall it costs a comparison.
func (c *Client) watch(ctx context.Context, op string, keys int) (w watch) {
	if c.o.OnCall != nil {
		w = watch{c.o.OnCall, ctx, Call{Op: op, Keys: keys, Began: time.Now()}}
	}
	return w
}

// noteServer notes where the only task of a call went.
func (w *watch) noteServer(t *task) {
	if w.tell != nil && t.server != nil {
		w.call.Server = t.server.RPC
	}
}

// reportCall tells of the call.
func (w *watch) reportCall(err error) {
	if w.tell != nil {
		w.call.Took, w.call.Err = time.Since(w.call.Began), err
		w.tell(w.ctx, w.call)
	}
}
