package partition

import (
	"fmt"
	"testing"
	"time"
)

// TestSettle: servers that join or are chosen to leave change the map once, when no more of them
// come, and after a while in any case. An owner that is gone changes it at once.
func TestSettle(t *testing.T) {
	const second = time.Second
	leaving := func(id uint32) Observed { s := observed(id); s.Leaving = true; return s }
	gone := func(id uint32) Observed { s := observed(id); s.Gone = true; return s }
	servers := func(s ...Observed) []Observed { return s }
	type at struct {
		when    time.Duration
		servers []Observed
	}
	flaps := func(period, until time.Duration) (all []at) {
		for now := time.Duration(0); now <= until; now += period {
			last := observed(4)
			if (now/period)%2 == 1 {
				last = leaving(4)
			}
			all = append(all, at{now, servers(observed(1), observed(2), observed(3), last)})
		}
		return all
	}
	f := func(name string, owned bool, want string, events ...at) {
		t.Helper()
		v := View{Index: "uid", Keys: Uint64, Desired: 2, Map: mapOf(t, 1, 2), Owned: owned, Settle: Settling}
		got := ""
		for now := time.Duration(0); now <= 40*second; now += second {
			for _, e := range events {
				if e.when == now {
					v.Servers = e.servers
				}
			}
			v.Now = now
			if v.Holdings = nil; owned { // each range is where the map wants it
				for i := range v.Map.Ranges {
					r := v.Map.Span(i)
					v.Holdings = append(v.Holdings, Holding{Start: r.Start, End: r.End, Pod: v.Map.name(r.Owner), Settled: true})
				}
			}
			a, err := Step(v)
			if err != nil {
				t.Fatal(err)
			}
			v.Memory = a.Memory
			// the last stage, and where a server owns nothing any more the map without it
			if a.Swap != nil && len(a.Swap.Planned) == 0 {
				got += fmt.Sprintf("%v:", now)
				for _, s := range a.Swap.Servers {
					if a.Swap.owns(s.ID) {
						got += fmt.Sprint(" ", s.ID)
					}
				}
				got += "; "
			}
			if a.Swap != nil {
				v.Map = a.Swap
			}
		}
		if got != want {
			t.Errorf("%s, owned %v: maps %q, want %q", name, owned, got, want)
		}
	}
	two := servers(observed(1), observed(2))
	for _, owned := range []bool{false, true} {
		f("nothing happens", owned, "", at{0, two})
		f("comes and goes", owned, "", at{0, two}, at{10 * second, append(two[:2:2], observed(3))}, at{14 * second, append(two[:2:2], leaving(3))})
		f("is gone", owned, "10s: 1; ", at{0, two}, at{10 * second, servers(observed(1), gone(2))})
	}
	f("one joins", false, "15s: 1 2 3; ", at{0, two}, at{10 * second, append(two[:2:2], observed(3))})
	f("two join, one after the other", false, "18s: 1 2 3 4; ", at{0, two},
		at{10 * second, append(two[:2:2], observed(3))}, at{13 * second, append(two[:2:2], observed(3), observed(4))})
	f("one is replaced", false, "16s: 1 3; ", at{0, two},
		at{10 * second, append(two[:2:2], observed(3))}, at{11 * second, servers(observed(1), leaving(2), observed(3))})
	f("one joins, and another one is gone", false, "12s: 1 3; ", at{0, two},
		at{10 * second, append(two[:2:2], observed(3))}, at{12 * second, servers(observed(1), gone(2), observed(3))})
	f("one leaves", false, "15s: 1; ", at{0, two}, at{10 * second, servers(observed(1), leaving(2))})
	f("it never settles", false, "20s: 1 2 3 4; ", flaps(2*second, 40*second)...)
	f("one is replaced", true, "16s: 1 3; 17s: 1 3; ", at{0, two},
		at{10 * second, append(two[:2:2], observed(3))}, at{11 * second, servers(observed(1), leaving(2), observed(3))})
}
