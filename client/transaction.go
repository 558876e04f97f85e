package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/keyrange"
)

// Tx is a transaction under way: see [Client.Transaction]. It is of one goroutine, and of one call
// of the function that got it.
type Tx struct {
	c       *Client
	ctx     context.Context
	reads   map[string]read
	digests []*rpcv1.Operation // of the keys that were read
	changes []*rpcv1.Operation
	at      map[string]int // of a key in changes
}

// read is what Get found.
type read struct {
	value []byte
	err   error // ErrNotFound, or of a hash ErrWrongType
}

// Transaction calls do, and then makes the changes that do asked its Tx for, in one step, if no key
// that do read has another value, type or deadline by then: no other operation on these keys comes
// in between, and a server that dies leaves all of the changes or none. Otherwise nothing is done,
// and do is called again, until the time of the call is over (ErrMismatch). So do works on nothing
// but tx, and what it leaves behind is of its last call. An error of do ends the transaction;
// nothing is done, and the error is returned as it is.
//
// All keys belong to one server, else the error is ErrInvalid: keys of one group of
// spec.partitioning.atomicPrefix always do. In an index of another design than dex all of them are
// one key. A transaction that changes nothing checks that the values were there together.
//
// ErrUnknown: the changes may have been made or not. Nobody repeats them. ErrUnsupported: the
// servers are older than transactions.
func (c *Client) Transaction(ctx context.Context, do func(tx *Tx) error) (err error) {
	var tx *Tx
	w := c.watch(ctx, opNames[rpcv1.Operation_GROUP], 0)
	defer func() { w.call.Keys = tx.keys(); w.reportCall(err) }()
	ctx, stop := withLimit(ctx, c.o.Limit)
	defer stop()
	for pause := retryFirst; ; pause = min(2*pause, retrySlowest) {
		tx = &Tx{c: c, ctx: ctx, reads: map[string]read{}, at: map[string]int{}}
		if err := do(tx); err != nil {
			return err
		}
		err := tx.commit()
		if !errors.Is(err, ErrMismatch) {
			return err
		}
		if !sleep(ctx, pause) {
			var e *Error
			errors.As(err, &e)
			e.Cause, e.Message = ctx.Err(), "others changed keys of this transaction each time, and nothing was done; let fewer programs change the same keys at once"
			return err
		}
	}
}

// Get reads the value of key, or the one that this transaction gave it; ErrNotFound if there is
// none. The value is the caller's until do returns, and is not to be changed.
func (tx *Tx) Get(key []byte) ([]byte, error) {
	if i, changed := tx.at[string(key)]; changed {
		if op := tx.changes[i]; op.Kind != rpcv1.Operation_DELETE {
			return op.Value, nil
		}
		return nil, &Error{Op: opNames[rpcv1.Operation_LOOKUP], Key: bytes.Clone(key), Err: ErrNotFound}
	}
	if r, there := tx.reads[string(key)]; there {
		return r.value, r.err
	}
	// In one step: a value that was there between two others would go with the digest of neither.
	key = bytes.Clone(key)
	ops := []*rpcv1.Operation{{Kind: rpcv1.Operation_DIGEST, Key: key}, {Kind: rpcv1.Operation_LOOKUP, Key: key}}
	outcomes, err := tx.c.group(tx.ctx, ops)
	for pause := retryFirst; errors.Is(err, ErrUnknown) && sleep(tx.ctx, pause); pause = min(2*pause, retrySlowest) {
		outcomes, err = tx.c.group(tx.ctx, ops) // it changes nothing
	}
	if err != nil {
		return nil, err
	}
	ops[0].Operand = outcomes[0].Value
	tx.digests = append(tx.digests, ops[0])
	r := read{value: append([]byte{}, outcomes[1].Value...)}
	if o := outcomes[1]; o.Code != rpcv1.Outcome_OK {
		r = read{err: &Error{Op: nameOf(ops[1]), Key: key, Err: cause(o.Code, false), Message: o.Message}}
	}
	tx.reads[string(key)] = r
	return r.value, r.err
}

// Put lets key have value, whatever it has.
func (tx *Tx) Put(key, value []byte) {
	tx.change(&rpcv1.Operation{Kind: rpcv1.Operation_UPSERT, Key: key, Value: value})
}

// PutFor is Put of a pair that expires after so long: see [Client.PutFor].
func (tx *Tx) PutFor(key, value []byte, after time.Duration) {
	tx.change(&rpcv1.Operation{Kind: rpcv1.Operation_STORE, Key: key, Value: value, Expiry: rpcv1.Operation_AFTER, Number: millis(after)})
}

// Increment adds delta to the value of key and returns what it is then: see [Client.Increment]. A
// deadline stays. The value is read as by Get: where many transactions count at one key each is
// called again for each other one.
func (tx *Tx) Increment(key []byte, delta int64) (int64, error) {
	failed := &Error{Op: opNames[rpcv1.Operation_INCREMENT], Key: bytes.Clone(key), Err: ErrWrongValue}
	value, err := tx.Get(key)
	n := int64(0)
	switch {
	case err == nil:
		if n, err = strconv.ParseInt(string(value), 10, 64); err != nil || strconv.FormatInt(n, 10) != string(value) {
			failed.Message = "value is not an integer or out of range"
			return 0, failed
		}
	case !errors.Is(err, ErrNotFound):
		return 0, err
	}
	if delta > 0 && n > math.MaxInt64-delta || delta < 0 && n < math.MinInt64-delta {
		failed.Message = "increment or decrement would overflow"
		return 0, failed
	}
	n += delta
	value = strconv.AppendInt(nil, n, 10)
	i, changed := tx.at[string(key)]
	switch {
	case !changed:
		tx.change(&rpcv1.Operation{Kind: rpcv1.Operation_STORE, Key: key, Value: value, Expiry: rpcv1.Operation_KEEP})
	case tx.changes[i].Kind == rpcv1.Operation_DELETE:
		tx.Put(key, value)
	default: // until when this transaction says
		tx.changes[i].Value = value
	}
	return n, nil
}

// Delete removes key, whether it is there or not.
func (tx *Tx) Delete(key []byte) { tx.change(&rpcv1.Operation{Kind: rpcv1.Operation_DELETE, Key: key}) }

// keys is how many keys were read or changed.
func (tx *Tx) keys() int {
	n := len(tx.reads)
	for key := range tx.at {
		if _, read := tx.reads[key]; !read {
			n++
		}
	}
	return n
}

// change notes a change. The last one of a key counts.
func (tx *Tx) change(op *rpcv1.Operation) {
	op.Key, op.Value = bytes.Clone(op.Key), append([]byte{}, op.Value...)
	if i, changed := tx.at[string(op.Key)]; changed {
		tx.changes[i] = op
		return
	}
	tx.at[string(op.Key)] = len(tx.changes)
	tx.changes = append(tx.changes, op)
}

// commit makes the changes, if what was read is still there. ErrMismatch: it is not.
func (tx *Tx) commit() error {
	ops := append(tx.digests, tx.changes...)
	if len(ops) == 0 {
		return nil
	}
	outcomes, err := tx.c.group(tx.ctx, ops)
	if err != nil {
		return err
	}
	for i, o := range outcomes { // servers of this version do not let a part of it fail
		if o.Code != rpcv1.Outcome_OK && o.Code != rpcv1.Outcome_NOT_FOUND {
			return &Error{Op: opNames[rpcv1.Operation_GROUP], Key: bytes.Clone(ops[0].Key), Err: ErrUnknown, Message: fmt.Sprintf("the transaction is done but for its change of %s: %s", keyrange.Quote(ops[i].Key), o.Message)}
		}
	}
	return nil
}

// group asks for operations in one step.
func (c *Client) group(ctx context.Context, ops []*rpcv1.Operation) ([]*rpcv1.Outcome, error) {
	t := &task{op: rpcv1.Operation{Kind: rpcv1.Operation_GROUP, Key: ops[0].Key}}
	refused := &Error{Op: nameOf(&t.op), Key: bytes.Clone(t.op.Key), Err: ErrInvalid}
	var err error
	if t.op.Value, err = rpcv1.AppendGroup(nil, ops); err != nil {
		refused.Message = err.Error()
		return nil, refused
	}
	if n := len(t.op.Value); len(ops) > rpcv1.MaxGroup || n > rpcv1.MaxGroupBytes {
		if ops[0].Kind == rpcv1.Operation_SCRIPT {
			refused.Message = fmt.Sprintf("a script of %d bytes, with its keys and arguments; at most %d are possible; give it less at a time", n, rpcv1.MaxGroupBytes)
			return nil, refused
		}
		refused.Message = fmt.Sprintf("%d reads and changes of %d bytes; a transaction has at most %d, and %d bytes; divide it", len(ops), n, rpcv1.MaxGroup, rpcv1.MaxGroupBytes)
		return nil, refused
	}
	c.run(ctx, []*task{t})
	if err := c.failure(t); err != nil {
		return nil, err
	}
	outcomes, err := t.outcome.GroupOutcomes(len(ops))
	if err != nil {
		refused.Err, refused.Message = ErrUnknown, err.Error()
		return nil, refused
	}
	return outcomes, nil
}
