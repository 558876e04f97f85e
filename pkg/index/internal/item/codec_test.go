package item

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
)

func TestSeparator(t *testing.T) {
	l, err := NewCodec(index.Options{MaxKeyBytes: 100})
	if err != nil {
		t.Fatal(err)
	}
	f := func(left, right, want string) {
		t.Helper()
		if got := l.Separator([]byte(left), []byte(right)); string(got) != want {
			t.Errorf("between %q and %q: %q, want %q", left, right, got, want)
		}
	}
	f("", "a", "a")
	f("", "abc", "a")
	f("abc", "abd", "abd")
	f("abc", "abcd", "abcd")
	f("abc", "abcde", "abcd")
	f("a/long/path", "b/long/path", "b")
	f("\x00", "\x00\x00", "\x00\x00")
}
