package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/internal/count"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/partition"
)

// oneKey is a key, as an index holds it.
type oneKey struct {
	there bool
	value string
}

// apply runs an operation on it.
func (k *oneKey) apply(op *rpcv1.Operation) *rpcv1.Outcome {
	switch kind := op.Kind; {
	case kind == rpcv1.Operation_INSERT && k.there:
		return &rpcv1.Outcome{Code: rpcv1.Outcome_ALREADY_EXISTS}
	case kind != rpcv1.Operation_INSERT && kind != rpcv1.Operation_UPSERT && !k.there:
		return &rpcv1.Outcome{Code: rpcv1.Outcome_NOT_FOUND}
	case kind == rpcv1.Operation_LOOKUP:
		return &rpcv1.Outcome{Value: []byte(k.value)}
	case kind == rpcv1.Operation_DELETE:
		*k = oneKey{}
	default:
		*k = oneKey{true, string(op.Value)}
	}
	return &rpcv1.Outcome{}
}

// unruly is the owner of keys as another server meets it in its worst hours. What it has not run
// when a connection is lost it may still run later.
type unruly struct {
	Peers
	rnd     *rand.Rand
	keys    map[string]*oneKey
	under   []*rpcv1.Operation // under way, on a connection that is gone
	patient int                // calls that it still spoils
}

func (u *unruly) finish() {
	for _, op := range u.under {
		u.keys[string(op.Key)].apply(op)
	}
	u.under = nil
}

func (u *unruly) Do(_ context.Context, _ partition.Server, ops []*rpcv1.Operation, _ time.Duration, early func(some []*rpcv1.Outcome)) (out []*rpcv1.Outcome, err error) {
	if u.rnd.IntN(2) == 0 {
		u.finish()
	}
	defer func() {
		if u.rnd.IntN(2) == 0 && err == nil {
			u.finish()
		}
	}()
	how, until := u.rnd.IntN(6), u.rnd.IntN(len(ops)+1)
	if u.patient == 0 {
		how = 0
	}
	u.patient = max(u.patient-1, 0)
	refused := &rpcv1.Outcome{Code: rpcv1.Outcome_UNAVAILABLE, Message: "an operation before this one failed"}
	for i, op := range ops {
		switch {
		case how == 1 && i >= until: // the connection is lost
			u.under = append(u.under, op)
			continue
		case how == 2 && i >= until: // the session is taken away: a range moves
			out = append(out, refused)
			continue
		case how == 3 && i == until: // a memory server is lost
			if u.rnd.IntN(2) == 0 {
				u.keys[string(op.Key)].apply(op)
			}
			out = append(out, &rpcv1.Outcome{Code: rpcv1.Outcome_UNKNOWN, Message: "lost"})
			continue
		case how == 3 && i > until:
			out = append(out, refused)
			continue
		case how == 4:
			out = append(out, &rpcv1.Outcome{Code: rpcv1.Outcome_NOT_OWNER, Message: "not mine"})
			continue
		}
		o := u.keys[string(op.Key)].apply(op)
		if how == 5 { // its leases are gone
			o = Withheld(op.Kind, o, errors.New("stood still"))
		}
		out = append(out, o)
	}
	for early != nil && u.rnd.IntN(2) == 0 { // some are there before the others
		some := make([]*rpcv1.Outcome, len(ops))
		for i := range some {
			if some[i] = laterOutcome; i < len(out) && u.rnd.IntN(2) == 0 {
				some[i] = out[i]
			}
		}
		early(some)
	}
	if how == 1 {
		return nil, &Failure{Code: rpcv1.Outcome_UNKNOWN, Message: "the connection was lost"}
	}
	return out, nil
}

func (u *unruly) Start(to partition.Server, ops []*rpcv1.Operation, limit time.Duration, ended Waker) Started {
	return startBy(env.Real(), u, to, ops, limit, ended)
}

var laterOutcome = &rpcv1.Outcome{Code: rpcv1.Outcome_LATER}

// gathered takes the outcomes of operations that wait. Each counts when it first comes.
type gathered struct {
	out   []*rpcv1.Outcome
	ended env.Event
}

func (g *gathered) Park() bool { return true }
func (g *gathered) Leave()     { g.ended.Set() }
func (g *gathered) Gone() bool { return false }

func (*gathered) Context() context.Context { return context.Background() }

func (g *gathered) Answered(at []int, out []*rpcv1.Outcome) {
	for _, i := range at {
		if g.out[i] == nil {
			g.out[i] = out[i]
		}
	}
}

// explained reports whether operations, run in their order, give these outcomes and this end: a
// change in doubt may have been made or not, and what failed was not done.
func explained(k oneKey, ops []*rpcv1.Operation, out []*rpcv1.Outcome, end oneKey) bool {
	for i, op := range ops {
		switch o := out[i]; {
		case inDoubt(op, o):
			made := k
			made.apply(op)
			return explained(made, ops[i+1:], out[i+1:], end) || explained(k, ops[i+1:], out[i+1:], end)
		case KindOf(o) != count.Error:
			if want := k.apply(op); want.Code != o.Code || string(want.Value) != string(o.Value) {
				return false
			}
		}
	}
	return k == end
}

// TestForwardedOperationsKeepTheirOrder sends operations on two keys to an owner who loses
// connections, leases, sessions and ranges during them. What is answered, and what is
// there in the end, is what the operations give in their order.
func TestForwardedOperationsKeepTheirOrder(t *testing.T) {
	rnd := computeservertest.Seeded(t)
	c := newPair(t, env.Real(), func(open func() (ownership.Opened, error)) (ownership.Opened, error) { return open() })
	owner := &unruly{Peers: c.servers[0].Peers, rnd: rnd}
	c.servers[0].Peers = owner // nothing is asked of it yet
	doubts, answers := 0, 0
	for range 1500 {
		owner.keys, owner.patient = map[string]*oneKey{}, rnd.IntN(3)
		before, mine := map[string]oneKey{}, map[string][]int{}
		for _, key := range []string{"x", "y"} {
			owner.keys[key] = &oneKey{}
			if rnd.IntN(2) == 0 {
				*owner.keys[key] = oneKey{true, "old"}
			}
			before[key] = *owner.keys[key]
		}
		var ops []*rpcv1.Operation
		for i := range 2 + rnd.IntN(6) {
			key := string("xy"[rnd.IntN(2)])
			ops = append(ops, &rpcv1.Operation{Kind: rpcv1.Operation_Kind(1 + rnd.IntN(5)), Key: []byte(key), Value: fmt.Append(nil, i)})
			mine[key] = append(mine[key], i)
		}
		var out []*rpcv1.Outcome
		if rnd.IntN(2) == 0 {
			out = c.servers[0].Do(ops, false, time.Minute, 0)
		} else {
			g := &gathered{out: make([]*rpcv1.Outcome, len(ops)), ended: c.servers[0].Env.NewEvent()}
			c.servers[0].DoParts(ops, false, time.Minute, 0, g)
			g.ended.Wait(env.Forever) // all of them wait for the other server, in one lane
			out = g.out
		}
		owner.finish()
		for key, at := range mine {
			var o []*rpcv1.Operation
			var got []*rpcv1.Outcome
			for _, i := range at {
				o, got = append(o, ops[i]), append(got, out[i])
				if inDoubt(ops[i], out[i]) {
					doubts++
				} else if KindOf(out[i]) != count.Error {
					answers++
				}
			}
			if !explained(before[key], o, got, *owner.keys[key]) {
				t.Fatalf("%s was %v and is %v after %v, answered %v", key, before[key], *owner.keys[key], o, got)
			}
		}
	}
	if doubts < 500 || answers < 2000 {
		t.Errorf("only %d changes in doubt and %d answers", doubts, answers)
	}
}
