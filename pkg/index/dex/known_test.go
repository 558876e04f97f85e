package dex_test

import (
	"errors"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
)

// TestKnownJudgesAnswers gives the judge right and wrong answers of operations with a condition,
// for keys of which all is known, and for keys with an operation whose client died.
func TestKnownJudgesAnswers(t *testing.T) {
	there, absent := known{value: "a"}, known{}
	died := known{pending: "b", open: true}             // an insertion
	gone := known{value: "a", pending: "", open: true}  // a deletion
	seen := known{pending: "b", open: true, seen: true} // an insertion that somebody has read
	for _, c := range []struct {
		name   string
		known  known
		want   string
		there  bool // the condition
		answer error
		right  bool
		after  string // what it is then
	}{
		{"an insertion", absent, "n", false, nil, true, "n"},
		{"an insertion over a value", there, "n", false, nil, false, ""},
		{"an insertion that is refused", there, "n", false, index.ErrExists, true, "a"},
		{"an insertion that is refused for nothing", absent, "n", false, index.ErrExists, false, ""},
		{"an update", there, "n", true, nil, true, "n"},
		{"an update of nothing", absent, "n", true, nil, false, ""},
		{"an update that is refused", absent, "n", true, index.ErrNotFound, true, ""},
		{"an update that is refused for nothing", there, "n", true, index.ErrNotFound, false, ""},
		{"a deletion", there, "", true, nil, true, ""},
		{"a deletion that finds nothing", absent, "", true, index.ErrNotFound, true, ""},
		{"a deletion that finds nothing of a value", there, "", true, index.ErrNotFound, false, ""},
		{"an insertion after one that may have happened", died, "n", false, nil, true, "n"},
		{"an insertion after one that has happened", died, "n", false, index.ErrExists, true, "b"},
		{"an insertion after one that was read", seen, "n", false, nil, false, ""},
		{"an update after a deletion that may have happened", gone, "n", true, index.ErrNotFound, true, ""},
		{"an update after a deletion that has not happened", gone, "n", true, nil, true, "n"},
		{"another error", there, "n", true, index.ErrFormat, false, ""},
	} {
		refused := index.ErrNotFound
		if !c.there {
			refused = index.ErrExists
		}
		m := c.known
		err := m.try([]byte("key"), c.want, c.there, refused, func() error { return c.answer })
		if (err == nil) != c.right || errors.Is(c.answer, index.ErrFormat) && !errors.Is(err, index.ErrFormat) {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.right && (m.open || len(m.maybe) > 0 || m.value != c.after) {
			t.Errorf("%s: then it is %+v, not %q", c.name, m, c.after)
		}
	}
}
