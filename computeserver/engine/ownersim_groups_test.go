package engine

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/env/simenv/simtest"
	"github.com/dmindex/dmindex/pkg/index"
)

// Groups beside moves and trouble: programs read, change and watch a few keys of their own in
// groups of one to three. The keys mostly belong to one server, and to several after some maps. All
// that was answered has to be what one register with several fields answers, whose operations are
// the groups.

const (
	groupedKeys   = 4
	mostGroups    = 60 // in a run: the judge's time doubles with operations that overlap
	groupPrograms = 3
)

// groupedKey is one of the keys that only groups change.
func groupedKey(n int) []byte { return []byte{[groupedKeys]byte{0x3c, 0x3e, 0x54, 0x58}[n], 0xff} }

// fields is what the keys have; 0 = not there.
type fields [groupedKeys]uint32

// groupAsked is a group: each key is read, or gets a value, if those that are watched have what
// they had.
type groupAsked struct {
	keys    []int
	puts    []uint32 // of keys; 0 = it is read
	watched bool
	had     []uint32 // of keys, if watched
}

type groupAnswered struct {
	unknown, mismatch bool
	had               []uint32 // of keys
}

func (in groupAsked) changes() bool { return slices.Max(in.puts) > 0 }

// grouped judges.
var grouped = porcupine.Model{
	Init: func() any { return fields{} },
	Step: func(state, input, output any) (bool, any) {
		is, in, out := state.(fields), input.(groupAsked), output.(groupAnswered)
		had := make([]uint32, 0, groupedKeys)
		for _, n := range in.keys {
			had = append(had, is[n])
		}
		if in.watched && !slices.Equal(had, in.had) {
			return out.unknown || out.mismatch, is
		}
		for i, n := range in.keys {
			if in.puts[i] > 0 {
				is[n] = in.puts[i]
			}
		}
		return out.unknown || !out.mismatch && slices.Equal(had, out.had), is
	},
}

// groupWorld is what the programs did.
type groupWorld struct {
	ops                           []porcupine.Operation
	doubts                        int
	done, split, missed, rejected int
	scripts                       int // of done
}

// groupProgram sends groups.
func (w *ownWorld) groupProgram(n int) {
	p := w.NewProcess(fmt.Sprint("groups-", n))
	p.Go("main", func() {
		var last *groupAsked // a group that read, with what it found
		for value := uint32(n + 1); !w.quiet && len(w.groups.ops) < mostGroups; value += 16 * groupedKeys {
			p.Sleep(w.UpTo(400 * time.Millisecond))
			all := w.running()
			if len(all) == 0 {
				continue
			}
			in := groupAsked{keys: w.Random.Perm(groupedKeys)[:1+w.Random.IntN(3)]}
			if last != nil && w.OneIn(2) {
				in = groupAsked{keys: last.keys, had: last.had, watched: true}
			}
			for i := range in.keys {
				in.puts = append(in.puts, 0)
				if w.groups.doubts < mostDoubts && !w.OneIn(3) {
					in.puts[i] = value + 16*uint32(i)
				}
			}
			out, digested := w.sendGroup(p, n, all[w.Random.IntN(len(all))], in)
			if last = nil; digested && out.had != nil {
				last = &groupAsked{keys: in.keys, had: out.had}
				for i, v := range in.puts {
					if v > 0 {
						last.had = slices.Clone(last.had)
						last.had[i] = v
					}
				}
			}
		}
	})
}

// sendGroup asks for a group, and notes what came of it. ok: it has an answer.
func (w *ownWorld) sendGroup(p *simenv.Process, program int, d *pod, in groupAsked) (out groupAnswered, ok bool) {
	g := &w.groups
	var ops []*rpcv1.Operation
	for i, n := range in.keys {
		if in.watched {
			ops = append(ops, &rpcv1.Operation{Kind: rpcv1.Operation_DIGEST, Key: groupedKey(n), Operand: w.digestOf(in.had[i])})
		}
	}
	for i, n := range in.keys {
		op := &rpcv1.Operation{Kind: rpcv1.Operation_LOOKUP, Key: groupedKey(n)}
		if in.puts[i] > 0 {
			op.Kind, op.Value = rpcv1.Operation_EXCHANGE, w.value(in.puts[i])
		}
		ops = append(ops, op)
	}
	scripted := w.OneIn(3)
	if scripted {
		ops = append(ops[:len(ops)-len(in.keys)], w.scriptOf(in))
	}
	value, err := rpcv1.AppendGroup(nil, ops)
	if err != nil {
		w.Report("%v", err)
		return out, false
	}
	g.ops = append(g.ops, porcupine.Operation{ClientId: program, Input: in, Call: w.log.tick(), Output: groupAnswered{unknown: true}, Return: 1<<63 - 1})
	at := len(g.ops) - 1
	answers := w.ask(p, d, []*rpcv1.Operation{{Kind: rpcv1.Operation_GROUP, Key: ops[0].Key, Value: value}}, false, 2*ownLimit)
	if answers == nil {
		answers = []*rpcv1.Outcome{{Code: rpcv1.Outcome_UNKNOWN}}
	}
	switch o := answers[0]; o.Code {
	case rpcv1.Outcome_OK:
		g.done++
		all, err := o.GroupOutcomes(len(ops))
		if err != nil {
			w.Report("%v", err)
			return out, false
		}
		if scripted {
			g.scripts++
			all = append(all[:len(all)-1], w.scriptAnswered(all[len(all)-1])...)
		}
		for i, o := range all[len(all)-len(in.keys):] {
			had := uint32(0)
			if o.Code == rpcv1.Outcome_OK && len(o.Value) > 0 {
				had = w.number(in.keys[i], o.Value)
			}
			out.had = append(out.had, had)
		}
	case rpcv1.Outcome_MISMATCH:
		g.missed++
		out.mismatch = true
	case rpcv1.Outcome_UNKNOWN:
		if in.changes() {
			g.doubts++
		}
		return out, false
	case rpcv1.Outcome_INVALID:
		switch {
		case strings.Contains(o.Message, "belong to different servers"):
			g.split++
		case scripted && strings.Contains(o.Message, "others changed the script's keys"):
			g.rejected++
		case !strings.Contains(o.Message, "at most 2 with this cache"): // the smallest one
			w.Report("a group is answered by %v: %s", o.Code, o.Message)
		}
		g.ops[at].Input = nil
		return out, false
	default:
		g.rejected++
		g.ops[at].Input = nil
		return out, false
	}
	g.ops[at].Output, g.ops[at].Return = out, w.log.tick()
	return out, true
}

// digestOf is what DIGEST answers for a key with the value of a number.
func (w *ownWorld) digestOf(n uint32) []byte {
	var pairs groupPairs
	op := &rpcv1.Operation{Kind: rpcv1.Operation_DIGEST, Key: groupedKey(0)}
	pairs.begin([]*rpcv1.Operation{op})
	if n > 0 {
		pairs.pairOf(op.Key).put(w.value(n))
	}
	o := &rpcv1.Outcome{}
	if _, err := digest(&Session{Session: &pairs}, op, nil, o); err != nil {
		w.Report("%v", err)
	}
	return bytes.Clone(o.Value)
}

// judgeGroups reads all keys once more, each alone, and judges.
func (w *ownWorld) judgeGroups() {
	for n := range groupedKeys {
		for ok := false; !ok; {
			_, ok = w.sendGroup(w.main, groupPrograms, w.running()[0], groupAsked{keys: []int{n}, puts: []uint32{0}})
		}
	}
	ops := slices.DeleteFunc(w.groups.ops, func(o porcupine.Operation) bool {
		in, ok := o.Input.(groupAsked)
		return !ok || !in.changes() && o.Output.(groupAnswered).unknown
	})
	if verdict := porcupine.CheckOperationsTimeout(grouped, ops, judgeLimit); verdict != porcupine.Ok {
		var b bytes.Buffer
		for _, o := range ops {
			fmt.Fprintf(&b, "\n  %d-%d program %d: %+v %+v", o.Call, o.Return, o.ClientId, o.Input, o.Output)
		}
		w.Report("groups are not linearizable (%v):%s", verdict, b.String())
	}
}

// Group implements index.Grouper. With a mistake it decides on what the keys had before, and
// perhaps changes one key alone.
func (s *dexSession) Group(members []index.Member, change func() error) error {
	defer s.change()()
	by := s.Session.(index.Grouper)
	wrong := s.o.w.wrong
	if wrong != halfGroups && wrong != lookEarly {
		return by.Group(members, change)
	}
	type result struct {
		value  []byte
		action index.Action
	}
	var decided []result
	if err := by.Group(members, func() error {
		if err := change(); err != nil {
			return err
		}
		decided = decided[:0]
		for i := range members {
			decided = append(decided, result{members[i].Value, members[i].Action})
			members[i].Action = index.Keep
		}
		return nil
	}); err != nil {
		return err
	}
	set := func(from, to int) error {
		return by.Group(members[from:to], func() error {
			for i := from; i < to; i++ {
				members[i].Value, members[i].Action = decided[i].value, decided[i].action
			}
			return nil
		})
	}
	if wrong == lookEarly {
		s.o.p.Sleep(s.o.w.UpTo(time.Millisecond))
		return set(0, len(members))
	}
	if err := set(0, 1); err != nil || len(members) == 1 {
		return err
	}
	s.falter()
	return set(1, len(members))
}

// TestGroupSeeds: whatever happens to servers and ranges, groups are linearizable, each as one
// operation, and none is half done. Groups that are done in two steps, and those that look at what
// is watched before they can change it, are found.
func TestGroupSeeds(t *testing.T) {
	seeds := simtest.Read(t, "ownership-groups", "computeserver/engine", 8)
	var sum groupWorld
	for seed := range seeds.OneByOne() {
		rep := ownRun{seed: 2 * seed, dex: true, groups: true}.do()
		if rep.err != nil {
			t.Fatalf("%v\n%s", rep.err, seeds.Replay(seed))
		}
		g := rep.grouped
		sum.done, sum.split, sum.missed, sum.rejected, sum.doubts = sum.done+g.done, sum.split+g.split, sum.missed+g.missed, sum.rejected+g.rejected, sum.doubts+g.doubts
		sum.scripts += g.scripts
	}
	t.Logf("%d groups done, %d of them scripts, %d found a watched key changed, %d had keys of several servers, %d refused, %d in doubt", sum.done, sum.scripts, sum.missed, sum.split, sum.rejected, sum.doubts)
	if seeds.Count >= 8 && (sum.done == 0 || sum.scripts == 0 || sum.split == 0 || sum.missed == 0 || sum.rejected == 0 || sum.doubts == 0) {
		t.Error("something never happened")
	}
	for _, x := range []struct {
		wrong mistake
		from  uint64
	}{{halfGroups, 32}, {lookEarly, 16}} {
		found := false
		for seed := x.from; seed < x.from+100 && !found; seed++ {
			rep := ownRun{seed: 2 * seed, dex: true, groups: true, wrong: x.wrong}.do()
			if found = rep.err != nil; found {
				t.Logf("%s: caught by seed %d: %.300v", x.wrong, seed, rep.err)
			}
		}
		if !found {
			t.Errorf("%s: not caught", x.wrong)
		}
	}
}
