package engine

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
)

// judgeLimit is of real time, for histories that nobody could judge. The longest ones take seconds
// of a processor, which a busy machine gives to others for minutes.
const judgeLimit = 10 * time.Minute

// judge reports what is wrong with the history.
func (w *ownWorld) judge() {
	var ops []porcupine.Operation
	for _, o := range w.log.ops {
		in, ok := o.Input.(asked)
		if !ok || !in.changes() && o.Output.(answered).unknown {
			continue
		}
		ops = append(ops, o)
	}
	ops = narrowed(ops)
	switch porcupine.CheckOperationsTimeout(registers, ops, judgeLimit) {
	case porcupine.Unknown:
		w.Report("the history could not be judged in time")
	case porcupine.Illegal:
		for _, part := range byKey(ops) {
			if len(part) > 0 && !porcupine.CheckOperations(registers, part) {
				var b bytes.Buffer
				slices.SortFunc(part, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
				for _, o := range part {
					fmt.Fprintf(&b, "\n  %d-%d program %d: %+v %+v", o.Call, o.Return, o.ClientId, o.Input, o.Output)
				}
				w.Report("the history of key %d is not linearizable:%s", part[0].Input.(asked).key, b.String())
				return
			}
		}
	}
}

func byKey(ops []porcupine.Operation) [][]porcupine.Operation {
	var parts [][]porcupine.Operation
	for _, o := range ops {
		k := o.Input.(asked).key
		for len(parts) <= k {
			parts = append(parts, nil)
		}
		parts[k] = append(parts[k], o)
	}
	return parts
}

// someValue is what all changes write that nobody has seen.
const someValue = 1<<32 - 1

// narrowed is a history with the same verdict that takes less time to judge: time doubles with each
// change whose outcome is not known. Such a change was done before the first answer that has its
// value, if no other change of the key has it. Changes of one kind whose values nobody has seen do
// the same. So they may write the same value, and one that was called earlier may be taken to be
// done earlier: in an order where it is not, the two can change places. What found a key in some
// state, and was under way all the time while something else found it in the same state, may be
// taken to be done beside that one: it is left out.
func narrowed(ops []porcupine.Operation) []porcupine.Operation {
	type written struct {
		key   int
		value uint32
	}
	// how many changes; the end of the first answer
	writers, seen := map[written]int{}, map[written]int64{}
	for _, o := range ops {
		in, out := o.Input.(asked), o.Output.(answered)
		if at := (written{in.key, in.value}); in.changes() {
			writers[at]++
		}
		if at := (written{in.key, out.value}); out.value != 0 {
			if first, ok := seen[at]; !ok || o.Return < first {
				seen[at] = o.Return
			}
		}
	}
	type class struct {
		key  int
		kind rpcv1.Operation_Kind
	}
	counts := map[class]int{}
	ops = slices.Clone(ops)
	slices.SortStableFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	for n := range ops {
		o := &ops[n]
		in, out := o.Input.(asked), o.Output.(answered)
		if !in.changes() || !out.unknown {
			continue
		}
		at := written{in.key, in.value}
		end, ok := seen[at]
		switch {
		case !ok || !in.stores():
			counts[class{in.key, in.kind}]++
			in.value, in.unseen = someValue, counts[class{in.key, in.kind}]
			o.Input = in
		case writers[at] == 1 && end > o.Call:
			o.Return = end
		}
	}
	return slices.DeleteFunc(ops, containing(ops))
}

// containing reports of an operation whether it can be left out: another one of the key found the
// same and was under way during a part of its time only.
func containing(ops []porcupine.Operation) func(porcupine.Operation) bool {
	type found struct {
		key   int
		what  uint32 // the value, 0 = the key was not there
		there bool   // it was there, whatever its value
	}
	finds := func(o porcupine.Operation) (found, bool) {
		in, out := o.Input.(asked), o.Output.(answered)
		is := found{key: in.key, what: out.value}
		switch {
		case in.changes() && (!out.refused || in.kind == rpcv1.Operation_UPSERT || in.kind == rpcv1.Operation_EXCHANGE):
			return found{}, false
		case in.changes() && out.value != 0: // refused, and a value: nothing else found that
			return found{}, false
		case in.changes():
			is.there = in.kind == rpcv1.Operation_INSERT
		default:
			is.there = out.present
		}
		return is, true
	}
	type span struct{ call, end int64 }
	all := map[found][]span{}
	for _, o := range ops {
		if is, ok := finds(o); ok {
			all[is] = append(all[is], span{o.Call, o.Return})
			if is.what != 0 {
				is = found{key: is.key, there: true}
				all[is] = append(all[is], span{o.Call, o.Return})
			}
		}
	}
	return func(o porcupine.Operation) bool {
		is, ok := finds(o)
		return ok && slices.ContainsFunc(all[is], func(other span) bool {
			return o.Call <= other.call && other.end <= o.Return && (o.Call < other.call || other.end < o.Return)
		})
	}
}

// register is the state of a key: its value, 0 for a key that is not there, and how many unseen
// changes of each kind were done.
type register struct {
	value uint32
	done  [rpcv1.Kinds]int
}

// registers is the model: each key is a register. Unseen changes of one kind are done in the order
// of their calls.
var registers = porcupine.Model{
	Partition: byKey,
	Init:      func() any { return register{} },
	Step: func(state, input, output any) (bool, any) {
		is, in, out := state.(register), input.(asked), output.(answered)
		if in.unseen > 0 {
			if is.done[in.kind] != in.unseen-1 {
				return false, is
			}
			is.done[in.kind]++
		}
		if !in.changes() {
			return out.present && is.value != 0 || !out.present && out.value == is.value, is
		}
		applies, next := true, in.value
		switch in.kind {
		case rpcv1.Operation_INSERT:
			applies = is.value == 0
		case rpcv1.Operation_UPDATE:
			applies = is.value != 0
		case rpcv1.Operation_DELETE, rpcv1.Operation_REMOVE:
			applies, next = is.value != 0, 0
		}
		if in.tells() && !out.unknown && out.value != is.value {
			return false, is
		}
		if !applies {
			return out.unknown || out.refused, is
		}
		is.value = next
		return !out.refused, is
	},
}

// TestNarrowedHistories judges random histories of one key, right and wrong ones, as they are and
// narrowed.
func TestNarrowedHistories(t *testing.T) {
	rnd := computeservertest.Seeded(t)
	var verdicts [2]int
	for range 20_000 {
		ops := someHistory(rnd)
		plain, narrow := porcupine.CheckOperations(registers, ops), porcupine.CheckOperations(registers, narrowed(ops))
		if plain != narrow {
			var b bytes.Buffer
			for _, o := range ops {
				fmt.Fprintf(&b, "\n  %d-%d: %+v %+v", o.Call, o.Return, o.Input, o.Output)
			}
			t.Fatalf("linearizable: %v, and narrowed: %v:%s", plain, narrow, b.String())
		}
		if plain {
			verdicts[1]++
		} else {
			verdicts[0]++
		}
	}
	if verdicts[0] < 2000 || verdicts[1] < 2000 {
		t.Errorf("%d wrong histories and %d right ones: one sort is hardly met", verdicts[0], verdicts[1])
	}
}

// someHistory is what some operations on one key might answer that are done at moments of their
// own, with one answer in some histories as it cannot be.
func someHistory(rnd *rand.Rand) []porcupine.Operation {
	type one struct {
		porcupine.Operation
		done int64
	}
	var all []one
	for n := range 4 + rnd.IntN(8) {
		in := asked{kind: rpcv1.Operation_Kind(1 + rnd.IntN(5))}
		switch rnd.IntN(6) {
		case 0:
			in.kind = rpcv1.Operation_EXCHANGE
		case 1:
			in.kind = rpcv1.Operation_REMOVE
		}
		if in.stores() {
			in.value = uint32(1 + n - rnd.IntN(2)) // some are written twice
			in.value = max(in.value, 1)
		}
		call := int64(3 * rnd.IntN(20))
		done := call + 1 + int64(rnd.IntN(12))
		all = append(all, one{porcupine.Operation{Input: in, Call: call, Return: done + 1 + int64(rnd.IntN(12))}, done})
	}
	slices.SortFunc(all, func(a, b one) int { return cmp.Compare(a.done, b.done) })
	is := register{}
	wrong := rnd.IntN(3 * len(all))
	var ops []porcupine.Operation
	for n, o := range all {
		in, before := o.Input.(asked), is
		_, next := registers.Step(is, in, answered{unknown: true})
		is = next.(register)
		var out answered
		switch {
		case !in.changes():
			out = answered{value: is.value}
			if is.value != 0 && rnd.IntN(3) == 0 {
				out = answered{present: true}
			}
			if n == wrong {
				out = answered{value: uint32(rnd.IntN(12))}
			}
		case in.kind == rpcv1.Operation_INSERT:
			out.refused = before.value != 0
		case in.kind != rpcv1.Operation_UPSERT && in.kind != rpcv1.Operation_EXCHANGE:
			out.refused = before.value == 0
		}
		if in.tells() {
			out.value = before.value
		}
		if in.changes() && rnd.IntN(2) == 0 {
			out, o.Return = answered{unknown: true}, 1<<63-1
			if rnd.IntN(3) == 0 {
				is = before // it was not done
			}
		} else if in.tells() && n == wrong {
			out.value = uint32(rnd.IntN(12))
		} else if in.changes() && n == wrong {
			out.refused = !out.refused
		}
		o.Output = out
		ops = append(ops, o.Operation)
	}
	return ops
}
