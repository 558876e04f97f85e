package partition

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// asked is an index under load: what is asked of each key, and a step function that looks at it
// every few seconds.
type asked struct {
	View
	keys   []KeyLoad // the truth
	random *rand.Rand
	noise  bool
	swaps  []swap
	t      interface {
		Helper()
		Fatalf(string, ...any)
	}
}

type swap struct {
	at      time.Duration
	reason  string
	percent float64 // of the busiest server, before
}

func uint64Key(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// observe makes the servers say their load: the truth, or a sample of 300 operations of it.
func (w *asked) observe() {
	for i := range w.Servers {
		s := &w.Servers[i]
		s.Load, s.Generation = &Load{}, w.Map.generation()
		if w.Map == nil {
			continue
		}
		weights := []float64{}
		var mine []KeyLoad
		for _, k := range w.keys {
			if w.Map.Owner(k.Key) == s.ID {
				mine = append(mine, k)
				s.Load.Rate += k.Rate
				weights = append(weights, s.Load.Rate)
			}
		}
		if !w.noise || s.Load.Rate == 0 {
			s.Load.Keys = mine
			continue
		}
		for range 300 {
			at, _ := slices.BinarySearch(weights, w.random.Float64()*s.Load.Rate)
			s.Load.Keys = append(s.Load.Keys, KeyLoad{mine[min(at, len(mine)-1)].Key, s.Load.Rate / 300})
		}
	}
	if w.Map != nil {
		w.Holdings = heldAs(w.Map)
	}
}

// step lets some seconds pass, and the operator look.
func (w *asked) step(passes time.Duration) {
	w.t.Helper()
	w.Now += passes
	w.observe()
	a, err := Step(w.View)
	if err != nil {
		w.t.Fatalf("%v", err)
	}
	w.Memory = a.Memory
	if a.Swap == nil {
		return
	}
	if err := a.Swap.Validate(); err != nil {
		w.t.Fatalf("%v", err)
	}
	if w.Map != nil {
		is, _ := skewOf(w.Map, w.keys)
		w.swaps = append(w.swaps, swap{w.Now, a.Reason, is.percent})
	}
	w.Map = a.Swap
}

func newAsked(t interface {
	Helper()
	Fatalf(string, ...any)
}, n int, owned bool, seed uint64) *asked {
	w := &asked{t: t, random: rand.New(rand.NewPCG(seed, 3)), View: View{Index: "uid", Keys: Uint64, Desired: n, Owned: owned,
		Rebalance: Rebalance{MaxShare: 150, MinInterval: time.Minute}}}
	for i := range n {
		w.Servers = append(w.Servers, observed(uint32(i+1)))
	}
	w.step(time.Second)
	return w
}

// TestSkewIsEvenedOut: whatever the load is, as long as it stays as it is ranges move a few times
// at most, only for a server that has more than it may, and in the end none has, unless one key is
// the reason.
func TestSkewIsEvenedOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "servers")
		w := newAsked(t, n, rapid.Bool().Draw(t, "owned"), rapid.Uint64().Draw(t, "seed"))
		w.noise = rapid.Bool().Draw(t, "noise")
		zipf := rapid.Float64Range(0, 1.3).Draw(t, "zipf")
		spread := uint64(1) << rapid.IntRange(0, 54).Draw(t, "spread")
		total, heaviest := 0.0, 0.0
		for i := range 200 {
			rate := 5000 / math.Pow(float64(i+1), zipf)
			total, heaviest = total+rate, max(heaviest, rate)
			w.keys = append(w.keys, KeyLoad{uint64Key(w.random.Uint64N(1000) * spread), rate})
		}
		slices.SortFunc(w.keys, func(a, b KeyLoad) int { return slices.Compare(a.Key, b.Key) })
		for range 10 * 60 / 10 {
			w.step(10 * time.Second)
		}
		last := w.Now
		for range 5 * 60 / 10 {
			w.step(10 * time.Second)
		}
		changes := 0
		now, ok := skewOf(w.Map, w.keys)
		for i, s := range w.swaps {
			if s.reason == "the next stage of a change" {
				continue
			}
			if changes++; s.percent < 130 { // what a sample says may be wrong by that much
				t.Fatalf("ranges moved at %v though nobody had more than %.0f%%", s.at, s.percent)
			}
			if i > 0 && s.at-w.swaps[i-1].at < time.Minute {
				t.Fatalf("ranges moved at %v, and before at %v", s.at, w.swaps[i-1].at)
			}
			// a sample may show late what is worth it
			if s.at > last && (!w.noise || s.percent-now.percent < leveled/2) {
				t.Fatalf("after 10 minutes of the same load ranges move still, and in the end a server has %.0f%%: %v", now.percent, w.swaps)
			}
		}
		if changes > 5 {
			t.Fatalf("%d changes under the same load: %v", changes, w.swaps)
		}
		if hot := 100 * heaviest / total * float64(n); ok && now.percent > max(165, hot*1.35+35) {
			t.Fatalf("server %d has %.0f%% still, the heaviest key %.0f%%: %v\n%s", now.server, now.percent, hot, w.swaps, Describe(nil, w.Map))
		}
	})
}

// TestFirstLoad: the first load of an index divides it at the second look, and the next one not so
// soon. Before there is load it is looked at often enough for that, and no more once the load is
// even.
func TestFirstLoad(t *testing.T) {
	for _, owned := range []bool{false, true} {
		w := newAsked(t, 3, owned, 1)
		look := func(passes time.Duration) Actions {
			t.Helper()
			w.Now += passes
			w.observe()
			a, err := Step(w.View)
			if err != nil {
				t.Fatal(err)
			}
			if w.Memory = a.Memory; a.Swap != nil {
				w.Map = a.Swap
			}
			return a
		}
		if a := look(time.Second); a.Watch != watchFirst {
			t.Errorf("owned %v: without load it is looked at again after %v, want %v", owned, a.Watch, watchFirst)
		}
		var text, other []KeyLoad
		for i := range uint64(300) {
			text, other = append(text, KeyLoad{[]byte(fmt.Sprintf("key:%04d", i)), 10}), append(other, KeyLoad{uint64Key(i << 20), 10})
		}
		w.keys = text
		if a := look(5 * time.Second); a.Swap != nil || a.Watch != FirstPatience {
			t.Errorf("owned %v: at the first look at load ranges move (%v), or the next one is after %v", owned, a.Swap != nil, a.Watch)
		}
		if a := look(FirstPatience); a.Swap == nil {
			t.Errorf("owned %v: ranges do not move at the second look", owned)
		}
		for len(w.Map.Planned) > 0 {
			look(10 * time.Millisecond)
		}
		if is, ok := skewOf(w.Map, text); !ok || is.percent > 115 {
			t.Errorf("owned %v: a server has %.0f%% of the mean then\n%s", owned, is.percent, Describe(nil, w.Map))
		}
		w.keys = other
		for w.Now < 50*time.Second {
			if a := look(FirstPatience); a.Swap != nil {
				t.Fatalf("owned %v: ranges move again at %v", owned, w.Now)
			}
		}
	}
	w := newAsked(t, 3, true, 1)
	for i := range uint64(300) {
		w.keys = append(w.keys, KeyLoad{uint64Key(i * (math.MaxUint64 / 300)), 10})
	}
	w.step(time.Second)
	if a, err := Step(w.View); err != nil || a.Watch != 0 {
		t.Errorf("with even load it is looked at again after %v (%v), want whenever it is", a.Watch, err)
	}
}

// TestSkewNeeds: what has to be so for ranges to move because of load, under a map that was made
// for another one.
func TestSkewNeeds(t *testing.T) {
	f := func(name string, want bool, change func(w *asked)) {
		t.Helper()
		w := newAsked(t, 3, true, 1)
		w.Map.Ranges[1].Start[7]++
		for i := range uint64(300) {
			w.keys = append(w.keys, KeyLoad{uint64Key(i), 10})
		}
		after := change
		moved := false
		for range 40 {
			w.Now += 5 * time.Second
			w.observe()
			after(w)
			a, err := Step(w.View)
			if err != nil {
				t.Fatal(err)
			}
			w.Memory = a.Memory
			moved = moved || a.Swap != nil
		}
		if moved != want {
			t.Errorf("%s: moved %v", name, moved)
		}
	}
	f("all as it should be", true, func(*asked) {})
	f("it is turned off", false, func(w *asked) { w.Rebalance.MaxShare = 0 })
	f("one server does not say its load", false, func(w *asked) { w.Servers[1].Load = nil })
	f("another map every minute", false, func(w *asked) { w.Map.Generation = 1 + uint64(w.Now/(50*time.Second)) })
	f("an operator that restarts all the time", false, func(w *asked) { w.Memory = Memory{} })
	f("skewed for a moment only, again and again", false, func(w *asked) {
		if w.Now/(5*time.Second)%3 == 0 {
			for i := range w.Servers {
				w.Servers[i].Load = &Load{}
			}
		}
	})
	f("hardly any load", false, func(w *asked) {
		for i := range w.Servers {
			for n := range w.Servers[i].Load.Keys {
				w.Servers[i].Load.Keys[n].Rate /= 200
			}
		}
	})
	f("a server is busy with the last change", false, func(w *asked) { w.Holdings = w.Holdings[1:] })
	f("the busiest server has one key, and another one is not busy enough to move for", false, func(w *asked) {
		w.Servers[0].Load = &Load{Rate: 520, Keys: []KeyLoad{{uint64Key(5), 520}}}
		w.Servers[1].Load = &Load{Rate: 430}
		for i := range uint64(10) {
			w.Servers[1].Load.Keys = append(w.Servers[1].Load.Keys, KeyLoad{uint64Key(6<<60 + i<<50), 43})
		}
		w.Servers[2].Load = &Load{Rate: 50, Keys: []KeyLoad{{uint64Key(12 << 60), 50}}}
	})
	f("one key is all", false, func(w *asked) {
		for i := range w.Servers {
			for n := range w.Servers[i].Load.Keys {
				w.Servers[i].Load.Keys[n].Key = uint64Key(5)
			}
		}
	})
}

// TestChangesByLoad: who joins gets its part of the load, and who dies leaves its load to all
// others, though nobody can ask it any more.
func TestChangesByLoad(t *testing.T) {
	for _, owned := range []bool{false, true} {
		w := newAsked(t, 3, owned, 1)
		for i := range uint64(600) { // all of it in the first hundredth of the keys
			w.keys = append(w.keys, KeyLoad{uint64Key(i << 48), 10})
		}
		settle := func(what string) {
			t.Helper()
			for range 20 {
				w.step(5 * time.Second)
			}
			for i, rate := range w.Map.Shares(w.keys) {
				if share := 6000 / float64(len(w.Map.Servers)); math.Abs(rate/share-1) > 0.15 {
					t.Errorf("%s, owned %v: server %d has %.0f, fair is %.0f\n%s", what, owned, w.Map.Servers[i].ID, rate, share, Describe(nil, w.Map))
				}
			}
			if len(w.Map.Servers) != len(w.Servers) || len(w.Map.Planned) > 0 {
				t.Errorf("%s, owned %v: %s", what, owned, Describe(nil, w.Map))
			}
		}
		settle("three, after skew")
		w.Servers = append(w.Servers, observed(4))
		settle("four")
		w.Servers = slices.Delete(w.Servers, 0, 1)
		w.Servers[1].Load = nil
		settle("one is gone")
		if len(w.swaps) == 0 || w.swaps[len(w.swaps)-1].reason == "" {
			t.Errorf("reasons: %v", w.swaps)
		}
	}
}

// TestAnotherOperatorGoesOn: a change of several stages comes to its end though the operator
// changes after each, and the load is another one, or none.
func TestAnotherOperatorGoesOn(t *testing.T) {
	w := newAsked(t, 4, true, 1)
	w.Rebalance = Rebalance{}
	w.Servers = append(w.Servers, observed(5))
	w.step(5 * time.Second)
	first := w.Map
	if len(first.Planned) == 0 {
		t.Fatal("one stage does it")
	}
	final := first.Final()
	for i := range uint64(100) {
		w.keys = append(w.keys, KeyLoad{uint64Key(i), 1000})
	}
	for n := 0; len(w.Map.Planned) > 0; n++ {
		w.Memory = Memory{}
		w.step(5 * time.Second)
		if n > 10 {
			t.Fatal("it does not end")
		}
	}
	for i := range final.Ranges {
		if got := w.Map.Range(final.Ranges[i].Start); got.Owner != final.Ranges[i].Owner {
			t.Errorf("%v is owned by %d, planned was %d", got, got.Owner, final.Ranges[i].Owner)
		}
	}
	if got, want := fmt.Sprint(len(w.Map.Ranges)), fmt.Sprint(len(final.Ranges)); got != want {
		t.Errorf("%s ranges, planned were %s", got, want)
	}
}
