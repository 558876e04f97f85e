package engine

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/expiry"
	"github.com/dmindex/dmindex/computeserver/sortedset"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
)

// Operations on the head of a sorted set. Its members are pairs of their own, which package
// sortedset keeps by operations on strings.

// readHead is SET_HEAD.
func readHead(s *Session, op *rpcv1.Operation, dst []byte, o *rpcv1.Outcome) ([]byte, error) {
	head, is, err := s.lookupMark(op.Key, dst)
	if err == nil && is.Type != expiry.SortedSet {
		err = expiry.ErrType
	}
	if err == nil {
		o.Value = head
	}
	return head, err
}

// swapHead is SET_SWAP_HEAD. The pair keeps its deadline.
func swapHead(m *modification, old []byte, found bool) (index.Action, error) {
	switch {
	case !bytes.Equal(old, m.op.Operand): // no head is empty
		return index.Keep, errMismatch
	case len(m.op.Value) > 0:
		m.put = append(m.put[:0], m.op.Value...)
		return index.Put, nil
	case found:
		return index.Remove, nil
	}
	return index.Keep, nil
}

// hasSets reports whether the index may have sorted sets.
func (c *Engine) hasSets() bool {
	return c.sets && c.Index.Expires() && c.Index.KeyType == config.KeyBytes
}

// innerEnd is above all keys of what sets consist of.
var innerEnd = []byte(sortedset.Prefix[:len(sortedset.Prefix)-1] + "u")

// ofSets reports whether a key is one of those that sorted sets consist of.
func (c *Engine) ofSets(key []byte) bool {
	return c.hasSets() && bytes.HasPrefix(key, []byte(sortedset.Prefix))
}

// Inner reports whether an operation is one that servers alone use: on the head of a sorted set, or
// on what one consists of.
func (c *Engine) Inner(op *rpcv1.Operation) bool {
	return op.Kind.Traits().Set && op.Kind != rpcv1.Operation_SET_ADD || c.ofSets(op.Key)
}

// ErrInner is the error of an operation that servers alone use.
var ErrInner error = &Failure{Code: rpcv1.Outcome_INVALID, Message: "keys that begin with the bytes ff ff and the letters set are those of members of sorted sets, and nothing was done; use another key"}

// errSetDigest is the error of a DIGEST of a sorted set: it would not change with the members.
var errSetDigest error = &Failure{Code: rpcv1.Outcome_WRONG_TYPE, Message: "the key has a sorted set, whose members lie on several servers: it cannot be watched, nor be in a transaction"}

// errSetInGroup is the error of a group that adds members.
var errSetInGroup error = &Failure{Code: rpcv1.Outcome_INVALID, Message: "the members of a sorted set lie on several servers: they cannot be changed in a transaction, and nothing was done"}

var errNoSets error = &Failure{Code: rpcv1.Outcome_INVALID, Message: "this index has no sorted sets, and nothing was done: they need keys of type Bytes and spec.expiry: Enabled, which it does not have, for good; use an index with both"}

// skipInner moves the near end out of the keys of what sets consist of.
func (s *scan) skipInner() {
	r, low := &s.rest, []byte(sortedset.Prefix)
	switch {
	case r.Inner || !s.c.hasSets():
	case r.Reverse && bytes.Compare(r.End, low) > 0 && bytes.Compare(r.End, innerEnd) <= 0:
		r.End = append(r.End[:0], low...)
	case !r.Reverse && bytes.Compare(r.Start, low) >= 0 && bytes.Compare(r.Start, innerEnd) < 0:
		r.Start = append(r.Start[:0], innerEnd...)
	}
}

// outside is part without the keys of what sets consist of, and what lies behind them. The near end
// is not among them.
func (s *scan) outside(part ScanRange) ScanRange {
	low := []byte(sortedset.Prefix)
	switch {
	case part.Inner || !s.c.hasSets():
	case part.Reverse:
		if (len(part.End) == 0 || bytes.Compare(part.End, low) > 0) && bytes.Compare(part.Start, innerEnd) < 0 {
			part.Start = innerEnd
		}
	case bytes.Compare(part.Start, low) < 0 && (len(part.End) == 0 || bytes.Compare(part.End, low) > 0):
		part.End = low
	}
	return part
}

// Sets returns the sorted sets of the index for one request about key. One that changes them begins
// no change after limit, which is counted from now. One that reads may last for readMost, whether
// somebody waits for it or not: each of its steps waits for no longer than limit. A server that is
// cut ends both at their next step. term is as of Do. Not safe for concurrent use; no session
// may be held.
func (c *Engine) Sets(key []byte, changes bool, limit time.Duration, term uint64) (*sortedset.Sets, error) {
	switch err := c.CheckKey(key); {
	case !c.hasSets():
		return nil, errNoSets
	case err != nil:
		return nil, err
	case c.ofSets(key):
		return nil, ErrInner
	}
	x := &setIndex{c: c, limit: limit, term: term}
	if changes {
		x.deadline = env.Deadline(c.Env, limit)
	} else {
		x.deadline = env.Deadline(c.Env, readMost)
	}
	return &sortedset.Sets{Index: x, MaxKey: c.Index.MaxKeyBytes, MaxValue: c.Index.MaxValueBytes}, nil
}

// setIndex implements sortedset.Index.
type setIndex struct {
	c        *Engine
	deadline time.Duration
	limit    time.Duration // of each step
	term     uint64
}

// timeLeft is how long a step may wait.
func (x *setIndex) timeLeft() time.Duration {
	return min(env.Remaining(x.c.Env, x.deadline), x.limit)
}

// readMost is how long a command reads a set.
const readMost = time.Minute

var errSetLate error = &Failure{Code: rpcv1.Outcome_TIMED_OUT, Message: "the time of the command was over before all members were read; ask for a smaller range"}

func (x *setIndex) Do(ops []*rpcv1.Operation) []*rpcv1.Outcome {
	l := &Lanes{c: x.c, ops: ops, inner: true, term: x.term}
	l.todo = l.begin(x.timeLeft())
	return l.Wait()
}

func (x *setIndex) Scan(start, end []byte, limit int, reverse bool, visit func(key, value []byte) bool) error {
	wait := x.timeLeft()
	if wait <= 0 {
		return &sortedset.Failure{Outcome: OutcomeOf(errSetLate)}
	}
	r := ScanRange{Start: start, End: end, Limit: uint64(limit), Reverse: reverse, Inner: true, Wait: wait}
	err := x.c.Scan(context.Background(), r, false, func(key, value []byte, _ expiry.Mark) bool { return visit(key, value) }, func() error { return nil })
	if err != nil {
		return &sortedset.Failure{Outcome: OutcomeOf(err)}
	}
	return nil
}

func (x *setIndex) OneOwner(a, b []byte) bool {
	if !x.c.Sessions.Groups() {
		return false
	}
	m := x.c.View.Route()
	_, one := x.c.View.Place(m, a)
	_, other := x.c.View.Place(m, b)
	return one == other
}

func (x *setIndex) Random() uint64 { return x.c.Env.Uint64() }

func (x *setIndex) Pause(try int) {
	most := time.Duration(min(try, 10)) * 100 * time.Microsecond
	x.c.Env.Sleep(time.Duration(x.c.Env.Uint64() % uint64(most)))
}

// sweepHeads removes heads of sets that nobody makes any more.
func (c *Engine) sweepHeads(heads *pairs) {
	for i := range heads.len() {
		key, head, _ := heads.pair(i)
		if sets, err := c.Sets(nil, true, c.Limit, 0); err == nil {
			_ = sets.Unmade(bytes.Clone(key), head) // the next round tries again
		}
	}
}

const (
	collectPause = 100 * time.Millisecond // between steps, at most
	collectRound = 2 * time.Second        // the least
)

// CollectSets removes what deleted sorted sets left, and completes changes of members that their
// servers did not, until End: sortedset.Sets.Collect, step by step, of what lies in the ranges that
// the map gives to this server. It rests as the sweeper does.
func (c *Engine) CollectSets() {
	var from []byte
	for !c.stopped.Load() {
		c.stopSets.Wait(c.collectSet(&from))
	}
}

// collectSet looks at the next keys, and returns how long to rest then.
func (c *Engine) collectSet(from *[]byte) time.Duration {
	if c.ends.Load() || c.Blocked() != nil || c.Sessions.Waiters() > 0 {
		return collectPause
	}
	at := *from
	if low := []byte(sortedset.Prefix); bytes.Compare(at, low) < 0 {
		at = low
	}
	span, ok := ownSpan(c.View.Current(), c.Self, at)
	sets, err := c.Sets(nil, true, c.Limit, 0)
	if !ok || err != nil || bytes.Compare(span.Start, innerEnd) >= 0 {
		*from = nil
		return collectRound
	}
	if bytes.Compare(at, span.Start) < 0 {
		at = span.Start
	}
	began := c.Env.Now()
	next, did, err := sets.Collect(at, span.End)
	c.Count.Swept.Add(uint64(did))
	switch {
	case next != nil: // what could not be collected waits for the next round
	case len(span.End) > 0:
		next = span.End
	default:
		*from = nil
		return collectRound
	}
	*from = append((*from)[:0], next...)
	if did == 0 && err != nil {
		return collectPause
	}
	return min(max(3*(c.Env.Now()-began), sweepRest), collectPause)
}

// SetFailure is an error of package sortedset as one of this package.
func SetFailure(err error) error {
	var f *sortedset.Failure
	if errors.As(err, &f) {
		return &Failure{Code: f.Outcome.Code, Message: f.Outcome.Message}
	}
	return err
}
