package partition

import (
	"strings"
	"testing"
)

// TestOverlay: keys whose move is deferred are placed where they are served.
func TestOverlay(t *testing.T) {
	m := &Map{Generation: 3, Ranges: []Range{{Owner: 1, Epoch: 1}, {Start: []byte("h"), Owner: 2, Epoch: 3}, {Start: []byte("q"), Owner: 3, Epoch: 2}}}
	span := func(start, end string, owner uint32) Span {
		return Span{Start: []byte(start), End: []byte(end), Owner: owner}
	}
	f := func(want string, spans ...Span) {
		t.Helper()
		var got strings.Builder
		for _, r := range m.Overlay(spans).Ranges {
			got.WriteString(string(r.Start) + string(rune('0'+r.Owner)) + " ")
		}
		if got.String() != want {
			t.Errorf("%v: %q, want %q", spans, got.String(), want)
		}
	}
	f("1 h2 q3 ")
	f("1 h1 m2 q3 ", span("h", "m", 1))
	f("1 d3 h3 q3 ", span("d", "s", 3))
	f("1 h2 m1 p3 q3 ", span("m", "p", 1), span("m", "", 3))
	f("2 h2 q2 ", span("", "", 2))
}
