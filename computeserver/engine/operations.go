package engine

import (
	"fmt"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// operation runs one operation in a session, and notes in o what else than a code its answer has.
// Values are appended to dst, which it returns extended.
type operation func(s *Session, op *rpcv1.Operation, dst []byte, o *rpcv1.Outcome) ([]byte, error)

// operations are what the kinds do. What else is to be known of a kind stands in rpcv1.Traits; the
// servers, the SDK and RESP go by that.
var operations = [rpcv1.Kinds]operation{
	rpcv1.Operation_LOOKUP: func(s *Session, op *rpcv1.Operation, dst []byte, o *rpcv1.Outcome) (_ []byte, err error) {
		o.Value, err = s.Lookup(op.Key, dst)
		return o.Value, err
	},
	rpcv1.Operation_INSERT: func(s *Session, op *rpcv1.Operation, dst []byte, _ *rpcv1.Outcome) ([]byte, error) {
		return dst, s.Insert(op.Key, op.Value)
	},
	rpcv1.Operation_UPDATE: func(s *Session, op *rpcv1.Operation, dst []byte, _ *rpcv1.Outcome) ([]byte, error) {
		return dst, s.Update(op.Key, op.Value)
	},
	rpcv1.Operation_UPSERT: func(s *Session, op *rpcv1.Operation, dst []byte, _ *rpcv1.Outcome) ([]byte, error) {
		return dst, s.Upsert(op.Key, op.Value)
	},
	rpcv1.Operation_DELETE: func(s *Session, op *rpcv1.Operation, dst []byte, _ *rpcv1.Outcome) ([]byte, error) {
		return dst, s.Delete(op.Key)
	},
	rpcv1.Operation_INCREMENT:       modify(increment),
	rpcv1.Operation_INCREMENT_FLOAT: modify(incrementFloat),
	rpcv1.Operation_APPEND:          modify(appendValue),
	rpcv1.Operation_SET_RANGE:       modify(setRange),
	rpcv1.Operation_EXCHANGE:        modify(exchange),
	rpcv1.Operation_REMOVE:          modify(removeValue),

	rpcv1.Operation_STORE: func(s *Session, op *rpcv1.Operation, dst []byte, o *rpcv1.Outcome) ([]byte, error) {
		if op.Condition == rpcv1.Operation_ALWAYS && op.Expiry != rpcv1.Operation_KEEP {
			return dst, s.upsertUntil(op.Key, op.Value, deadlineOf(op, 0, s.modification.now))
		}
		return storeIf(s, op, dst, o)
	},
	rpcv1.Operation_SWAP:   modify(swap),
	rpcv1.Operation_EXPIRE: modify(expire),
	rpcv1.Operation_TOUCH:  modify(touch),
	rpcv1.Operation_DEADLINE: func(s *Session, op *rpcv1.Operation, dst []byte, o *rpcv1.Outcome) ([]byte, error) {
		dst, deadline, err := s.lookupDeadline(op.Key, dst)
		switch o.Number = deadline; {
		case deadline == 0:
			o.Number = -1
		case op.Expiry == rpcv1.Operation_AFTER:
			o.Number = max(0, deadline-s.modification.now())
		}
		return dst, err
	},
}

// storeIf is STORE that depends on what the key has.
var storeIf = modify(store)

// Run runs one operation, which was checked, in a session. o, which is empty before, is its outcome
// if the index answered (rpcv1.Meaning); else the error is. The outcome's value lies in dst, which
// is written from its begin on and returned to be used again.
func Run(s *Session, op *rpcv1.Operation, dst []byte, o *rpcv1.Outcome) ([]byte, error) {
	if !op.Kind.Known() {
		return dst, unsupported(op.Kind)
	}
	dst, err := operations[op.Kind](s, op, dst[:0], o)
	o.Code = CodeOf(err)
	return dst, err
}

// unsupported is the error of an operation that this server does not know.
func unsupported(kind rpcv1.Operation_Kind) error {
	return &Failure{Code: rpcv1.Outcome_UNSUPPORTED, Message: fmt.Sprintf("operation kind %d is unknown to this server, and nothing was done; use it when all servers have a version that knows it", kind)}
}

// Check returns an error for operations that the index cannot run. A kind that this server does not
// know is not sent on to a server that may: which rights it needs, and whether it is safe to try
// again, is not known here.
func (c *Engine) Check(op *rpcv1.Operation) error {
	if !op.Kind.Known() {
		return unsupported(op.Kind)
	}
	if !op.Kind.Takes(op.Condition) {
		return &Failure{Code: rpcv1.Outcome_UNSUPPORTED, Message: fmt.Sprintf("condition %d of a %s is unknown to this server, and nothing was done; use it when all servers have a version that knows it", op.Condition, op.Kind.Label())}
	}
	if op.Expiry != rpcv1.Operation_KEEP && (!op.Kind.Traits().Timed || rpcv1.Operation_Expiry_name[int32(op.Expiry)] == "") {
		return &Failure{Code: rpcv1.Outcome_UNSUPPORTED, Message: fmt.Sprintf("expiry %d of a %s is unknown to this server, and nothing was done; use it when all servers have a version that knows it", op.Expiry, op.Kind.Label())}
	}
	if op.Expires() && !c.Index.Expires() {
		return errEndless
	}
	if err := c.CheckKey(op.Key); err != nil {
		return err
	}
	if err := c.CheckValue(op.Operand); err != nil {
		return err
	}
	return c.CheckValue(op.Value)
}

// errEndless is the error of an operation that asks for a deadline.
var errEndless error = &Failure{Code: rpcv1.Outcome_INVALID, Message: "pairs of this index do not expire, and nothing was done: its spec.expiry is Disabled, for good; use an index with spec.expiry: Enabled"}

// Stored is what the session prepares to store for an operation with a value (index.Session,
// Prepare); nil if the pair goes.
func Stored(is *rpcv1.Traits, value []byte) []byte {
	switch {
	case is.Removes:
		return nil
	case is.Stores && value != nil:
		return value
	}
	return nothing
}

var nothing = []byte{}
