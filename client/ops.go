package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// maxOperation bounds key and value together. It is far above what any index takes, and low enough
// that no message of a stream, which operations of many goroutines share, becomes too large because
// of one of them.
const maxOperation = 32 << 10

// check refuses what no index takes.
func check(kind rpcv1.Operation_Kind, key, value []byte) error {
	if n := len(key) + len(value); n > maxOperation {
		return &Error{Op: opNames[kind], Key: bytes.Clone(key), Err: ErrInvalid, Message: fmt.Sprintf("key and value have %d bytes; no index takes more than %d", n, maxOperation)}
	}
	return nil
}

func (c *Client) doOne(ctx context.Context, kind rpcv1.Operation_Kind, key, value []byte) (answer []byte, err error) {
	w := c.watch(ctx, opNames[kind], 1)
	defer func() { w.reportCall(err) }()
	tasks, err := newTasks(kind, 1, func(int) ([]byte, []byte) { return key, value })
	if err != nil {
		return nil, err
	}
	c.run(ctx, tasks)
	w.noteServer(tasks[0])
	if err := c.failure(tasks[0]); err != nil {
		return nil, err
	}
	// The answers to a batch of many goroutines share a buffer; one value is not to keep it.
	return bytes.Clone(tasks[0].outcome.Value), nil
}

// Get reads the value of key; ErrNotFound if there is none.
func (c *Client) Get(ctx context.Context, key []byte) ([]byte, error) {
	value, err := c.doOne(ctx, rpcv1.Operation_LOOKUP, key, nil)
	if err == nil && value == nil {
		value = []byte{} // there, and empty
	}
	return value, err
}

// Put sets the value of key, whether it was there or not.
func (c *Client) Put(ctx context.Context, key, value []byte) error {
	_, err := c.doOne(ctx, rpcv1.Operation_UPSERT, key, value)
	return err
}

// Insert adds key with value; ErrExists if it is there.
func (c *Client) Insert(ctx context.Context, key, value []byte) error {
	_, err := c.doOne(ctx, rpcv1.Operation_INSERT, key, value)
	return err
}

// Update changes the value of key; ErrNotFound if it is not there.
func (c *Client) Update(ctx context.Context, key, value []byte) error {
	_, err := c.doOne(ctx, rpcv1.Operation_UPDATE, key, value)
	return err
}

// Delete removes key; ErrNotFound if it is not there.
func (c *Client) Delete(ctx context.Context, key []byte) error {
	_, err := c.doOne(ctx, rpcv1.Operation_DELETE, key, nil)
	return err
}

// Pair is a key and its value.
type Pair struct {
	Key, Value []byte
	// Expires is when the pair goes by itself, in whole milliseconds; zero = it does not.
	Expires time.Time
	// Hash is set where the key has a hash, of which Value has the fields and their values in the
	// order in which they came, each behind its length as an unsigned varint. An index without
	// spec.expiry has none.
	Hash bool
	// Member is set where the key has a sorted set, of which Value is a member and Score its score.
	// A set is as many pairs as it has members, in the order of these, and Expires is the set's. To
	// put such a pair adds the member to the set. Ended by an error, it may have been added.
	Member bool
	Score  float64
}

// GetMany reads many keys, side by side. values[i] is nil where keys[i] is not there. Values belong
// to the caller, but some of them share memory: a program that keeps few of many copies these.
func (c *Client) GetMany(ctx context.Context, keys [][]byte) (values [][]byte, err error) {
	w := c.watch(ctx, "get many", len(keys))
	defer func() { w.reportCall(err) }()
	tasks, err := newTasks(rpcv1.Operation_LOOKUP, len(keys), func(i int) ([]byte, []byte) { return keys[i], nil })
	if err != nil {
		return nil, err
	}
	c.run(ctx, tasks)
	values = make([][]byte, len(keys))
	for i, t := range tasks {
		if t.missing() {
			continue
		}
		if err := c.failure(t); err != nil {
			return nil, err
		}
		if values[i] = t.outcome.Value; values[i] == nil {
			values[i] = []byte{}
		}
	}
	return values, nil
}

// PutMany sets many pairs, side by side; pairs of the same key should not be among them, unless
// their order does not matter. It is not atomic: after an error each pair may be stored or not; the
// error speaks of the first pair, in their order, that has one.
func (c *Client) PutMany(ctx context.Context, pairs []Pair) (err error) {
	w := c.watch(ctx, "put many", len(pairs))
	defer func() { w.reportCall(err) }()
	tasks, err := putTasks(pairs, false)
	if err != nil {
		return err
	}
	c.run(ctx, tasks)
	return c.stored(tasks)
}

// DeleteMany removes many keys, side by side, and returns how many were there. A key should be
// among them once. It is not atomic: after an error each key may be removed or not; the error
// speaks of the first key, in their order, that has one, and deleted is how many are known to be
// removed.
func (c *Client) DeleteMany(ctx context.Context, keys [][]byte) (deleted int, err error) {
	w := c.watch(ctx, "delete many", len(keys))
	defer func() { w.reportCall(err) }()
	tasks, err := newTasks(rpcv1.Operation_DELETE, len(keys), func(i int) ([]byte, []byte) { return keys[i], nil })
	if err != nil {
		return 0, err
	}
	c.run(ctx, tasks)
	for _, t := range tasks {
		switch failed := c.failure(t); {
		case failed == nil:
			deleted++
		case err == nil && !t.missing():
			err = failed
		}
	}
	return deleted, err
}

// putTasks are tasks that store pairs; with keep, a key that is there keeps its value.
func putTasks(pairs []Pair, keep bool) ([]*task, error) {
	kind := rpcv1.Operation_UPSERT
	if keep {
		kind = rpcv1.Operation_INSERT
	}
	tasks, err := newTasks(kind, len(pairs), func(i int) ([]byte, []byte) { return pairs[i].Key, pairs[i].Value })
	for i, t := range tasks {
		t.keep = keep
		setExpiry(&t.op, pairs[i].Expires)
		switch p := &pairs[i]; {
		case p.Member:
			addsMember(&t.op, p.Score)
		case p.Hash:
			storesHash(&t.op)
		}
	}
	return tasks, err
}

// stored is the first error of tasks that ran and were made by putTasks.
func (c *Client) stored(tasks []*task) error {
	for _, t := range tasks {
		if err := c.failure(t); err != nil && !(t.keep && errors.Is(err, ErrExists)) {
			return err
		}
	}
	return nil
}
