package register

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"
)

// overlapping is a history of one key: clients use a register, each operation at some moment
// between its call and its return, or has no answer.
func overlapping(r *rand.Rand, clients, each int, unknown float64) []porcupine.Operation {
	type running struct {
		op   int // -1 = none
		took bool
		left int
	}
	var ops []porcupine.Operation
	var now any = Model.Init()
	clock := int64(0)
	all := make([]running, clients)
	for i := range all {
		all[i] = running{op: -1, left: each}
	}
	for busy := clients; busy > 0; {
		c := &all[r.IntN(clients)]
		if c.op < 0 && c.left == 0 {
			continue
		}
		clock++
		switch {
		case c.op < 0:
			c.left--
			in := Input{Verb: Verb(r.IntN(int(NumVerbs))), Key: "k"}
			if in.Verb.Changes() {
				in.Value = fmt.Sprint(len(ops), strings.Repeat(" ", r.IntN(4)))
			}
			c.op, c.took = len(ops), false
			ops = append(ops, porcupine.Operation{Input: in, Output: Output{Unknown: true}, Call: clock, Return: Never})
			continue
		case !c.took:
			o := &ops[c.op]
			out := now.(Output)
			if v := o.Input.(Input).Verb; !returnsValue(v) {
				out.Value = ""
			}
			c.took = true
			if r.Float64() < unknown {
				if r.IntN(2) == 0 {
					_, now = Model.Step(now, o.Input, o.Output)
				}
			} else {
				_, now = Model.Step(now, o.Input, out)
				o.Output = out
				continue
			}
		default:
			ops[c.op].Return = clock
		}
		if c.op = -1; c.left == 0 {
			busy--
		}
	}
	return ops
}

// spoil changes an answer.
func spoil(r *rand.Rand, ops []porcupine.Operation) {
	o := &ops[r.IntN(len(ops))]
	out := o.Output.(Output)
	if out.Unknown {
		return
	}
	if p := ops[r.IntN(len(ops))]; returnsValue(o.Input.(Input).Verb) && p.Input.(Input).Verb.Changes() && r.IntN(2) == 0 {
		o.Output = Output{Found: true, Value: p.Input.(Input).Value}
		return
	}
	if out.Found = !out.Found; !out.Found {
		out.Value = ""
	}
	o.Output = out
}

// TestSearchAgrees: search says of every short history what porcupine says.
func TestSearchAgrees(t *testing.T) {
	var said [2]int
	for seed := range uint64(20_000) {
		r := rand.New(rand.NewPCG(seed, 0))
		ops := overlapping(r, 1+r.IntN(4), 1+r.IntN(4), float64(r.IntN(3))/4)
		for range r.IntN(3) {
			spoil(r, ops)
		}
		want := porcupine.CheckOperations(Model, ops)
		got := newSearch(ops).result()
		if want && got != porcupine.Ok || !want && got != porcupine.Illegal {
			for _, o := range ops {
				t.Logf("%d to %d: %s", o.Call, o.Return, Model.DescribeOperation(o.Input, o.Output))
			}
			t.Fatalf("seed %d: porcupine says %v, search %v", seed, want, got)
		}
		if want {
			said[1]++
		} else {
			said[0]++
		}
	}
	if min(said[0], said[1]) < 2000 {
		t.Errorf("%d histories are wrong and %d right: both should be many", said[0], said[1])
	}
}

// stale makes a lookup find a value that was gone when it began: another lookup, that ended before,
// had found a later one.
func stale(t *testing.T, r *rand.Rand, ops []porcupine.Operation) {
	t.Helper()
	var found []int // lookups that found something
	for i, o := range ops {
		if out := o.Output.(Output); o.Input.(Input).Verb == Lookup && out.Found && !out.Unknown {
			found = append(found, i)
		}
	}
	for _, i := range r.Perm(len(found)) {
		for _, j := range found {
			for _, k := range found {
				first, second, third := ops[found[i]], ops[j], &ops[k]
				if first.Return < second.Call && second.Return < third.Call && first.Output != second.Output {
					third.Output = first.Output
					return
				}
			}
		}
	}
	t.Fatal("no three lookups one after the other")
}

// TestCrowdedKeyIsJudged: a history of many clients on one key, for which porcupine takes more than
// minutes, is judged after few tries, whether it is right or wrong.
func TestCrowdedKeyIsJudged(t *testing.T) {
	const most = 200_000
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		ops := overlapping(r, 24, 30, 0.02)
		s := newSearch(ops)
		if got := s.result(); got != porcupine.Ok || s.tries > most {
			t.Errorf("seed %d: a history that is right is judged %v, after %d tries", seed, got, s.tries)
		}
		t.Log(s.tries)
		stale(t, r, ops)
		s = newSearch(ops)
		got := s.result()
		if got != porcupine.Illegal || s.tries > most {
			t.Errorf("seed %d: a history that is wrong is judged %v, after %d tries", seed, got, s.tries)
		}
	}
}
