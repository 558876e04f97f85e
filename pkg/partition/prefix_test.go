package partition

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// undivided returns an error if a range of m begins within a group of keys.
func undivided(m *Map, end string) error {
	for _, r := range m.Ranges {
		if i := bytes.Index(r.Start, []byte(end)); i >= 0 && i+len(end) < len(r.Start) {
			return fmt.Errorf("a range begins at %q, within the group %q", r.Start, r.Start[:i+len(end)])
		}
	}
	return nil
}

// TestGroupsStayTogether: whatever is planned after what, two keys of one group have one server.
func TestGroupsStayTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		end := rapid.SampledFrom([]string{":", "a", "aa", "ab", "aba", "\x00", "~"}).Draw(t, "end")
		load := func() (load []KeyLoad) {
			for _, k := range rapid.SliceOfN(rapid.StringMatching(`[ab:~\x00]{1,9}`), 0, 100).Draw(t, "sample") {
				load = append(load, KeyLoad{[]byte(k), float64(rapid.IntRange(1, 100).Draw(t, "rate"))})
			}
			return load
		}
		o := Options{Keys: Bytes, AtomicPrefix: end, Load: load(), KeyBytes: rapid.SampledFrom([]int{0, 4, 9}).Draw(t, "key bytes")}
		m, err := New("uid", drawServers(t, "members"), o)
		for range 4 {
			if err == nil {
				err = undivided(m, end)
			}
			if err != nil {
				t.Fatal(err)
			}
			k := rapid.StringMatching(`[ab:~\x00]{1,9}`).Draw(t, "key")
			if i := strings.Index(k, end); i >= 0 {
				group := k[:i+len(end)]
				for _, more := range []string{"", "\x00", "z", "\xff\xff"} {
					if m.Owner([]byte(group)) != m.Owner([]byte(group+more)) {
						t.Fatalf("%q and %q have two servers: %s", group, group+more, Describe(nil, m))
					}
				}
			}
			o.Load = load()
			m, _, err = Plan(m, drawServers(t, "members"), o)
		}
	})
}

// TestManyGroupsAreFair: where there are many groups with as much load each, so have servers.
func TestManyGroupsAreFair(t *testing.T) {
	o := Options{Keys: Bytes, AtomicPrefix: "}"}
	for n := range 300 {
		for _, of := range []string{"cart", "name", "seen"} {
			o.Load = append(o.Load, KeyLoad{fmt.Appendf(nil, "{user:%03d}:%s", n, of), 10})
		}
	}
	m, err := New("uid", servers(1, 2, 3), o)
	if err == nil {
		err = undivided(m, o.AtomicPrefix)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i, share := range m.Shares(o.Load) {
		if share < 2700 || share > 3300 {
			t.Errorf("server %d has %.0f of 9000: %s", i+1, share, Describe(nil, m))
		}
	}
	hot := Options{Keys: Bytes, AtomicPrefix: "}", Load: []KeyLoad{{[]byte("{one}:a"), 1000}, {[]byte("{one}:b"), 1000}}}
	next, _, err := Plan(m, servers(1, 2, 3), hot)
	if err == nil {
		err = undivided(next, hot.AtomicPrefix)
	}
	if err != nil {
		t.Error(err)
	}
}
