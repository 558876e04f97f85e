package partition

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// TestShown: a reader gets the boundaries that it may see, and the owners where its keys begin.
func TestShown(t *testing.T) {
	servers := []Server{{ID: 1}, {ID: 2}, {ID: 3}}
	m := &Map{Generation: 3, Index: "x", Servers: servers, Planned: []Planned{{Start: []byte("secret"), To: 1}}, Ranges: []Range{
		{Owner: 1, Epoch: 1}, {Start: []byte("d:5"), Owner: 2, Epoch: 3}, {Start: []byte("o:3"), Owner: 3, Epoch: 2}, {Start: []byte("o:7"), Owner: 1, Epoch: 2}, {Start: []byte("t"), Owner: 2, Epoch: 2}}}
	f := func(want string, prefixes ...string) {
		t.Helper()
		var of [][]byte
		for _, p := range prefixes {
			of = append(of, []byte(p))
		}
		got := m.Shown(func(key []byte) bool {
			for _, p := range of {
				if bytes.HasPrefix(key, p) {
					return true
				}
			}
			return false
		}, of)
		var text strings.Builder
		for _, r := range got.Ranges {
			text.WriteString(fmt.Sprint(string(r.Start), "=", r.Owner, " "))
		}
		if err := got.Validate(); err != nil || text.String() != want || got.Generation != 3 || len(got.Planned) != 0 {
			t.Errorf("%q: %q, want %q; planned %v; %v", prefixes, text.String(), want, got.Planned, err)
		}
	}
	f("=1 d:5=2 o:3=3 o:7=1 t=2 ", "")
	f("=1 o:=2 o:3=3 o:7=1 ", "o:")
	f("=1 b=1 o:5=3 ", "b", "o:5")
	f("=1 ")

	many := &Map{Generation: 1, Index: "x", Servers: servers}
	for i := range MaxRanges {
		many.Ranges = append(many.Ranges, Range{Start: fmt.Appendf(nil, "%05d", i)[:5*min(i, 1)], Owner: 1, Epoch: 1})
	}
	if err := many.Shown(func([]byte) bool { return true }, [][]byte{[]byte("0"), []byte("z")}).Validate(); err != nil {
		t.Errorf("a map as large as maps may be: %v", err)
	}
}
