package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// Operations that read a pair and change it in one step, at the server. Nothing else happens to the
// key in between. Each is made once: where it may have been made and its answer was lost, the
// client does not repeat it, and the call ends with ErrUnknown.

// modify runs one of them. The outcome is nil without an answer of the index.
func (c *Client) modify(ctx context.Context, op *rpcv1.Operation) (o *rpcv1.Outcome, err error) {
	w := c.watch(ctx, nameOf(op), 1)
	defer func() { w.reportCall(err) }()
	tasks, err := newTasks(op.Kind, 1, func(int) ([]byte, []byte) { return op.Key, op.Value })
	if err == nil && len(op.Key)+len(op.Value)+len(op.Operand) > maxOperation {
		err = &Error{Op: nameOf(op), Key: bytes.Clone(op.Key), Err: ErrInvalid, Message: fmt.Sprintf("key and values have more than %d bytes; no index takes as many", maxOperation)}
	}
	if err != nil {
		return nil, err
	}
	t := tasks[0]
	t.op.Condition, t.op.Operand, t.op.Number, t.op.Expiry = op.Condition, bytes.Clone(op.Operand), op.Number, op.Expiry
	c.run(ctx, tasks)
	w.noteServer(t)
	if err = c.failure(t); err == nil || t.answered() {
		return t.outcome, err
	}
	return nil, err
}

// Increment adds delta to the value of key, a decimal integer of 64 bits, and returns what it is
// then. A key that is not there has the value 0. ErrWrongValue if the value is no such integer, or
// the sum is none. The value is then the sum in digits, as INCRBY of Redis writes it.
func (c *Client) Increment(ctx context.Context, key []byte, delta int64) (int64, error) {
	o, err := c.modify(ctx, &rpcv1.Operation{Kind: rpcv1.Operation_INCREMENT, Key: key, Number: delta})
	if err != nil {
		return 0, err
	}
	return o.Number, nil
}

// CompareAndSwap sets the value of key to new if it is old. ErrNotFound if key is not there,
// ErrMismatch if it has another value: nothing was done then.
func (c *Client) CompareAndSwap(ctx context.Context, key, old, new []byte) error {
	_, err := c.modify(ctx, &rpcv1.Operation{Kind: rpcv1.Operation_EXCHANGE, Key: key, Value: new, Condition: rpcv1.Operation_EQUAL, Operand: old})
	return err
}

// CompareAndDelete removes key if its value is old. ErrNotFound if key is not there, ErrMismatch if
// it has another value: nothing was done then.
func (c *Client) CompareAndDelete(ctx context.Context, key, old []byte) error {
	_, err := c.modify(ctx, &rpcv1.Operation{Kind: rpcv1.Operation_REMOVE, Key: key, Condition: rpcv1.Operation_EQUAL, Operand: old})
	return err
}

// PutIfAbsent adds key with value unless it is there. It returns the value that key has then, and
// whether it is the one that this call stored.
func (c *Client) PutIfAbsent(ctx context.Context, key, value []byte) (has []byte, stored bool, err error) {
	o, err := c.modify(ctx, &rpcv1.Operation{Kind: rpcv1.Operation_EXCHANGE, Key: key, Value: value, Condition: rpcv1.Operation_ABSENT})
	switch {
	case err == nil:
		return bytes.Clone(value), true, nil
	case errors.Is(err, ErrExists):
		return append([]byte{}, o.Value...), false, nil
	}
	return nil, false, err
}
