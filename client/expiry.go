package client

import (
	"context"
	"encoding/binary"
	"math"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// Operations on when pairs expire. An index without spec.expiry refuses those that set a time, with
// ErrInvalid. Times count in milliseconds, by the clock of the server that is in charge of the key.
// A time that has passed removes the key at once.

// PutFor sets the value of key, and lets the key expire after so long.
func (c *Client) PutFor(ctx context.Context, key, value []byte, after time.Duration) error {
	_, err := c.modify(ctx, &rpcv1.Operation{Kind: rpcv1.Operation_STORE, Key: key, Value: value, Expiry: rpcv1.Operation_AFTER, Number: millis(after)})
	return err
}

// Expire lets key expire after so long, whether it expired before or not. ErrNotFound if it is not
// there.
func (c *Client) Expire(ctx context.Context, key []byte, after time.Duration) error {
	_, err := c.modify(ctx, &rpcv1.Operation{Kind: rpcv1.Operation_EXPIRE, Key: key, Expiry: rpcv1.Operation_AFTER, Number: millis(after)})
	return err
}

// Persist lets key not expire any more. ErrNotFound if it is not there.
func (c *Client) Persist(ctx context.Context, key []byte) error {
	_, err := c.modify(ctx, &rpcv1.Operation{Kind: rpcv1.Operation_EXPIRE, Key: key, Expiry: rpcv1.Operation_NEVER})
	return err
}

// TimeLeft is how long key still lasts, and whether it expires at all. ErrNotFound if it is not
// there.
func (c *Client) TimeLeft(ctx context.Context, key []byte) (left time.Duration, expires bool, err error) {
	o, err := c.modify(ctx, &rpcv1.Operation{Kind: rpcv1.Operation_DEADLINE, Key: key, Expiry: rpcv1.Operation_AFTER})
	if err != nil || o.Number < 0 {
		return 0, false, err
	}
	return time.Duration(min(o.Number, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond, true, nil
}

// storesHash makes the storing operation one that stores a hash: see Pair.Hash.
func storesHash(op *rpcv1.Operation) { stores(op, rpcv1.Operation_HASH_STORE) }

// addsMember makes the storing operation one that adds a member: see Pair.Member.
func addsMember(op *rpcv1.Operation, score float64) {
	stores(op, rpcv1.Operation_SET_ADD)
	op.Operand = binary.BigEndian.AppendUint64(nil, math.Float64bits(score))
}

// stores makes the storing operation one of another kind, which knows deadlines.
func stores(op *rpcv1.Operation, kind rpcv1.Operation_Kind) {
	if op.Kind == rpcv1.Operation_INSERT {
		op.Condition = rpcv1.Operation_ABSENT
	}
	if op.Kind != rpcv1.Operation_STORE {
		op.Expiry = rpcv1.Operation_NEVER
	}
	op.Kind = kind
}

// millis are the milliseconds of a time, of which a part counts as a whole one.
func millis(d time.Duration) int64 {
	n := d.Milliseconds()
	if time.Duration(n)*time.Millisecond < d {
		n++
	}
	return n
}

// setExpiry makes the storing operation one that stores until t, unless that is zero: see
// Pair.Expires.
func setExpiry(op *rpcv1.Operation, t time.Time) {
	if t.IsZero() {
		return
	}
	if op.Kind == rpcv1.Operation_INSERT {
		op.Condition = rpcv1.Operation_ABSENT
	}
	op.Kind, op.Expiry, op.Number = rpcv1.Operation_STORE, rpcv1.Operation_AT, t.UnixMilli()
}
