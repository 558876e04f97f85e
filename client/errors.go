package client

import (
	"errors"
	"fmt"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/keyrange"
	"github.com/dmindex/dmindex/pkg/partition"
)

// Why an operation failed. Every error of an operation is an *[Error] and wraps exactly one of
// these. Each says what became of the change that was asked for, by all attempts together: unless
// the text below says otherwise, nothing was done and nothing will be. An error of PutMany,
// DeleteMany or Load speaks of the key that it names; each of the others may be done or not.
//
// If the context ended, or Options.Limit was over, the error of an operation without an answer also
// wraps [context.Canceled] or [context.DeadlineExceeded]: that is why the operation ended, and the
// error above says what became of it.
var (
	// ErrNotFound is returned by Get, Update, Delete, CompareAndSwap and CompareAndDelete when the
	// key is not there.
	ErrNotFound = errors.New("key not found")
	// ErrExists is returned by Insert when the key is there.
	ErrExists = errors.New("key exists")
	// ErrMismatch is returned by CompareAndSwap and CompareAndDelete when the key has another
	// value, and by Transaction when a key that it read had another one each time, until its time
	// was over.
	ErrMismatch = errors.New("key has another value")
	// ErrWrongValue is returned by Increment of a Client or a Tx when the key's value, or the sum,
	// is not an integer of 64 bits. Nothing was done.
	ErrWrongValue = errors.New("value is not one for the operation")
	// ErrScript is returned by Eval when the script returned an error, or ended with one. What it
	// did before is done.
	ErrScript = errors.New("the script gave an error")
	// ErrWrongType is returned when the key has a hash, as Redis clients make them, and the
	// operation is one on strings. Nothing was done. GetMany ends with it, too.
	ErrWrongType = errors.New("key has a value of another type")
	// ErrInvalid is returned when the index cannot have such a key or value; trying again is
	// useless.
	ErrInvalid = errors.New("key or value does not fit the index")
	// ErrDenied is returned when the user has no right to the key, or to all keys of the range that
	// a scan asks for. Servers of earlier versions refuse a key with ErrInvalid.
	ErrDenied = errors.New("the user has no right to this")
	// ErrPoolFull is returned when the index used up its quota of memory. Nothing was done; reads
	// and deletes go on.
	ErrPoolFull = errors.New("memory pool is full")
	// ErrUnavailable is returned when no server took the operation until the deadline. Nothing was
	// done. A read that no server answered ends with it, too.
	ErrUnavailable = errors.New("no server took the operation")
	// ErrUnknown is returned when an attempt was sent and its answer did not arrive, and no later
	// attempt was answered. The change may have been done or not, and may still be done for a
	// bounded time (see Client). No read ends with it.
	ErrUnknown = errors.New("outcome is unknown")
	// ErrDataLost is returned when a memory server lost its content: the index answers nothing
	// until its owner decides. It is also returned by calls under way when the client learns that
	// the index was made anew (Options.OnMadeAnew). Nothing was done.
	ErrDataLost = errors.New("index has lost data")
	// ErrUnsupported is returned when the servers are older than this package and do not know the
	// operation. Nothing was done.
	ErrUnsupported = errors.New("servers do not know the operation")
	// ErrUnauthorized is returned when the password, or the certificate, was refused. Nothing was
	// done.
	ErrUnauthorized = errors.New("access was refused")
	// ErrClosed is returned by a closed client. Nothing was done; a change under way when Close was
	// called may end with ErrUnknown.
	ErrClosed = errors.New("client is closed")
)

// Error says which operation failed, on which keys, at which server and why.
type Error struct {
	Op      string // "get", "put", ...
	Key     []byte // nil for scans
	Range   string // keys that the server was asked for, ["a", "m"); empty if none was
	Server  string // name and address; empty if none was asked
	Message string // of the server
	Err     error  // one of the above
	// context.Canceled or context.DeadlineExceeded if that is why the operation ended, else nil
	Cause error
}

func (e *Error) Error() string {
	s := e.Op
	if e.Key != nil {
		s += " " + keyrange.Quote(e.Key)
	}
	s += ": " + e.Err.Error()
	if e.Cause != nil {
		s += ", " + e.Cause.Error()
	}
	if e.Server != "" {
		s += fmt.Sprintf(" (keys %s at %s)", e.Range, e.Server)
	}
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

// Unwrap returns e.Err and e.Cause.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.Cause}
}

// withPlace puts where it happened into e.
func (e *Error) withPlace(span partition.Span, s partition.Server) *Error {
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
	rpcv1.Outcome_UNSUPPORTED:    ErrUnsupported,
	rpcv1.Outcome_DENIED:         ErrDenied,
	rpcv1.Outcome_MISMATCH:       ErrMismatch,
	rpcv1.Outcome_WRONG_VALUE:    ErrWrongValue,
	rpcv1.Outcome_WRONG_TYPE:     ErrWrongType,
}

// cause is what an outcome of an operation means; changes is whether the operation changes
// anything.
func cause(code rpcv1.Outcome_Code, changes bool) error {
	err, ok := causes[code]
	if !ok { // a newer server; nothing can be said about it
		err = ErrUnknown
	}
	if err == ErrUnknown && !changes {
		err = ErrUnavailable
	}
	return err
}

var opNames = map[rpcv1.Operation_Kind]string{
	rpcv1.Operation_LOOKUP: "get",
	rpcv1.Operation_INSERT: "insert",
	rpcv1.Operation_UPDATE: "update",
	rpcv1.Operation_UPSERT: "put",
	rpcv1.Operation_DELETE: "delete",

	rpcv1.Operation_INCREMENT: "increment",
	rpcv1.Operation_EXCHANGE:  "compare and swap",
	rpcv1.Operation_REMOVE:    "compare and delete",

	rpcv1.Operation_STORE:    "put",
	rpcv1.Operation_EXPIRE:   "expire",
	rpcv1.Operation_DEADLINE: "time left",

	rpcv1.Operation_HASH_STORE: "put",
	rpcv1.Operation_SET_ADD:    "put",

	rpcv1.Operation_GROUP: "transaction",
}

// nameOf is the operation's name in errors.
func nameOf(op *rpcv1.Operation) string {
	if op.Condition == rpcv1.Operation_ABSENT {
		return "put if absent"
	}
	return opNames[op.Kind]
}
