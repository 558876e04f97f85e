package engine

import (
	"bytes"
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

// addMembers takes those operations out of a lane that add members, and returns the others. They
// have a lane of their own.
func (l *lanes) addMembers(todo []int, waits bool) (rest []int) {
	adds := func(i int) bool { return l.ops[i].Kind == rpcv1.Operation_SET_ADD }
	if !slices.ContainsFunc(todo, adds) {
		return todo
	}
	var own []int
	for _, i := range todo {
		if adds(i) {
			own = append(own, i)
		} else {
			rest = append(rest, i)
		}
	}
	if !waits || len(rest) > 0 {
		l.park(own, waits)
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
		} else if err := l.c.addTo(l.ops, own[:n], l.t, l.term); err != nil {
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
func (l *lanes) sameSet(i, j int) bool {
	a, b := l.ops[i], l.ops[j]
	return bytes.Equal(a.Key, b.Key) && a.Condition == b.Condition && a.Expiry == b.Expiry && a.Number == b.Number
}

// addTo adds the members of operations on one set, which gets their deadline then. A value of
// another type goes before, as other operations that store replace it.
func (c *Engine) addTo(ops []*rpcv1.Operation, todo []int, t Timing, term uint64) error {
	first := ops[todo[0]]
	s, err := c.Sets(first.Key, true, env.Remaining(c.Env, t.Deadline), term)
	if err != nil {
		return err
	}
	pairs := make([]sortedset.Pair, len(todo))
	for n, i := range todo {
		pairs[n] = sortedset.Pair{Member: ops[i].Value, Score: scoreOf(ops[i])}
	}
	keeps := first.Condition == rpcv1.Operation_ABSENT
	_, err = s.Add(first.Key, sortedset.Rule{Absent: keeps}, pairs)
	switch CodeOf(SetFailure(err)) {
	case rpcv1.Outcome_OK:
	case rpcv1.Outcome_WRONG_TYPE:
		if keeps {
			return index.ErrExists
		}
		s.Index.Do([]*rpcv1.Operation{{Kind: rpcv1.Operation_DELETE, Key: first.Key}})
		if _, err = s.Add(first.Key, sortedset.Rule{}, pairs); err != nil {
			return err
		}
	default:
		return err
	}
	if first.Expiry == rpcv1.Operation_KEEP {
		return nil
	}
	deadline := &rpcv1.Operation{Kind: rpcv1.Operation_EXPIRE, Key: first.Key, Expiry: first.Expiry, Number: first.Number}
	if o := s.Index.Do([]*rpcv1.Operation{deadline})[0]; !o.Code.Meaning().Answer {
		return &sortedset.Failure{Outcome: o}
	}
	return nil
}
