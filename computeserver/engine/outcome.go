package engine

import (
	"errors"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/internal/count"
	"github.com/dmindex/dmindex/pkg/index"
)

// CodeOf returns what an error of the index or of this package means to its caller. Everything else
// that depends on an error follows from its code: see classes.
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
	case errors.Is(err, index.ErrKeyTooLong), errors.Is(err, index.ErrValueTooLong):
		return rpcv1.Outcome_INVALID
	case errors.Is(err, index.ErrPoolFull):
		return rpcv1.Outcome_POOL_FULL
	case errors.Is(err, index.ErrNotOwner):
		return rpcv1.Outcome_NOT_OWNER
	case errors.Is(err, index.ErrDataLost):
		return rpcv1.Outcome_DATA_LOST
	case errors.Is(err, index.ErrTimeout):
		return rpcv1.Outcome_TIMED_OUT
	}
	var f *Failure
	if errors.As(err, &f) {
		return f.Code
	}
	// Every other error left the operation undone (index.Session).
	return rpcv1.Outcome_UNAVAILABLE
}

// class is what an outcome code means to those that do not look at the operation.
type class struct {
	kind    count.Kind
	refusal bool // nothing was done, and the session that said so can be used
}

// classes has every code. A code that is not here is of a newer server: an error.
var classes = [...]class{
	rpcv1.Outcome_OK:             {kind: count.OK},
	rpcv1.Outcome_NOT_FOUND:      {kind: count.Miss},
	rpcv1.Outcome_ALREADY_EXISTS: {kind: count.Miss},
	rpcv1.Outcome_INVALID:        {kind: count.Error, refusal: true},
	rpcv1.Outcome_POOL_FULL:      {kind: count.Error, refusal: true},
	rpcv1.Outcome_NOT_OWNER:      {kind: count.Error, refusal: true},
	rpcv1.Outcome_UNAVAILABLE:    {kind: count.Error},
	rpcv1.Outcome_UNKNOWN:        {kind: count.Error},
	rpcv1.Outcome_DATA_LOST:      {kind: count.Error},
	rpcv1.Outcome_TIMED_OUT:      {kind: count.Error},
	rpcv1.Outcome_UNSUPPORTED:    {kind: count.Error, refusal: true},
	rpcv1.Outcome_LATER:          {kind: count.Error},
	rpcv1.Outcome_DENIED:         {kind: count.Error, refusal: true},
}

func classOf(code rpcv1.Outcome_Code) class {
	if code < 0 || int(code) >= len(classes) {
		return class{kind: count.Error}
	}
	return classes[code]
}

// Kills reports whether a session that returned err cannot be used any more. Answers and refusals
// leave it usable: they are about the one operation.
func Kills(err error) bool {
	if err == nil {
		return false
	}
	is := classOf(CodeOf(err))
	return is.kind == count.Error && !is.refusal
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
	case KindOf(o) != count.Error:
	case errors.As(err, &f):
		o.Message = f.Message
	default:
		o.Message = err.Error()
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
	case o.Code == rpcv1.Outcome_OK && kind != rpcv1.Operation_LOOKUP:
		return &rpcv1.Outcome{Code: rpcv1.Outcome_UNKNOWN, Message: "whether it was done is not known: " + why.Error()}
	case KindOf(o) != count.Error:
		return OutcomeOf(notAnswered(why))
	}
	return o
}

// notAnswered is the error of a read whose result is withheld.
func notAnswered(why error) error {
	return &Failure{Code: rpcv1.Outcome_UNAVAILABLE, Message: "it was not answered, try again: " + why.Error()}
}

// KindOf returns the kind under which metrics count an outcome.
func KindOf(o *rpcv1.Outcome) count.Kind { return classOf(o.Code).kind }
