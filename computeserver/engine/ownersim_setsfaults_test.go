package engine

import (
	"bytes"
	"slices"
	"testing"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/sortedset"
	"github.com/dmindex/dmindex/pkg/env/simenv"
)

// setMistake is a fault put into sorted sets on purpose: it does the operations of a step in the
// place of the index.
type setMistake struct {
	name  string
	steps bool // it is about changes in several steps: members are added in no other way
	do    func(x *wrongSets, ops []*rpcv1.Operation) []*rpcv1.Outcome
}

// of is the index of one command that makes the mistake, if there is one.
func (m *setMistake) of(w *ownWorld, p *simenv.Process, right sortedset.Index) sortedset.Index {
	if m == nil {
		return right
	}
	return &wrongSets{Index: right, mistake: m, w: w, p: p, entries: map[string]bool{}, items: map[string][]byte{}, heads: map[string]*rpcv1.Outcome{}}
}

// wrongSets is an index of one command that makes a mistake.
type wrongSets struct {
	sortedset.Index
	mistake *setMistake
	w       *ownWorld
	p       *simenv.Process

	entries map[string]bool   // of changes that this command has begun
	items   map[string][]byte // what items had that were taken for settled
	heads   map[string]*rpcv1.Outcome
}

// Do implements sortedset.Index.
func (x *wrongSets) Do(ops []*rpcv1.Operation) []*rpcv1.Outcome { return x.mistake.do(x, ops) }

// OneOwner implements sortedset.Index.
func (x *wrongSets) OneOwner(a, b []byte) bool { return !x.mistake.steps && x.Index.OneOwner(a, b) }

// begins reports whether an operation is the first step of a change, and settles whether it is the
// last one.
func begins(op *rpcv1.Operation) bool {
	is, _ := itemOf(op.Key)
	return is && op.Kind == rpcv1.Operation_SWAP && op.Value[0] > 1
}

func settles(op *rpcv1.Operation) bool {
	is, _ := itemOf(op.Key)
	return is && op.Kind == rpcv1.Operation_SWAP && op.Value[0] == 1
}

// writesEntry reports whether an operation is the second step of a change.
func writesEntry(op *rpcv1.Operation) bool {
	return op.Kind == rpcv1.Operation_UPSERT && bytes.HasPrefix(op.Key, []byte(sortedset.Prefix))
}

// without does operations but some, which seem done.
func (x *wrongSets) without(ops []*rpcv1.Operation, leaves func(op *rpcv1.Operation) bool) []*rpcv1.Outcome {
	return doOthers(x.Index, ops, leaves)
}

// clone is an operation that can be changed: a command looks at its own again.
func clone(op *rpcv1.Operation) *rpcv1.Operation {
	return &rpcv1.Operation{Kind: op.Kind, Key: op.Key, Value: op.Value, Condition: op.Condition, Operand: op.Operand, Number: op.Number, Expiry: op.Expiry}
}

var setMistakes = []*setMistake{
	{"the entry is written before the item is pending", true, func(x *wrongSets, ops []*rpcv1.Operation) []*rpcv1.Outcome {
		for _, op := range ops {
			if begins(op) {
				entry := entryOf(op)
				x.entries[string(entry)] = true
				x.Index.Do([]*rpcv1.Operation{{Kind: rpcv1.Operation_UPSERT, Key: entry}})
				x.w.giveAway(x.p, entry)
			}
		}
		return x.without(ops, func(op *rpcv1.Operation) bool { return writesEntry(op) && x.entries[string(op.Key)] })
	}},
	{"who meets a pending item settles it without its entry", true, func(x *wrongSets, ops []*rpcv1.Operation) []*rpcv1.Outcome {
		for _, op := range ops {
			if begins(op) {
				x.entries[string(entryOf(op))] = true
			}
		}
		return x.without(ops, func(op *rpcv1.Operation) bool { return writesEntry(op) && !x.entries[string(op.Key)] })
	}},
	{"who meets a pending item takes it for settled", true, func(x *wrongSets, ops []*rpcv1.Operation) []*rpcv1.Outcome {
		all := make([]*rpcv1.Operation, len(ops))
		for i, op := range ops {
			all[i] = op
			if was := x.items[string(op.Key)]; was != nil && bytes.Equal(op.Operand, settledForm(was)) {
				all[i] = clone(op)
				all[i].Operand = was
			}
		}
		out := x.Index.Do(all)
		for i, o := range out {
			if is, _ := itemOf(ops[i].Key); is && ops[i].Kind == rpcv1.Operation_LOOKUP && o.Code == rpcv1.Outcome_OK && o.Value[0] > 1 {
				x.items[string(ops[i].Key)] = o.Value
				out[i] = &rpcv1.Outcome{Value: settledForm(o.Value)}
			}
		}
		return out
	}},
	{"a change is settled again when the item has another one", true, func(x *wrongSets, ops []*rpcv1.Operation) []*rpcv1.Outcome {
		all := make([]*rpcv1.Operation, len(ops))
		for i, op := range ops {
			if all[i] = op; settles(op) {
				all[i] = clone(op)
				all[i].Condition = rpcv1.Operation_ALWAYS
			}
		}
		return x.Index.Do(all)
	}},
	{"an item is compared, its range moves, and then it is stored", true, func(x *wrongSets, ops []*rpcv1.Operation) []*rpcv1.Outcome {
		var looks []*rpcv1.Operation
		all := make([]*rpcv1.Operation, len(ops))
		for i, op := range ops {
			if all[i] = op; begins(op) {
				looks = append(looks, &rpcv1.Operation{Kind: rpcv1.Operation_LOOKUP, Key: op.Key})
				all[i] = clone(op)
				all[i].Condition = rpcv1.Operation_ALWAYS
			}
		}
		if len(looks) == 0 {
			return x.Index.Do(ops)
		}
		found := x.Index.Do(looks)
		for i, op := range ops {
			if !begins(op) {
				continue
			}
			o := found[0]
			if found = found[1:]; o.Code != rpcv1.Outcome_OK && o.Code != rpcv1.Outcome_NOT_FOUND || !bytes.Equal(o.Value, op.Operand) {
				all[i] = op // it will not be done, or it will be as it should
			}
		}
		x.w.giveAway(x.p, looks[0].Key)
		return x.Index.Do(all)
	}},
	{"the head is not read again behind a new member", true, func(x *wrongSets, ops []*rpcv1.Operation) []*rpcv1.Outcome {
		var again []int
		for i, op := range ops {
			if op.Kind == rpcv1.Operation_SET_HEAD && len(ops) > 1 && x.heads[string(op.Key)] != nil {
				again = append(again, i)
			}
		}
		out := x.without(ops, func(op *rpcv1.Operation) bool { return len(again) > 0 && op.Kind == rpcv1.Operation_SET_HEAD })
		for _, i := range again {
			out[i] = x.heads[string(ops[i].Key)]
		}
		for i, op := range ops {
			switch {
			case op.Kind == rpcv1.Operation_SET_HEAD && out[i].Code == rpcv1.Outcome_OK:
				x.heads[string(op.Key)] = out[i]
			case op.Kind == rpcv1.Operation_SET_SWAP_HEAD && out[i].Code == rpcv1.Outcome_OK:
				x.heads[string(op.Key)] = &rpcv1.Outcome{Value: op.Value}
			}
		}
		return out
	}},
	{"a change of which it is not known whether it was made is made again", true, func(x *wrongSets, ops []*rpcv1.Operation) []*rpcv1.Outcome {
		out := x.Index.Do(ops)
		for i, op := range ops {
			if begins(op) && out[i].Code == rpcv1.Outcome_UNKNOWN {
				out[i] = &rpcv1.Outcome{Code: rpcv1.Outcome_MISMATCH}
			}
		}
		return out
	}},
	{"the former entry is deleted although the change was not settled", true, func(x *wrongSets, ops []*rpcv1.Operation) []*rpcv1.Outcome {
		out := x.Index.Do(ops)
		var former []*rpcv1.Operation
		for i, op := range ops {
			if settles(op) && op.Operand[0] >= 3 && bytes.Equal(op.Value[9:15], op.Operand[9:15]) && out[i].Code == rpcv1.Outcome_MISMATCH {
				was := &rpcv1.Operation{Key: op.Key, Value: append([]byte{1}, op.Operand[15:]...)}
				former = append(former, &rpcv1.Operation{Kind: rpcv1.Operation_DELETE, Key: entryOf(was)})
			}
		}
		if len(former) > 0 {
			x.Index.Do(former)
		}
		return out
	}},
	{"the mark of a former entry stays when the item is settled", false, func(x *wrongSets, ops []*rpcv1.Operation) []*rpcv1.Outcome {
		settles := slices.ContainsFunc(ops, writesEntry)
		return x.without(ops, func(op *rpcv1.Operation) bool { return settles && unmarks(op) || deletesEntry(op) })
	}},
	{"the mark of an entry stays when the item is removed in steps", false, func(x *wrongSets, ops []*rpcv1.Operation) []*rpcv1.Outcome {
		settles := slices.ContainsFunc(ops, writesEntry)
		return x.without(ops, func(op *rpcv1.Operation) bool { return !settles && unmarks(op) || deletesEntry(op) })
	}},
	{"an entry that is written before its item is settled has the mark", false, func(x *wrongSets, ops []*rpcv1.Operation) []*rpcv1.Outcome {
		all := make([]*rpcv1.Operation, len(ops))
		for i, op := range ops {
			if all[i] = op; writesEntry(op) {
				all[i] = clone(op)
				all[i].Value = sortedset.Mark
			}
		}
		return x.Index.Do(all)
	}},
	{"a change in one step goes on although the item is another one", false, func(x *wrongSets, ops []*rpcv1.Operation) []*rpcv1.Outcome {
		out := x.Index.Do(ops)
		var entries []*rpcv1.Operation
		for i, op := range ops {
			if op.Kind == rpcv1.Operation_SET_MEMBER && len(op.Value) > 0 && out[i].Code == rpcv1.Outcome_MISMATCH {
				entries = append(entries, &rpcv1.Operation{Kind: rpcv1.Operation_UPSERT, Key: entryOf(op), Value: sortedset.Mark})
			}
		}
		if len(entries) > 0 {
			x.Index.Do(entries)
		}
		return out
	}},
}

// unmarks reports whether an operation takes the mark of an entry away.
func unmarks(op *rpcv1.Operation) bool {
	return op.Kind == rpcv1.Operation_UPDATE && bytes.HasPrefix(op.Key, []byte(sortedset.Prefix))
}

// deletesEntry reports whether an operation deletes an entry, which may always fail.
func deletesEntry(op *rpcv1.Operation) bool {
	return op.Kind == rpcv1.Operation_DELETE && bytes.HasPrefix(op.Key, []byte(sortedset.Prefix))
}

// settledForm is an item when its change is whole.
func settledForm(item []byte) []byte { return append([]byte{1}, item[1:15]...) }

// TestSetMovesCatchMistakes: each fault that is put in on purpose is found, also those of the
// servers below. Each search begins at the seed that finds the fault; where the worlds of seeds
// change, the log says which one does then.
func TestSetMovesCatchMistakes(t *testing.T) {
	const within = 400
	caught := func(name string, run ownRun, from uint64) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := from; seed < from+within; seed++ {
				run.seed, run.dex, run.sets = 2*seed, true, true
				if rep := run.do(); rep.err != nil {
					t.Logf("%s: caught by seed %d: %.300v", name, seed, rep.err)
					return
				}
			}
			t.Errorf("not caught by %d seeds from %d on", within, from)
		})
	}
	for i, from := range []uint64{14, 1, 9, 8, 3, 145, 44, 124, 12, 39, 13, 2} {
		caught(setMistakes[i].name, ownRun{fault: setMistakes[i]}, from)
	}
	caught(string(replyEarly), ownRun{wrong: replyEarly}, 0)
	caught(string(settleFirst), ownRun{wrong: settleFirst}, 6)
}
