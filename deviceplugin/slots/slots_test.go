package slots

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dmindex/dmindex/deviceplugin/hca"
)

// adapter is an HCA that works, or does not.
func adapter(name string, numa int, works bool) hca.HCA {
	p := hca.Port{Number: 1, LinkLayer: hca.InfiniBand, State: "ACTIVE", GIDs: []hca.GID{{Address: netip.MustParseAddr("fe80::1")}}}
	if !works {
		p.State = "DOWN"
	}
	return hca.HCA{Name: name, Verbs: "uverbs-" + name, PCI: "0000:" + name, NUMANode: numa, Ports: []hca.Port{p}}
}

func newSet(t *testing.T, each int, hcas ...hca.HCA) *Set {
	t.Helper()
	s, left := New(hcas, each, Numbered)
	if len(left) != 0 {
		t.Fatalf("left out: %v", left)
	}
	return s
}

// TestSlots: names, health and NUMA nodes of slots; what is beyond the limit is left out.
func TestSlots(t *testing.T) {
	s := newSet(t, 2, adapter("a", 0, true), adapter("b", -1, false))
	want := []Slot{{"a/0", true, 0}, {"a/1", true, 0}, {"b/0", false, -1}, {"b/1", false, -1}}
	if got := s.Slots(); !slices.Equal(got, want) {
		t.Errorf("slots are %v, want %v", got, want)
	}
	var many []hca.HCA
	for i := range 15 {
		many = append(many, adapter(fmt.Sprintf("m%02d", i), 0, true))
	}
	s, left := New(many, 1000, Numbered)
	if len(s.Slots()) != Max || len(left) != 5 || left[0].Name != "m10" {
		t.Errorf("%d slots, left out %d", len(s.Slots()), len(left))
	}
	s, left = New([]hca.HCA{adapter("a", 0, true), {Name: "rxe0"}}, 1, PCI)
	if got := s.Slots(); len(got) != 1 || got[0].ID != "0000:a" || len(left) != 1 || left[0].Name != "rxe0" {
		t.Errorf("by PCI address: %v, left out %v", got, left)
	}
}

// TestAllocate: slots become HCAs; wrong ones are errors that say why.
func TestAllocate(t *testing.T) {
	s := newSet(t, 3, adapter("a", 0, true), adapter("b", 0, false), adapter("c", 0, true))
	f := func(want, wrong string, ids ...string) {
		t.Helper()
		hcas, err := s.Allocate(ids)
		var names []string
		for _, h := range hcas {
			names = append(names, h.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%v are %q, %v; want %q", ids, got, err, want)
		}
		if wrong == "" && err != nil || wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)) {
			t.Errorf("%v: %v, want %q", ids, err, wrong)
		}
	}
	f("a", "", "a/2")
	f("c a", "", "c/0", "a/0", "c/1")
	f("", "HCA b cannot be used: port 1 is DOWN", "a/0", "b/0")
	f("", "no slot \"a/3\"", "a/3")
	f("", "no slot \"a/-1\"", "a/-1")
	f("", "no slot \"a/01\"", "a/01")
	f("", "no slot \"a\"", "a")
	f("", "no slot \"x/0\"", "x/0")
	f("", "0 slots asked for")
}

// TestPrefer: the rules, one by one.
func TestPrefer(t *testing.T) {
	s := newSet(t, 4, adapter("a", 0, true), adapter("b", 1, true), adapter("c", 1, true), adapter("d", 1, false), adapter("e", -1, true))
	all := func(names ...string) (ids []string) {
		for _, name := range names {
			for i := range 4 {
				ids = append(ids, fmt.Sprintf("%s/%d", name, i))
			}
		}
		return ids
	}
	f := func(available, must []string, n int, want string) {
		t.Helper()
		got, err := s.Prefer(available, must, n)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%d of %v with %v: %v, %v; want %s", n, available, must, got, err, want)
		}
	}
	f(all("b", "a"), nil, 1, "a/0")                                   // the name decides
	f([]string{"a/3", "b/1", "b/2"}, nil, 1, "b/1")                   // most slots left
	f([]string{"d/0", "d/1", "d/2", "a/3"}, nil, 1, "a/3")            // d does not work
	f([]string{"d/2"}, nil, 1, "d/2")                                 // but is all there is
	f(all("a", "b", "c"), nil, 2, "b/0 c/0")                          // two HCAs near each other
	f(all("a", "b", "e"), nil, 2, "a/0 b/0")                          // there are no such two
	f(all("a", "b", "c"), nil, 3, "a/0 b/0 c/0")                      // nor three
	f([]string{"a/0", "a/1", "a/2", "c/1", "b/1"}, nil, 2, "b/1 c/1") // near before many
	// near the one that is a must
	f(all("a", "b", "c"), []string{"c/2"}, 2, "c/2 b/0")
	f(all("a", "b", "c"), []string{"b/3", "c/3"}, 4, "b/3 c/3 a/0 b/0") // all HCAs once, then near
	f(all("a"), nil, 3, "a/0 a/1 a/2")
	f(all("a"), nil, 0, "")

	wrong := func(available, must []string, n int, want string) {
		t.Helper()
		if got, err := s.Prefer(available, must, n); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d of %v with %v: %v, %v; want %q", n, available, must, got, err, want)
		}
	}
	wrong(all("a"), nil, 5, "impossible")
	wrong(all("a"), nil, -1, "impossible")
	wrong(all("a"), all("a"), 2, "impossible")
	wrong([]string{"a/0"}, []string{"a/1"}, 1, "not available")
	wrong([]string{"x/0"}, nil, 1, "no slot")
	wrong([]string{"a/0", "a/1"}, []string{"x/1"}, 1, "no slot")
	wrong([]string{"a/0", "a/1"}, []string{"a/1", "a/1"}, 2, "not available")
}

// TestPreferAlways: whatever is asked, what is picked is available, has what is a must, has no slot
// twice, and has as many different HCAs as there are.
func TestPreferAlways(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var hcas []hca.HCA
		for i := range rapid.IntRange(1, 6).Draw(t, "HCAs") {
			hcas = append(hcas, adapter(string(rune('a'+i)), rapid.IntRange(-1, 2).Draw(t, "node"), rapid.Bool().Draw(t, "works")))
		}
		s, _ := New(hcas, rapid.IntRange(1, 4).Draw(t, "slots"), Numbered)
		var all []string
		for _, slot := range s.Slots() {
			all = append(all, slot.ID)
		}
		available := rapid.Permutation(all).Draw(t, "order")[:rapid.IntRange(0, len(all)).Draw(t, "available")]
		n := rapid.IntRange(0, len(available)).Draw(t, "n")
		must := available[:rapid.IntRange(0, n).Draw(t, "must")]
		picked, err := s.Prefer(slices.Clone(available), must, n)
		if err != nil {
			t.Fatal(err)
		}
		seen, names := map[string]bool{}, map[string]bool{}
		for _, id := range picked {
			if seen[id] || !slices.Contains(available, id) {
				t.Fatalf("picked %s of %v: twice, or not available", id, picked)
			}
			seen[id] = true
			names[id[:1]] = true
		}
		for _, id := range must {
			if !seen[id] {
				t.Fatalf("%s is a must, picked %v", id, picked)
			}
		}
		if len(picked) != n {
			t.Fatalf("picked %v, want %d", picked, n)
		}
		if len(must) == 0 {
			working := map[string]bool{}
			for _, id := range available {
				if h := hcas[id[0]-'a']; h.Healthy() == nil {
					working[id[:1]] = true
				}
			}
			if got := len(names); len(working) > 0 && got < min(n, len(working)) {
				t.Fatalf("picked %v: %d HCAs, could be %d", picked, got, min(n, len(working)))
			}
		}
	})
}
