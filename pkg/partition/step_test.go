package partition

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func observed(id uint32) Observed {
	return Observed{ID: id, Pod: fmt.Sprint("p", id), RPC: fmt.Sprint("p", id, ":1"), RESP: fmt.Sprint("p", id, ":2"),
		Ready: true, ReadyFor: time.Hour, Answered: true, Identity: "uid", Generation: 1}
}

func mapOf(t testing.TB, ids ...uint32) *Map {
	var members []Server
	for _, id := range ids {
		s := observed(id)
		members = append(members, Server{ID: id, Name: s.Pod, RPC: s.RPC, RESP: s.RESP})
	}
	m, err := EqualWidth("uid", members, Uint64, 0)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestStep(t *testing.T) {
	with := func(s Observed, change func(*Observed)) Observed { change(&s); return s }
	leaving := func(s *Observed) { s.Leaving = true }
	f := func(name string, m *Map, desired int, want string, servers ...Observed) {
		t.Helper()
		a, err := Step(View{Index: "uid", Keys: Uint64, Desired: desired, Map: m, Servers: servers})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if a.Swap != nil {
			got += fmt.Sprint("swap ", a.Swap.Generation)
			for _, s := range a.Swap.Servers {
				got += " " + s.Name
			}
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
	unready := func(s *Observed) { s.Ready, s.ReadyFor, s.Answered = false, time.Second, false }
	f("no server", nil, 2, " waiting")
	f("first map", nil, 2, "swap 1 p1 p2", observed(1), observed(2))
	f("one is late", nil, 2, " waiting", with(observed(1), func(s *Observed) { s.ReadyFor = time.Second }), with(observed(2), unready))
	f("one is too late", nil, 2, "swap 1 p1", observed(1), with(observed(2), unready))
	f("not ready without a map", nil, 1, "swap 1 p1", with(observed(1), func(s *Observed) { s.Ready = false }))
	two := mapOf(t, 1, 2)
	f("settled", two, 2, "", observed(1), observed(2))
	f("one more", two, 3, "swap 2 p1 p2 p3", observed(1), observed(2), observed(3))
	f("one more, not ready", two, 3, "", observed(1), observed(2), with(observed(3), unready))
	f("one gone", two, 2, "swap 2 p1", observed(1))
	f("one being deleted", two, 2, "swap 2 p1", observed(1), with(observed(2), func(s *Observed) { s.Gone = true }))
	f("one restarts", two, 2, " waiting", observed(1), with(observed(2), unready))
	f("one is away for long", two, 2, "swap 2 p1", observed(1), with(observed(2), func(s *Observed) { s.Ready, s.ReadyFor, s.Answered = false, Grace, false }))
	f("all are away", two, 2, " waiting", with(observed(1), func(s *Observed) { s.Ready, s.ReadyFor = false, Grace }), with(observed(2), func(s *Observed) { s.Gone = true }))
	f("one leaves", two, 1, "swap 2 p1 waiting", observed(1), with(observed(2), leaving))
	f("nobody takes over", two, 1, " waiting", with(observed(2), leaving))
	one := mapOf(t, 1)
	one.Generation = 2
	f("it has not heard", one, 1, " waiting", observed(1), with(observed(2), leaving))
	f("it has heard", one, 1, " drain p2", observed(1), with(with(observed(2), leaving), func(s *Observed) { s.Generation = 2 }))
	f("it never answers", one, 1, " delete p2", observed(1), with(with(observed(2), leaving), unready))
	f("it takes too long", one, 1, " delete p2", observed(1), with(with(observed(2), leaving), func(s *Observed) { s.LeftFor = FarewellLimit + 1 }))
	f("of what the index was before", one, 1, " delete p2", observed(1), with(observed(2), func(s *Observed) { s.Identity = "uid/0" }))
}

// TestStepSettles runs Step on random histories of pods: a map never loses its last server, nobody
// is drained who owns a range, and once nothing changes any more the actions come to an end with
// exactly the ready servers in the map.
func TestStepSettles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := View{Index: "uid", Keys: Uint64, Desired: 3, Settle: time.Duration(rapid.IntRange(0, 3).Draw(t, "settle")) * time.Second}
		next := uint32(1)
		act := func() bool {
			v.Now += time.Second
			a, err := Step(v)
			if err != nil {
				t.Fatal(err)
			}
			v.Memory = a.Memory
			if a.Swap != nil {
				if v.Map != nil && a.Swap.Generation <= v.Map.Generation {
					t.Fatalf("generation %d after %d", a.Swap.Generation, v.Map.Generation)
				}
				v.Map = a.Swap
			}
			for _, s := range append(slices.Clone(a.Drain), a.Delete...) {
				if v.Map != nil {
					if _, owns := v.Map.Server(s.ID); owns && s.Identity == v.Index {
						t.Fatalf("%s goes and owns ranges", s.Pod)
					}
				}
				v.Servers = slices.DeleteFunc(v.Servers, func(o Observed) bool { return o.ID == s.ID })
			}
			return a.Swap != nil || len(a.Drain)+len(a.Delete) > 0 || a.Memory.settling.waits
		}
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			switch rapid.IntRange(0, 5).Draw(t, "event") {
			case 0:
				v.Servers = append(v.Servers, observed(next))
				next++
			case 1, 2, 3, 4:
				if len(v.Servers) == 0 {
					continue
				}
				s := &v.Servers[rapid.IntRange(0, len(v.Servers)-1).Draw(t, "server")]
				switch rapid.IntRange(0, 3).Draw(t, "what") {
				case 0:
					s.Leaving = true
				case 1:
					s.Ready, s.Answered, s.ReadyFor = false, false, time.Duration(rapid.IntRange(0, 60).Draw(t, "seconds"))*time.Second
				case 2:
					s.Ready, s.Answered = true, true
				case 3:
					*s = Observed{ID: s.ID, Pod: s.Pod, Gone: true}
				}
			case 5:
				act()
			}
		}
		v.Servers = append(slices.DeleteFunc(v.Servers, func(s Observed) bool { return s.Gone }), observed(next))
		for i := range v.Servers {
			s := &v.Servers[i]
			s.Ready, s.Answered, s.ReadyFor = true, true, time.Hour
		}
		for n := 0; ; n++ {
			if v.Map != nil {
				for i := range v.Servers {
					v.Servers[i].Generation = v.Map.Generation
				}
			}
			if !act() {
				break
			}
			if n > 10 {
				t.Fatal("it does not come to rest")
			}
		}
		if len(v.Map.Servers) != len(v.Servers) {
			t.Fatalf("map has %d servers, %d are ready", len(v.Map.Servers), len(v.Servers))
		}
	})
}
