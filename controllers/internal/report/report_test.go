package report

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dmindex/dmindex/controllers/internal/operatortest"
)

// TestShortNotes: the API server takes every note, and those that are short enough are left as they
// are.
func TestShortNotes(t *testing.T) {
	f := func(want string, note string, args ...any) {
		t.Helper()
		l := &operatortest.LastNote{}
		ShortNotes{l}.Eventf(nil, nil, "Normal", "R", "A", note, args...)
		if l.Note != want {
			t.Errorf("%q, want %q", l.Note, want)
		}
		if len(l.Note) > 1024 || !utf8.ValidString(l.Note) {
			t.Errorf("a note of %d bytes, valid %v", len(l.Note), utf8.ValidString(l.Note))
		}
	}
	f("100% of 3", "100%% of %d", 3)
	f(strings.Repeat("x", 1024), "%s", strings.Repeat("x", 1024))
	f(strings.Repeat("x", 1021)+"...", "%s", strings.Repeat("x", 1025))
	f(strings.Repeat("é", 510)+"...", "%s", strings.Repeat("é", 1000))
	f("%d", "%s", "%d")
}
