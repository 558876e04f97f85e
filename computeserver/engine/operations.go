package engine

import (
	"fmt"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/hash"
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
	rpcv1.Operation_INCREMENT:       modify(ofStrings, increment),
	rpcv1.Operation_INCREMENT_FLOAT: modify(ofStrings, incrementFloat),
	rpcv1.Operation_APPEND:          modify(ofStrings, appendValue),
	rpcv1.Operation_SET_RANGE:       modify(ofStrings, setRange),
	rpcv1.Operation_EXCHANGE:        modify(ofStrings, exchange),
	rpcv1.Operation_REMOVE:          modify(ofStrings, removeValue),

	rpcv1.Operation_STORE:  storeAs,
	rpcv1.Operation_SWAP:   modify(ofStrings, swap),
	rpcv1.Operation_EXPIRE: modify(ofAll, expire),
	rpcv1.Operation_TOUCH:  modify(ofStrings, touch),
	rpcv1.Operation_DEADLINE: func(s *Session, op *rpcv1.Operation, dst []byte, o *rpcv1.Outcome) ([]byte, error) {
		dst, is, err := s.lookupMark(op.Key, dst)
		switch o.Number = is.Deadline; {
		case is.Deadline == 0:
			o.Number = -1
		case op.Expiry == rpcv1.Operation_AFTER:
			o.Number = max(0, is.Deadline-s.modification.now())
		}
		return dst, err
	},

	rpcv1.Operation_HASH_GET:             getField,
	rpcv1.Operation_HASH_READ:            readHash,
	rpcv1.Operation_HASH_SET:             modify(ofHashes, setFields),
	rpcv1.Operation_HASH_DELETE:          modify(ofHashes, deleteFields),
	rpcv1.Operation_HASH_INCREMENT:       modify(ofHashes, incrementField),
	rpcv1.Operation_HASH_INCREMENT_FLOAT: modify(ofHashes, incrementFieldFloat),
	rpcv1.Operation_HASH_STORE:           storeAs,

	rpcv1.Operation_SET_HEAD:      readHead,
	rpcv1.Operation_SET_SWAP_HEAD: modify(ofSets, swapHead),
	rpcv1.Operation_SET_MEMBER:    changeMember,

	rpcv1.Operation_DIGEST: digest,
}

func init() { // these run operations
	operations[rpcv1.Operation_GROUP] = runGroup
	operations[rpcv1.Operation_SCRIPT], operations[rpcv1.Operation_SCRIPT_READ] = runScript, runScript
}

// storeAs is STORE and HASH_STORE.
func storeAs(s *Session, op *rpcv1.Operation, dst []byte, o *rpcv1.Outcome) ([]byte, error) {
	if op.Condition == rpcv1.Operation_ALWAYS && op.Expiry != rpcv1.Operation_KEEP {
		return dst, s.upsertMark(op.Key, op.Value, markOf(op, 0, s.modification.now))
	}
	return storeIf(s, op, dst, o)
}

// storeIf is one that depends on what the key has.
var storeIf = modify(ofAll, store)

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

// Check returns an error for operations that the index cannot run, and for those that servers alone
// use. A kind that this server does not know is not sent on to a server that may: which rights it
// needs, and whether it is safe to try again, is not known here.
func (c *Engine) Check(op *rpcv1.Operation) error {
	if c.Inner(op) {
		return ErrInner
	}
	return c.check(op)
}

// check is Check of what a server may ask for.
func (c *Engine) check(op *rpcv1.Operation) error {
	if !op.Kind.Known() {
		return unsupported(op.Kind)
	}
	if !op.Kind.Takes(op.Condition) {
		return &Failure{Code: rpcv1.Outcome_UNSUPPORTED, Message: fmt.Sprintf("condition %d of a %s is unknown to this server, and nothing was done; use it when all servers have a version that knows it", op.Condition, op.Kind.Label())}
	}
	if op.Expiry != rpcv1.Operation_KEEP && (!op.Kind.Traits().Timed || rpcv1.Operation_Expiry_name[int32(op.Expiry)] == "") {
		return &Failure{Code: rpcv1.Outcome_UNSUPPORTED, Message: fmt.Sprintf("expiry %d of a %s is unknown to this server, and nothing was done; use it when all servers have a version that knows it", op.Expiry, op.Kind.Label())}
	}
	if !c.Index.Expires() {
		switch {
		case op.Expires():
			return errEndless
		case op.Kind.Traits().Hash:
			return errNoHashes
		}
	}
	if op.Kind.IsScript() {
		return errScriptAlone
	}
	if op.Kind.Traits().Set && !c.hasSets() {
		return errNoSets
	}
	if err := c.CheckKey(op.Key); err != nil {
		return err
	}
	if err := c.CheckValue(op.Operand); err != nil {
		return err
	}
	if op.Kind == rpcv1.Operation_GROUP {
		return c.checkGroup(op)
	}
	switch op.Kind {
	case rpcv1.Operation_SET_ADD:
		return checkMember(op)
	case rpcv1.Operation_SET_MEMBER: // its value is not stored
		return nil
	}
	if err := c.CheckValue(op.Value); err != nil {
		return err
	}
	if op.Kind == rpcv1.Operation_HASH_STORE { // that takes the square of its length
		if err := hash.Check(op.Value); err != nil {
			return &Failure{Code: rpcv1.Outcome_INVALID, Message: err.Error()}
		}
	}
	return nil
}

// errNoHashes is the error of an operation on a hash: a stored value has no byte that says so.
var errNoHashes error = &Failure{Code: rpcv1.Outcome_INVALID, Message: "this index has no hashes, and nothing was done: its spec.expiry is Disabled, for good; use an index with spec.expiry: Enabled"}

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
