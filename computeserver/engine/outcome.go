package engine

import (
	"errors"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/expiry"
	"github.com/dmindex/dmindex/computeserver/hash"
	"github.com/dmindex/dmindex/computeserver/internal/count"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/partition"
)

// CodeOf returns what an error of the index or of this package means to its caller. Everything else
// that depends on an error follows from its code: see rpcv1.Meaning.
func CodeOf(err error) rpcv1.Outcome_Code {
	switch {
	case err == nil:
		return rpcv1.Outcome_OK
	case errors.Is(err, index.ErrUnknown): // whatever else it is
		return rpcv1.Outcome_UNKNOWN
	case errors.Is(err, index.ErrNotFound):
		return rpcv1.Outcome_NOT_FOUND
	case errors.Is(err, index.ErrExists):
		return rpcv1.Outcome_ALREADY_EXISTS
	case errors.Is(err, index.ErrKeyTooLong), errors.Is(err, index.ErrValueTooLong), errors.Is(err, index.ErrGroupTooLarge):
		return rpcv1.Outcome_INVALID
	case errors.Is(err, index.ErrPoolFull):
		return rpcv1.Outcome_POOL_FULL
	case errors.Is(err, index.ErrNotOwner):
		return rpcv1.Outcome_NOT_OWNER
	case errors.Is(err, index.ErrDataLost):
		return rpcv1.Outcome_DATA_LOST
	case errors.Is(err, index.ErrTimeout):
		return rpcv1.Outcome_TIMED_OUT
	case errors.Is(err, expiry.ErrForm), errors.Is(err, hash.ErrForm):
		return rpcv1.Outcome_UNSUPPORTED
	case errors.Is(err, expiry.ErrType):
		return rpcv1.Outcome_WRONG_TYPE
	}
	var f *Failure
	if errors.As(err, &f) {
		return f.Code
	}
	// Every other error left the operation undone (index.Session).
	return rpcv1.Outcome_UNAVAILABLE
}

// Kills reports whether a session that returned err cannot be used any more. Answers and refusals
// leave it usable: they are about the one operation.
func Kills(err error) bool {
	return err != nil && !CodeOf(err).Meaning().Healthy
}

// Failure is an error with its outcome code.
type Failure struct {
	Code    rpcv1.Outcome_Code
	Message string
	waits   bool // for this server to take the keys over
}

func (f *Failure) Error() string { return f.Message }

// OutcomeOf returns err as an outcome. Plain answers have no message.
func OutcomeOf(err error) *rpcv1.Outcome {
	o := &rpcv1.Outcome{Code: CodeOf(err)}
	var f *Failure
	switch {
	case o.Code.Meaning().Answer:
	case errors.As(err, &f):
		o.Message = f.Message
	case o.Code == rpcv1.Outcome_POOL_FULL:
		o.Message = err.Error() + "; " + moreMemory
	default:
		o.Message = err.Error()
	}
	return o
}

// moreMemory is what to do where the index has used up its memory.
const moreMemory = "delete keys, or give the index more memory: a larger quota, or more memory servers"

// OutcomeAt is OutcomeOf with the key's range and owner, unless these say nothing.
func (c *Engine) OutcomeAt(m *partition.Map, key []byte, err error) *rpcv1.Outcome {
	o := OutcomeOf(err)
	if !o.Code.Meaning().Caller {
		o.Message = c.At(m, key, o.Message)
	}
	return o
}

// FailureOf returns an outcome as an error; nil for OK.
func FailureOf(o *rpcv1.Outcome) error {
	if o.Code == rpcv1.Outcome_OK {
		return nil
	}
	return &Failure{Code: o.Code, Message: o.Message}
}

// Withheld returns what is answered in place of an outcome that [Sessions.Repay] withheld. A change
// may have been made, and may be undone; every other operation is as if it had not been tried.
// Errors stay as they are.
func Withheld(kind rpcv1.Operation_Kind, o *rpcv1.Outcome, why error) *rpcv1.Outcome {
	switch {
	case o.Code == rpcv1.Outcome_OK && kind.Traits().Changes:
		return &rpcv1.Outcome{Code: rpcv1.Outcome_UNKNOWN, Message: "whether it was done is not known: " + why.Error()}
	case o.Code.Meaning().Pair:
		return OutcomeOf(notAnswered(why))
	}
	return o
}

// notAnswered is the error of a read whose result is withheld.
func notAnswered(why error) error {
	return &Failure{Code: rpcv1.Outcome_UNAVAILABLE, Message: "it was not answered, try again: " + why.Error()}
}

// KindOf returns the kind under which metrics count an outcome.
func KindOf(o *rpcv1.Outcome) count.Kind {
	switch {
	case o.Code == rpcv1.Outcome_OK:
		return count.OK
	case o.Code.Meaning().Answer:
		return count.Miss
	}
	return count.Error
}
