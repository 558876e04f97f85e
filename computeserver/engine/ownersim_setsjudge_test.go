package engine

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/sortedset"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/env/simenv/simtest"
)

// Of an index with the sets of the simulation.
const (
	setsMaxKey   = sortedset.Overhead + 4
	setsMaxValue = 32
)

// newSets decides how a run with sets is.
func (w *ownWorld) newSets(r ownRun) {
	w.sets.is, w.sets.wrong = true, r.fault
	w.calm = false // a command whose keys are moved before each step may come too late
	w.dex.node, w.dex.cache = 512<<w.Random.IntN(2), max(w.dex.cache, 48<<10)
}

// withSets are the options of a server, which has sorted sets in runs with sets.
func (w *ownWorld) withSets(o Options) Options {
	if w.sets.is {
		o.SortedSets, o.Clock = true, func() int64 { return 1 }
		o.Index.MaxKeyBytes, o.Index.Expiry = setsMaxKey, config.ExpiryEnabled
	}
	return o
}

// collectAt starts the sweeper and the collector of a server. With a mistake the collector makes it
// too.
func (w *ownWorld) collectAt(p *simenv.Process, c *Engine) {
	if !w.sets.is {
		return
	}
	p.Go("sweep", c.Sweep)
	if w.sets.wrong == nil {
		p.Go("collect", c.CollectSets)
	}
	p.Go("collect beside moves", func() { w.collect(p, c) })
}

// beginSets adds the members that stay as they are, and starts the programs.
func (w *ownWorld) beginSets() {
	for _, member := range []string{"k", "l"} {
		w.untilAnswered(setAsked{key: setsKept, kind: "add", member: member, score: setAnchors[member]})
	}
	for n := range setPrograms {
		w.setProgram(n)
	}
}

// untilAnswered asks until there is an answer.
func (w *ownWorld) untilAnswered(in setAsked) {
	for range 100 {
		if all := w.living(); len(all) > 0 && w.askSet(w.main, setPrograms*setThreads, all[w.Random.IntN(len(all))], in) {
			return
		}
		w.main.Sleep(200 * time.Millisecond)
	}
	w.Report("%+v is never answered", in)
}

// judgeSets waits until what is stored is whole, reads all members once more, and judges.
func (w *ownWorld) judgeSets() {
	err := fmt.Errorf("no server can read it")
	for try := 0; try < 20 && err != nil; try++ {
		w.main.Sleep(2 * time.Second)
		for _, d := range w.living() {
			c, done := d.core, w.main.NewEvent()
			if c == nil || !d.ready {
				continue
			}
			d.process.Go("rest", func() { err = atRest(c); done.Set() })
			if !done.Wait(time.Minute) {
				err = fmt.Errorf("%s does not end to read it", d.name)
			}
			break
		}
	}
	if err != nil {
		w.Report("sets at rest: %v", err)
		return
	}
	for _, member := range append([]string{"k", "l"}, setMembers...) {
		w.untilAnswered(setAsked{key: setsKept, kind: "score", member: member})
		w.untilAnswered(setAsked{key: setsDeleted, kind: "score", member: member})
	}
	for key := setsCounter; key < setsKeys; key++ {
		w.untilAnswered(setAsked{key: key, kind: "incr", member: "n"})
	}
	for _, key := range []int{setsKept, setsDeleted} {
		for _, kind := range []string{"range", "members", "card"} {
			w.untilAnswered(setAsked{key: key, kind: kind})
		}
	}
	parts := map[string][]porcupine.Operation{}
	for _, c := range w.sets.calls {
		w.checkShown(c)
		for _, o := range w.told(c) {
			part := fmt.Sprint(c.in.key)
			if c.in.key == setsKept {
				part += o.Input.(setAsked).member
			}
			parts[part] = append(parts[part], o)
		}
	}
	for part, ops := range parts {
		if verdict := porcupine.CheckOperationsTimeout(oneSet, ops, judgeLimit); verdict != porcupine.Ok {
			var b bytes.Buffer
			for _, o := range ops {
				fmt.Fprintf(&b, "\n  %d-%d program %d: %+v %+v", o.Call, o.Return, o.ClientId, o.Input, o.Output)
			}
			w.Report("the history of %s is not linearizable (%v):%s", part, verdict, b.String())
			return
		}
	}
}

// oneSet is setModel without its parts.
var oneSet = porcupine.Model{Init: setModel.Init, Step: setModel.Step}

// told is what a call says of single members, each of which is a step of its own. What a range does
// not show was not there, if nobody changed it meanwhile.
func (w *ownWorld) told(c *setCall) (ops []porcupine.Operation) {
	if c.nothing {
		return nil
	}
	add := func(kind, member string, out setAnswered) {
		in := c.in
		in.kind, in.member = kind, member
		o := porcupine.Operation{ClientId: c.program, Input: in, Call: c.call, Output: out, Return: c.end}
		if c.end == 0 {
			o.Output, o.Return = setAnswered{unknown: true}, 1<<63-1
		}
		ops = append(ops, o)
	}
	switch kind := c.in.kind; {
	case kind == "score" && c.end == 0:
	case kind == "pop", kind == "drop":
		if c.end != 0 {
			for _, p := range c.pairs {
				add("pop", string(p.Member), setAnswered{score: p.Score, there: true})
			}
			break
		}
		for _, member := range setMembers { // a range is read again, and may have one again then
			for range c.touched[member] {
				add("rem", member, setAnswered{})
			}
		}
	case kind == "card":
	case c.changes(), kind == "score":
		if c.end != 0 || c.touched[c.in.member] > 0 {
			add(kind, c.in.member, c.out)
		}
	case c.end != 0: // a range
		for _, p := range c.pairs {
			add("score", string(p.Member), setAnswered{score: p.Score, there: true})
		}
		for _, member := range setMembers {
			if !slices.ContainsFunc(c.pairs, func(p sortedset.Pair) bool { return string(p.Member) == member }) && !w.changedDuring(c, member) {
				add("score", member, setAnswered{})
			}
		}
	}
	return ops
}

// changedDuring reports whether a member may have been changed during a call.
func (w *ownWorld) changedDuring(c *setCall, member string) bool {
	return slices.ContainsFunc(w.sets.calls, func(o *setCall) bool {
		named := o.in.member == member || !slices.Contains([]string{"add", "incr", "rem"}, o.in.kind)
		return o.in.key == c.in.key && o.changes() && named && !o.nothing && o.call < c.end && (o.end == 0 || o.end > c.call)
	})
}

// checkShown judges what a range shows of members that nobody changes, its order, and counts.
func (w *ownWorld) checkShown(c *setCall) {
	if c.end == 0 || c.nothing {
		return
	}
	least, most := 0, len(setMembers)
	if c.in.key == setsKept {
		least, most = len(setAnchors), most+len(setAnchors)
	}
	switch c.in.kind {
	case "drop":
		if c.out.n != len(c.pairs) {
			w.Report("%+v removed %d members, and says %d", c.in, len(c.pairs), c.out.n)
		}
	case "card":
		if c.out.n < least || c.out.n > most {
			w.Report("%+v counts %d members, of %d to %d", c.in, c.out.n, least, most)
		}
	case "range", "members":
		anchors := map[string]int{}
		for _, p := range c.pairs {
			if score, is := setAnchors[string(p.Member)]; is && c.in.key == setsKept {
				if anchors[string(p.Member)]++; score != p.Score {
					w.Report("%+v shows %q with %v, whose score was always %v", c.in, p.Member, p.Score, score)
				}
			}
		}
		if c.in.key == setsKept && (anchors["k"] != 1 || anchors["l"] != 1) {
			w.Report("%+v shows %v: of k and l, which nobody changes, each has to be there once", c.in, c.pairs)
		}
		order := func(a, b sortedset.Pair) int {
			if c.in.kind == "range" && a.Score != b.Score {
				return int(a.Score - b.Score)
			}
			return bytes.Compare(a.Member, b.Member)
		}
		back := slices.Clone(c.pairs)
		slices.Reverse(back)
		if !slices.IsSortedFunc(c.pairs, order) && !slices.IsSortedFunc(back, order) {
			w.Report("%+v shows %v, which is no order", c.in, c.pairs)
		}
	}
}

// TestSetMoves: whatever happens to servers, and to ranges between any two steps of a command, what
// is answered about members of sorted sets, and about counters, is linearizable, and at rest each
// member has its entry and there is nothing else. Faults that are put in on purpose are found.
func TestSetMoves(t *testing.T) {
	seeds := simtest.Read(t, "ownership-sets", "computeserver/engine", 5)
	var mu sync.Mutex
	var sum setsWorld
	begun := time.Now()
	done, failed := seeds.Each(func(seed uint64) (passed bool) {
		rep := ownRun{seed: 2 * seed, dex: true, sets: true}.do()
		if rep.err != nil {
			t.Errorf("%v\n%s", rep.err, seeds.Replay(seed))
		}
		mu.Lock()
		sum.add(rep.sets)
		mu.Unlock()
		return rep.err == nil
	})
	t.Logf("sets: %d seeds, %.1f a second, %d failed; %s", done, float64(done)/time.Since(begun).Seconds(), failed, &sum)
	if seeds.Count >= 100 && sum.tame() {
		t.Error("something never happened")
	}
}
