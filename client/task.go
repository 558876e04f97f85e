package client

import (
	"bytes"
	"errors"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/partition"
)

// task is one operation on its way.
type task struct {
	op      rpcv1.Operation
	outcome *rpcv1.Outcome    // of the last attempt
	server  *partition.Server // of the last attempt; nil = none was made
	at      int               // where server is in the map
	// instead of an outcome: ErrClosed, or one that wraps ErrUnauthorized or ErrDataLost; the
	// attempt did nothing
	err   error
	tries int
	keep  bool // an Insert to which it is all the same who stored a value for the key

	// of the first attempt that may have made the change, or may still make it; nil if none
	doubt *rpcv1.Outcome
	over  error // of the context, if the task ended with it
}

// newTasks are n tasks of a kind, in one slab, with copies of their keys and values in one buffer:
// an attempt that was given up may still read them when the caller has its own back.
func newTasks(kind rpcv1.Operation_Kind, n int, at func(i int) (key, value []byte)) ([]*task, error) {
	size := 0
	for i := range n {
		key, value := at(i)
		if err := check(kind, key, value); err != nil {
			return nil, err
		}
		size += len(key) + len(value)
	}
	buf, slab, tasks := make([]byte, 0, size), make([]task, n), make([]*task, n)
	clone := func(v []byte) []byte {
		if v == nil {
			return nil
		}
		from := len(buf)
		buf = append(buf, v...)
		return buf[from:len(buf):len(buf)]
	}
	for i := range slab {
		t := &slab[i]
		key, value := at(i)
		t.op.Kind, t.op.Key, t.op.Value = kind, clone(key), clone(value)
		tasks[i] = t
	}
	return tasks, nil
}

// changes reports whether the operation changes anything.
func (t *task) changes() bool { return t.op.Kind.Traits().Changes }

// isRepeatable reports whether the operation may be sent again although it may have been done.
func (t *task) isRepeatable() bool { return t.op.Repeatable() || t.keep }

// noteAttempt notes how an attempt ended.
func (t *task) noteAttempt(o *rpcv1.Outcome, err error) {
	t.outcome, t.err = o, err
	if err == nil && t.doubt == nil && cause(o.Code, t.changes()) == ErrUnknown {
		t.doubt = o
	}
}

// answered reports whether the last attempt has an answer of the index. If it has, doubts about
// earlier ones are settled: only a Put is sent again when it may have been done, or an Insert with
// keep, and it has done what it should.
func (t *task) answered() bool {
	return t.err == nil && t.outcome.Code.Meaning().Answer
}

// missing reports whether the key was not there.
func (t *task) missing() bool {
	return t.err == nil && t.outcome.Code == rpcv1.Outcome_NOT_FOUND
}

// worthRetrying reports whether the last attempt is worth another one.
func (t *task) worthRetrying() bool {
	if t.err != nil {
		return false
	}
	code := t.outcome.Code
	return code.Meaning().Retry || code == rpcv1.Outcome_UNKNOWN && t.isRepeatable()
}

// failure is the task's error, nil if it was done.
func (c *Client) failure(t *task) error {
	if t.err == nil && t.outcome.Code == rpcv1.Outcome_OK {
		return nil
	}
	e := &Error{Op: nameOf(&t.op), Key: bytes.Clone(t.op.Key)}
	switch {
	case t.err != nil:
		e.Message, e.Err = sentinel(t.err)
	default:
		e.Err, e.Message = cause(t.outcome.Code, t.changes()), t.outcome.Message
	}
	if t.answered() { // not a fault of somebody
		return e
	}
	if t.doubt != nil { // what a later attempt met says nothing of an earlier one
		last := e.Message
		if e.Message = t.doubt.Message; t.outcome != t.doubt {
			e.Message += "; then: " + e.Err.Error()
			if last != "" {
				e.Message += ": " + last
			}
		}
		e.Err = ErrUnknown
	}
	if e.Err == ErrUnavailable || e.Err == ErrUnknown {
		e.Cause = t.over
	}
	c.reach.explain(e)
	if t.server != nil {
		e.withPlace(c.Map().Range(t.op.Key), *t.server)
	}
	return e
}

// sentinel is which error of this package err wraps, and what it says beyond that.
func sentinel(err error) (message string, which error) {
	for _, which = range []error{ErrClosed, ErrUnauthorized, ErrDataLost} {
		if err == which {
			return "", which
		}
		if errors.Is(err, which) {
			return err.Error(), which
		}
	}
	return err.Error(), ErrUnavailable
}
