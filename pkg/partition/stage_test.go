package partition

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// heldAs is what the home says when every server holds what a map gives it.
func heldAs(m *Map) (held []Holding) {
	for i := range m.Ranges {
		s := m.Span(i)
		held = append(held, Holding{Start: s.Start, End: s.End, Pod: m.name(s.Owner), Settled: true})
	}
	return held
}

func TestStages(t *testing.T) {
	two := mapOf(t, 1, 2)
	f := func(name string, held []Holding, want string, servers ...Observed) {
		t.Helper()
		a, err := Step(View{Index: "uid", Keys: Uint64, Desired: len(servers), Map: two, Servers: servers, Owned: true, Holdings: held})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, m := range a.Moves {
			got += fmt.Sprintf(" %d>%d", m.From, m.To)
		}
		for _, s := range a.Drain {
			got += " drain " + s.Pod
		}
		for _, s := range a.Delete {
			got += " delete " + s.Pod
		}
		if a.Waiting != "" {
			got += " waiting"
		}
		if got != want {
			t.Errorf("%s: %q, want %q (%s)", name, got, want, a.Waiting)
		}
	}
	settled := heldAs(two)
	with := func(i int, change func(*Holding)) []Holding {
		held := slices.Clone(settled)
		change(&held[i])
		return held
	}
	leaving := func(s Observed) Observed { s.Leaving = true; return s }
	gone := func(s Observed) Observed { s.Gone = true; return s }
	f("settled", settled, "", observed(1), observed(2))
	f("one more takes one range at a time", settled, " 1>3", observed(1), observed(2), observed(3))
	f("two more", settled, " 1>3 2>4", observed(1), observed(2), observed(3), observed(4))
	f("an owner does not hold its range yet", with(0, func(h *Holding) { h.Pod = "p2" }), " waiting", observed(1), observed(2), observed(3))
	f("nor has replayed what it inherited", with(1, func(h *Holding) { h.Settled = false }), " 1>3", observed(1), observed(2), observed(3))
	f("an orphan's keys are not held", with(0, func(h *Holding) { *h = Holding{Start: h.Start, End: h.End, Orphan: true, Settled: true} }), " waiting", observed(1), observed(2))
	f("who is gone is not waited for", with(0, func(h *Holding) { h.Orphan = true }), " 1>2", gone(observed(1)), observed(2))
	f("who leaves hands over", settled, " 1>2 waiting", leaving(observed(1)), observed(2))
	two = mapOf(t, 2)
	f("who left holds something", []Holding{{Pod: "p1", Settled: true}}, " waiting", leaving(observed(1)), observed(2))
	f("who left holds nothing", heldAs(two), " drain p1", leaving(observed(1)), observed(2))
}

// TestLeaverHolds: a leaving server that owns nothing by the map, and still holds keys, stays in
// the map, for there may be no memory to give them. If it was away for so long that it was taken
// for gone, it comes back into the map, since others find it by that. It is drained when it holds
// nothing and is in the map no more; it is not waited for without end.
func TestLeaverHolds(t *testing.T) {
	v := View{Index: "uid", Keys: Uint64, Desired: 1, Map: mapOf(t, 1, 2), Owned: true, Servers: []Observed{observed(1), observed(2)}}
	v.Servers[0].Leaving = true
	held := heldAs(v.Map)
	step := func(name string, holdings []Holding, want string) {
		t.Helper()
		v.Holdings = holdings
		a, err := Step(v)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if a.Swap != nil {
			got = fmt.Sprintf("swap %d ", len(a.Swap.Servers))
			v.Map = a.Swap
			for i := range v.Servers {
				v.Servers[i].Generation = v.Map.Generation
			}
		}
		for _, m := range a.Moves {
			got += fmt.Sprintf("%d>%d ", m.From, m.To)
		}
		for _, s := range a.Drain {
			got += "drain " + s.Pod + " "
		}
		for _, s := range a.Delete {
			got += "delete " + s.Pod + " "
		}
		if a.Waiting != "" {
			got += "waiting"
		}
		if got != want {
			t.Errorf("%s: %q, want %q (%s)", name, got, want, a.Waiting)
		}
	}
	step("its ranges move", held, "swap 2 1>2 waiting")
	step("it holds them", held, "waiting")
	late := v
	v.Servers = slices.Clone(v.Servers)
	v.Servers[0].LeftFor = FarewellLimit + 1
	step("it holds them for long", held, "delete p1 waiting")
	v.Servers[0].Gone = true
	step("it is gone", held, "swap 1 ")
	v = late
	v.Servers[0].Answered, v.Servers[0].Ready, v.Servers[0].ReadyFor = false, false, Grace
	step("it does not answer any more", held, "swap 1 waiting")
	v.Servers[0].Answered, v.Servers[0].Ready = true, true
	step("it answers again, and holds them", held, "swap 2 waiting")
	step("it still holds them", held, "waiting")
	v = late
	v.Servers[0] = observed(1)
	v.Servers[0].Leaving = true
	step("it holds nothing", heldAs(v.Map), "swap 1 waiting")
	step("it is in the map no more", heldAs(v.Map), "drain p1 ")
}

// TestLeaverThatKeepsWhatMoves: a leaving server has keys for two others, and keeps those of the
// first stage, since there is no memory to give them, or no room for more holdings. The second
// stage is not put off for good, so the server owns nothing in the end and is deleted. Who takes
// over what a dead server had is waited for as long as that takes.
func TestLeaverThatKeepsWhatMoves(t *testing.T) {
	for _, takes := range []bool{false, true} {
		v := View{Index: "uid", Keys: Uint64, Desired: 2, Map: mapOf(t, 1, 2, 3), Owned: true, Servers: []Observed{observed(1), observed(2), observed(3)}}
		v.Servers[1].Leaving = true
		v.Holdings = heldAs(v.Map)
		if takes {
			v.Holdings[0].Settled, v.Holdings[2].Settled = false, false
		}
		deleted, moves, last := false, 0, time.Duration(0)
		for ; v.Now < time.Hour && !deleted; v.Now += 5 * time.Second {
			v.Servers[1].LeftFor = v.Now
			a, err := Step(v)
			if err != nil {
				t.Fatal(err)
			}
			v.Memory = a.Memory
			if a.Swap != nil {
				if moves > 0 && v.Now-last < Stalled {
					t.Errorf("the stages follow each other after %v", v.Now-last)
				}
				v.Map, last, moves = a.Swap, v.Now, moves+len(a.Moves)
			}
			deleted = len(a.Delete) == 1 && a.Delete[0].ID == 2
		}
		if deleted == takes || moves == 0 != takes {
			t.Errorf("the others take over: %v; after %v it is deleted: %v, with %d moves", takes, v.Now, deleted, moves)
		}
	}
}

// TestLapse: an owner whose clients have ended, and who does not answer, keeps its keys for a
// moment, for its process may come again; then the others get them, although its pod is called
// ready. It does not come back into the map before it answers.
func TestLapse(t *testing.T) {
	two := mapOf(t, 1, 2)
	silent := func(s Observed) Observed { s.Answered, s.Identity = false, ""; return s }
	lost := heldAs(two)
	lost[0].Orphan, lost[0].Pod = true, ""
	v := View{Index: "uid", Keys: Uint64, Desired: 2, Map: two, Owned: true}
	step := func(name string, at time.Duration, held []Holding, want string, servers ...Observed) {
		t.Helper()
		v.Now, v.Holdings, v.Servers = at, held, servers
		a, err := Step(v)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, m := range a.Moves {
			got += fmt.Sprintf("%d>%d ", m.From, m.To)
		}
		if a.Waiting != "" {
			got += "waiting"
		}
		if got != want {
			t.Errorf("%s: %q, want %q (%s)", name, got, want, a.Waiting)
		}
		v.Memory = a.Memory
		if a.Swap != nil {
			v.Map = a.Swap
		}
	}
	step("its lease is not over", 0, heldAs(two), "", silent(observed(1)), observed(2))
	step("it is", time.Minute, lost, "waiting", silent(observed(1)), observed(2))
	step("it answers again", time.Minute+Lapse-1, lost, "waiting", observed(1), observed(2))
	step("and not", 2*time.Minute, lost, "waiting", silent(observed(1)), observed(2))
	again := slices.Clone(lost)
	again[0].Orphan, again[0].Pod = false, "p1"
	step("it has taken its keys again", 2*time.Minute+Lapse, again, "", silent(observed(1)), observed(2))
	step("it ends", 3*time.Minute, lost, "waiting", silent(observed(1)), observed(2))
	step("for too long", 3*time.Minute+Lapse, lost, "1>2 waiting", silent(observed(1)), observed(2))
	step("called ready", 4*time.Minute, heldAs(v.Map), "waiting", silent(observed(1)), observed(2))
	step("it is there", 5*time.Minute, heldAs(v.Map), "2>1 ", observed(1), observed(2))
}

// TestStageOfManyRanges: what one server has for another goes in one stage, but of many ranges only
// a few.
func TestStageOfManyRanges(t *testing.T) {
	from, to := mapOf(t, 1, 2, 3), mapOf(t, 1, 2, 3)
	from.Ranges, to.Ranges = nil, nil
	for i := range byte(20) { // 1 and 2 in turns; then 3 has all of 1's and the first of 2's
		r := Range{Start: []byte{i, 0, 0, 0, 0, 0, 0, 0}, Owner: 1 + uint32(i%2)}
		if i == 0 {
			r.Start = nil
		}
		from.Ranges = append(from.Ranges, r)
		if i < 2 || r.Owner == 1 {
			r.Owner = 3
		}
		to.Ranges = append(to.Ranges, r)
	}
	v := View{Map: from, Holdings: heldAs(from)}
	for n, want := range []int{together, 1, together, 10 - 2*together} {
		next, moves, waits := v.stage(to, func(uint32) bool { return false })
		if len(moves) != want || waits == "" && n < 3 {
			t.Fatalf("stage %d: moves %v, want %d; waits for %q", n+1, moves, want, waits)
		}
		for _, m := range moves {
			if m.From != moves[0].From || m.To != 3 {
				t.Errorf("stage %d: moves %v", n+1, moves)
			}
		}
		v.Map = next
		if again, moves, _ := v.stage(to, func(uint32) bool { return false }); again != nil && len(moves) > 0 {
			t.Errorf("stage %d is not over, and already %v move", n+1, moves)
		}
		v.Holdings = heldAs(next)
	}
	if left := Moves(v.Map, to); len(left) > 0 {
		t.Errorf("never moved: %v", left)
	}
}

// TestStagesSettle: whatever comes and goes, no server has handovers with two others at a time, and
// in the end every range is held by its owner, evenly.
func TestStagesSettle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := View{Index: "uid", Keys: Uint64, Desired: 3, Owned: true}
		next := uint32(1)
		step := func() bool {
			if v.Map != nil {
				for i := range v.Servers {
					v.Servers[i].Generation = v.Map.Generation
				}
			}
			a, err := Step(v)
			if err != nil {
				t.Fatal(err)
			}
			v.Memory = a.Memory
			v.Now += 5 * time.Second
			if a.Swap != nil {
				if err := a.Swap.Validate(); err != nil {
					t.Fatal(err)
				}
				part := map[uint32][]Move{}
				for _, m := range a.Moves {
					if !v.isGone(m.From) {
						part[m.From] = append(part[m.From], m)
						part[m.To] = append(part[m.To], m)
					}
				}
				for _, list := range part {
					for _, m := range list {
						if len(list) > together || m.From != list[0].From || m.To != list[0].To {
							t.Fatalf("moves %v", a.Moves)
						}
					}
				}
				v.Map = a.Swap
			}
			for _, s := range append(slices.Clone(a.Drain), a.Delete...) {
				if v.Map != nil && slices.ContainsFunc(v.Map.Ranges, func(r Range) bool { return r.Owner == s.ID }) {
					t.Fatalf("%s goes and owns ranges", s.Pod)
				}
				v.Servers = slices.DeleteFunc(v.Servers, func(o Observed) bool { return o.ID == s.ID })
			}
			return a.Swap != nil || len(a.Drain)+len(a.Delete) > 0
		}
		follow := func() { // all holders do what the map says
			if v.Map != nil {
				v.Holdings = heldAs(v.Map)
			}
		}
		v.Rebalance = Rebalance{MaxShare: 150, MinInterval: time.Minute}
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			switch rapid.IntRange(0, 5).Draw(t, "event") {
			case 5: // load on a few keys
				for i := range v.Servers {
					hot := rapid.Byte().Draw(t, "hot")
					v.Servers[i].Load = &Load{Rate: 1000, Keys: []KeyLoad{{[]byte{hot, 0, 0, 0, 0, 0, 0, 0}, 500}, {[]byte{hot, 1, 0, 0, 0, 0, 0, 0}, 500}}}
				}
				v.Now += SkewPatience
			case 0:
				v.Servers = append(v.Servers, observed(next))
				next++
			case 1:
				if len(v.Servers) > 0 {
					s := &v.Servers[rapid.IntRange(0, len(v.Servers)-1).Draw(t, "server")]
					s.Leaving = true
				}
			case 2:
				if len(v.Servers) > 0 {
					at := rapid.IntRange(0, len(v.Servers)-1).Draw(t, "server")
					for i := range v.Holdings {
						v.Holdings[i].Orphan = v.Holdings[i].Orphan || v.Holdings[i].Pod == v.Servers[at].Pod
					}
					v.Servers = slices.Delete(v.Servers, at, at+1)
				}
			case 3:
				step()
			case 4:
				follow()
			}
		}
		v.Servers = append(v.Servers, observed(next))
		for i := range v.Servers {
			v.Servers[i].ReadyFor, v.Servers[i].Load = time.Hour, nil
		}
		v.Memory = Memory{} // another operator
		for n := 0; ; n++ {
			follow()
			if !step() {
				break
			}
			if n > 200 {
				t.Fatal("it does not come to rest")
			}
		}
		load := map[uint32]uint64{}
		for i := range v.Map.Ranges {
			s := v.Map.Span(i)
			load[s.Owner] += width{keys: Uint64}.weight(s.Start, s.End)
		}
		for _, s := range v.Servers {
			if share := wholeWidth / uint64(len(v.Servers)); load[s.ID]+uint64(len(v.Servers)) < share || load[s.ID] > share+uint64(len(v.Servers)) {
				t.Fatalf("server %d of %d has %d of %d", s.ID, len(v.Servers), load[s.ID], uint64(wholeWidth))
			}
		}
	})
}
