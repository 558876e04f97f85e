package engine

import (
	"fmt"
	"slices"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/sortedset"
	"github.com/dmindex/dmindex/pkg/env/simenv"
)

// Sorted sets beside moves and trouble: programs change and read members of two sets, and counters.
// Before half of the steps of a command some of the keys that it is about to use are given to
// another server, and half of these commands wait until that server has them. So a set lies on all
// servers, and mostly changes hands between two steps. Servers die in a step, having sent a part.
//
// Members of the first set are judged each for itself. It has two members that nobody changes,
// which every read of a range has to show. The second set is deleted now and then, so it is judged
// as a whole.

const (
	setsKept    = 0 // the set that is never deleted
	setsDeleted = 1
	setsCounter = 2 // from here on keys are counters
	setsKeys    = 4

	setPrograms  = 2
	setThreads   = 4
	mostSetCalls = 90 // in a run
	mostSetDoubt = 3  // of a part that is judged as a whole
	setLimit     = 5 * time.Second
)

// setsKey is the key of a set or of a counter. They lie among the other keys.
func setsKey(n int) []byte { return []byte{[setsKeys]byte{0x21, 0xa1, 0x61, 0xe1}[n], 0xff} }

var (
	setMembers = []string{"a", "b", "c"}
	setAnchors = map[string]float64{"k": -7, "l": 1000}
)

// setCall is what a program asked for, and what came of it.
type setCall struct {
	program   int
	in        setAsked // kind "pop", "drop", "range", "members" and "card" name no member
	call, end int64    // of the history's clock; end is 0 while there is no answer
	out       setAnswered
	pairs     []sortedset.Pair // that a range has, or that were removed
	nothing   bool             // it said that nothing was done
	doubt     bool             // its program has no answer
	touched   map[string]int   // how often it may have changed a member's item
}

// changes reports whether a call may change a member.
func (c *setCall) changes() bool {
	return !slices.Contains([]string{"score", "range", "members", "card"}, c.in.kind)
}

// setsWorld is what the programs did.
type setsWorld struct {
	is    bool
	calls []*setCall
	used  [][]byte // keys of members, the newest last
	wrong *setMistake

	done, oneStep, unknown, refused, moves, moved, deaths, seen, removed, full int
}

func (s *setsWorld) add(o setsWorld) {
	s.done, s.oneStep, s.unknown, s.refused = s.done+o.done, s.oneStep+o.oneStep, s.unknown+o.unknown, s.refused+o.refused
	s.moves, s.moved, s.deaths = s.moves+o.moves, s.moved+o.moved, s.deaths+o.deaths
	s.seen, s.removed, s.full = s.seen+o.seen, s.removed+o.removed, s.full+o.full
}

func (s *setsWorld) tame() bool {
	return s.done == 0 || s.oneStep == 0 || s.unknown == 0 || s.refused == 0 || s.moved == 0 || s.deaths == 0 || s.seen == 0 || s.removed == 0 || s.full == 0
}

func (s *setsWorld) String() string {
	return fmt.Sprintf("%d commands on sets done, %d members changed in one step, %d in doubt, %d refused; keys of a step given away %d times, and taken before it %d times; %d servers died in a step, %d operations found no memory; ranges showed %d members and removed %d", s.done, s.oneStep, s.unknown, s.refused, s.moves, s.moved, s.deaths, s.full, s.seen, s.removed)
}

// setProgram asks for members and counters.
func (w *ownWorld) setProgram(n int) {
	p := w.NewProcess(fmt.Sprint("sets-", n))
	for thread := range setThreads {
		p.Go("main", func() {
			for !w.quiet && len(w.sets.calls) < mostSetCalls {
				p.Sleep(w.UpTo(60 * time.Millisecond))
				if all := w.running(); len(all) > 0 {
					w.askSet(p, setThreads*n+thread, all[w.Random.IntN(len(all))], w.someSetCall())
				}
			}
		})
	}
}

func (w *ownWorld) someSetCall() setAsked {
	in := setAsked{key: w.Random.IntN(2), member: setMembers[w.Random.IntN(len(setMembers))], score: float64(1 + w.Random.IntN(4))}
	if w.OneIn(8) {
		in.key, in.member = setsCounter+w.Random.IntN(setsKeys-setsCounter), "n"
	}
	kinds := []string{"add", "add", "add", "incr", "incr", "incr", "rem", "rem", "score", "score", "range", "range", "members", "card"}
	switch in.key {
	case setsKept:
	case setsDeleted:
		kinds = append(kinds, "del", "pop", "pop", "drop")
	default:
		kinds = []string{"incr"}
	}
	in.kind = kinds[w.Random.IntN(len(kinds))]
	// others wait until what is in doubt has been decided, which is never
	if doubts := w.setDoubts(in.key, in.member); doubts >= mostSetDoubt {
		switch in.key {
		case setsKept:
			in.kind = "score"
		case setsDeleted:
			in.kind = "range"
		default:
			return setAsked{key: setsKept, kind: "score", member: "a"}
		}
	}
	return in
}

// setDoubts counts changes without an answer in the part of the history that has a member.
func (w *ownWorld) setDoubts(key int, member string) (n int) {
	for _, c := range w.sets.calls {
		if c.in.key == key && (key != setsKept || c.in.member == member) && c.changes() && c.doubt {
			n++
		}
	}
	return n
}

// askSet asks a server, and notes what came of it. It reports whether there is an answer.
func (w *ownWorld) askSet(p *simenv.Process, program int, d *pod, in setAsked) bool {
	c, there := d.core, d.process
	if c == nil || there.Dead() {
		return false
	}
	call := &setCall{program: program, in: in, call: w.log.tick(), touched: map[string]int{}}
	w.sets.calls = append(w.sets.calls, call)
	done := p.NewEvent()
	w.asked++
	w.serving[there]++
	there.Go("request", func() {
		w.runSet(there, c, call)
		w.serving[there]--
		there.Sleep(w.UpTo(time.Millisecond))
		done.Set()
	})
	for end := w.Now() + setLimit + ownLimit; !done.Wait(100*time.Millisecond) && !there.Dead() && w.Now() < end; {
	}
	call.doubt = call.end == 0
	return !call.doubt && !call.nothing
}

// runSet runs a call at a server.
func (w *ownWorld) runSet(there *simenv.Process, c *Engine, call *setCall) {
	in, key, out := call.in, setsKey(call.in.key), setAnswered{}
	var err error
	show := keepPairs(&call.pairs)
	s := w.setsAt(there, c, call)
	switch in.kind {
	case "add", "incr", "rem", "score", "del":
		if in.key >= setsCounter {
			call.touched[in.member]++
			o := c.Do([]*rpcv1.Operation{{Kind: rpcv1.Operation_INCREMENT, Key: key, Number: int64(in.score)}}, false, ownLimit, 0)[0]
			if out.score = float64(o.Number); !o.Code.Meaning().Answer {
				err = &sortedset.Failure{Outcome: o}
			}
			break
		}
		if in.kind == "del" {
			call.touched[in.member]++
		}
		out, _, err = in.run(c, s, key)
	case "pop":
		call.pairs, err = s.Pop(key, w.OneIn(2), 1)
		w.sets.removed += len(call.pairs)
	case "drop":
		to := sortedset.Limit{Score: in.score, Open: w.OneIn(2)}
		var n int64
		n, err = s.RemoveByScore(key, [2]sortedset.Limit{sortedset.All[0], to})
		w.sets.removed += int(n)
		out.n = int(n)
	case "range":
		err = s.ByScore(key, sortedset.All, w.OneIn(2), w.Random.IntN(3), show)
	case "members":
		err = s.ByMember(key, sortedset.Ends{}, w.OneIn(2), show)
	case "card":
		var n int64
		n, err = s.Card(key)
		out.n = int(n)
	}
	w.answerSet(call, out, err)
}

// answerSet notes the answer to a call.
func (w *ownWorld) answerSet(call *setCall, out setAnswered, err error) {
	switch code := CodeOf(SetFailure(err)); code {
	case rpcv1.Outcome_OK:
		w.sets.done++
		call.out, call.end = out, w.log.tick()
		if !call.changes() {
			w.sets.seen += len(call.pairs)
		}
	case rpcv1.Outcome_UNKNOWN:
		w.sets.unknown++
	case rpcv1.Outcome_UNAVAILABLE, rpcv1.Outcome_NOT_OWNER, rpcv1.Outcome_TIMED_OUT, rpcv1.Outcome_POOL_FULL:
		w.sets.refused++
		call.nothing, call.end = true, w.log.tick()
	default:
		w.Report("%+v is answered by %v: %v", call.in, code, err)
	}
}

// setsAt are the sets of a server, for a call; nil is none.
func (w *ownWorld) setsAt(there *simenv.Process, c *Engine, call *setCall) *sortedset.Sets {
	s, err := c.Sets(nil, true, setLimit, 0)
	if err != nil {
		w.Report("sets: %v", err)
	}
	s.Index = &movedSets{Index: w.sets.wrong.of(w, there, s.Index), w: w, p: there, call: call}
	return s
}

// collect is what Engine.CollectSets does, over all keys, and with moves in between.
func (w *ownWorld) collect(p *simenv.Process, c *Engine) {
	for !w.over {
		p.Sleep(w.UpTo(2 * time.Second))
		for from := []byte{}; from != nil && !w.over; {
			from, _, _ = w.setsAt(p, c, nil).Collect(from, nil)
		}
	}
}
