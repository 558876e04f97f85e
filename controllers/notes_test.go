package controllers

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime"
)

type lastNote struct{ note string }

func (l *lastNote) Eventf(_, _ runtime.Object, _, _, _, note string, args ...any) {
	l.note = fmt.Sprintf(note, args...)
}

// TestShortNotes: the API server takes every note, and those that are short enough are left as they
// are.
func TestShortNotes(t *testing.T) {
	f := func(want string, note string, args ...any) {
		t.Helper()
		l := &lastNote{}
		shortNotes{l}.Eventf(nil, nil, "Normal", "R", "A", note, args...)
		if l.note != want {
			t.Errorf("%q, want %q", l.note, want)
		}
		if len(l.note) > 1024 || !utf8.ValidString(l.note) {
			t.Errorf("a note of %d bytes, valid %v", len(l.note), utf8.ValidString(l.note))
		}
	}
	f("100% of 3", "100%% of %d", 3)
	f(strings.Repeat("x", 1024), "%s", strings.Repeat("x", 1024))
	f(strings.Repeat("x", 1021)+"...", "%s", strings.Repeat("x", 1025))
	f(strings.Repeat("é", 510)+"...", "%s", strings.Repeat("é", 1000))
	f("%d", "%s", "%d")
}
