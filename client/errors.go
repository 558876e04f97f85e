package client

import (
	"errors"
	"fmt"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/partition"
)

// Why an operation failed. Every error of this package that came from a server is an *[Error] and wraps one of these.
var (
	// ErrNotFound is returned when the key is not there.
	ErrNotFound = errors.New("key not found")
	// ErrExists is returned by Insert when the key is there.
	ErrExists = errors.New("key exists")
	// ErrInvalid is returned when the index cannot have such a key or value; trying again is useless.
	ErrInvalid = errors.New("key or value does not fit the index")
	// ErrPoolFull is returned when the index used up its quota of memory. Nothing was done; reads and deletes go on.
	ErrPoolFull = errors.New("memory pool is full")
	// ErrUnavailable is returned when no server took the operation until the deadline. Nothing was done.
	ErrUnavailable = errors.New("no server took the operation")
	// ErrUnknown is returned when a server was lost before it confirmed a change. Whether it was done is not known.
	ErrUnknown = errors.New("outcome is unknown")
	// ErrDataLost is returned when a memory server lost its content; the index answers nothing until its owner decides.
	ErrDataLost = errors.New("index has lost data")
	// ErrUnauthorized is returned when the password, or the certificate, was refused.
	ErrUnauthorized = errors.New("access was refused")
	// ErrClosed is returned by a closed client.
	ErrClosed = errors.New("client is closed")
)

// Error says which operation failed, on which keys, at which server and why.
type Error struct {
	Op      string // "get", "put", ...
	Key     []byte // nil for scans
	Range   string // keys that the server was asked for, ["a", "m"); empty if none was
	Server  string // name and address; empty if none was asked
	Message string // of the server
	Err     error  // one of the above, or of a context
}

func (e *Error) Error() string {
	s := e.Op
	if e.Key != nil {
		s += fmt.Sprintf(" %q", e.Key)
	}
	s += ": " + e.Err.Error()
	if e.Server != "" {
		s += fmt.Sprintf(" (keys %s at %s)", e.Range, e.Server)
	}
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

// Unwrap returns e.Err.
func (e *Error) Unwrap() error { return e.Err }

// at puts where it happened into e.
func (e *Error) at(span partition.Span, s partition.Server) *Error {
	e.Range, e.Server = span.String(), fmt.Sprintf("server %d, %s, %s", s.ID, s.Name, s.RPC)
	return e
}

// causes of outcomes that are not OK.
var causes = map[rpcv1.Outcome_Code]error{
	rpcv1.Outcome_NOT_FOUND:      ErrNotFound,
	rpcv1.Outcome_ALREADY_EXISTS: ErrExists,
	rpcv1.Outcome_INVALID:        ErrInvalid,
	rpcv1.Outcome_POOL_FULL:      ErrPoolFull,
	rpcv1.Outcome_NOT_OWNER:      ErrUnavailable,
	rpcv1.Outcome_UNAVAILABLE:    ErrUnavailable,
	rpcv1.Outcome_TIMED_OUT:      ErrUnavailable,
	rpcv1.Outcome_UNKNOWN:        ErrUnknown,
	rpcv1.Outcome_DATA_LOST:      ErrDataLost,
}

func cause(code rpcv1.Outcome_Code) error {
	if err, ok := causes[code]; ok {
		return err
	}
	return ErrUnknown // a newer server; nothing can be said about it
}

var opNames = map[rpcv1.Operation_Kind]string{
	rpcv1.Operation_LOOKUP: "get",
	rpcv1.Operation_INSERT: "insert",
	rpcv1.Operation_UPDATE: "update",
	rpcv1.Operation_UPSERT: "put",
	rpcv1.Operation_DELETE: "delete",
}
