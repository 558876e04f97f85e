package engine

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/sortedset"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
)

// SET_ADD, by which programs that restore pairs add members of sorted sets. It is several
// operations, on keys of any server. So it runs where it was asked for, and holds no session.

// checkMember returns an error for a SET_ADD whose score is none.
func checkMember(op *rpcv1.Operation) error {
	if len(op.Operand) != 8 || math.IsNaN(scoreOf(op)) {
		return &Failure{Code: rpcv1.Outcome_INVALID, Message: "the score of a member is 8 bytes of a number, and nothing was done"}
	}
	return nil
}

func scoreOf(op *rpcv1.Operation) float64 {
	return math.Float64frombits(binary.BigEndian.Uint64(op.Operand))
}

func (l *Lanes) addsMember(i int) bool { return l.ops[i].Kind == rpcv1.Operation_SET_ADD }

// addsMembers reports whether some operations are SET_ADD.
func (l *Lanes) addsMembers(todo []int) bool { return slices.ContainsFunc(todo, l.addsMember) }

// addMembers takes those operations out of a lane that add members, and returns the others. They
// have a lane of their own.
func (l *Lanes) addMembers(todo []int, waits bool) (rest []int) {
	if !l.addsMembers(todo) {
		return todo
	}
	var own []int
	for _, i := range todo {
		if l.addsMember(i) {
			own = append(own, i)
		} else {
			rest = append(rest, i)
		}
	}
	if !waits || len(rest) > 0 {
		l.park(own, waits, nil)
		return rest
	}
	for len(own) > 0 {
		n := 1
		for n < len(own) && l.sameSet(own[0], own[n]) {
			n++
		}
		o := &rpcv1.Outcome{}
		if l.parts != nil && l.parts.Gone() {
			o = OutcomeOf(errGone)
		} else if err := l.c.addMembers(l.ops, own[:n], l.t, l.term); err != nil {
			o = OutcomeOf(SetFailure(err))
		}
		for _, i := range own[:n] {
			l.out[i] = o
		}
		own = own[n:]
	}
	l.end(todo, nil)
	return nil
}

// sameSet reports whether two operations add members to a set alike.
func (l *Lanes) sameSet(i, j int) bool {
	a, b := l.ops[i], l.ops[j]
	return bytes.Equal(a.Key, b.Key) && a.Condition == b.Condition && a.Expiry == b.Expiry && a.Number == b.Number
}

// addMembers adds the members of operations on one set, which gets their deadline then. A value of
// another type goes before, as other operations that store replace it.
func (c *Engine) addMembers(ops []*rpcv1.Operation, todo []int, t Timing, term uint64) error {
	first := ops[todo[0]]
	s, err := c.Sets(first.Key, true, env.Remaining(c.Env, t.Deadline), term)
	if err != nil {
		return err
	}
	pairs := make([]sortedset.Pair, len(todo))
	for n, i := range todo {
		pairs[n] = sortedset.Pair{Member: ops[i].Value, Score: scoreOf(ops[i])}
	}
	return addPairs(s, first, pairs)
}

// addPairs adds the members of operations as the first one of them.
func addPairs(s *sortedset.Sets, first *rpcv1.Operation, pairs []sortedset.Pair) error {
	keeps := first.Condition == rpcv1.Operation_ABSENT
	_, err := s.Add(first.Key, sortedset.Rule{Absent: keeps}, pairs)
	switch CodeOf(SetFailure(err)) {
	case rpcv1.Outcome_OK:
	case rpcv1.Outcome_WRONG_TYPE:
		if keeps {
			return index.ErrExists
		}
		value := &rpcv1.Operation{Kind: rpcv1.Operation_DELETE, Key: first.Key}
		if o := s.Index.Do([]*rpcv1.Operation{value})[0]; !o.Code.Meaning().Answer {
			return &sortedset.Failure{Outcome: o}
		}
		if _, err = s.Add(first.Key, sortedset.Rule{}, pairs); err != nil {
			return half("the value that the key had is deleted", err)
		}
	default:
		return err
	}
	if first.Expiry == rpcv1.Operation_KEEP {
		return nil
	}
	deadline := &rpcv1.Operation{Kind: rpcv1.Operation_EXPIRE, Key: first.Key, Expiry: first.Expiry, Number: first.Number}
	if o := s.Index.Do([]*rpcv1.Operation{deadline})[0]; !o.Code.Meaning().Answer {
		return half("the members were added, and the set may not have its deadline", &sortedset.Failure{Outcome: o})
	}
	return nil
}

// half is the error of an operation that has done something when err ended it: no error that says
// that nothing was done.
func half(done string, err error) error {
	code := CodeOf(SetFailure(err))
	if code == rpcv1.Outcome_DATA_LOST {
		return err
	}
	return &Failure{Code: rpcv1.Outcome_UNKNOWN, Message: done + ": " + cmp.Or(err.Error(), code.String())}
}
