package keyrange

import (
	"bytes"
	"strings"
	"testing"
)

func TestQuote(t *testing.T) {
	f := func(key, want string) {
		t.Helper()
		if got := Quote([]byte(key)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	f("", `""`)
	f("fruit/\x00", `"fruit/\x00"`)
	f(strings.Repeat("a", maxQuoted), `"`+strings.Repeat("a", maxQuoted)+`"`)
	f(strings.Repeat("a", 1024), `"`+strings.Repeat("a", maxQuoted)+`"... (1024 bytes)`)
}

// TestMessagesStayShort: whatever the keys are, a range in a message has a bounded length.
func TestMessagesStayShort(t *testing.T) {
	low, high := bytes.Repeat([]byte{0}, 1024), bytes.Repeat([]byte{0xff}, 1024)
	for _, text := range []string{Format(low, high), Format(low, nil), Format(nil, high)} {
		if len(text) > 2*(4*maxQuoted+32) {
			t.Errorf("%d bytes: %s", len(text), text)
		}
	}
}

// TestIntersect compares with what the definition says of each of a few keys.
func TestIntersect(t *testing.T) {
	keys := []string{"", "a", "b", "c", "d"}
	in := func(start, end, key string) bool { return start <= key && (end == "" || key < end) }
	for _, a := range keys {
		for _, b := range keys {
			for _, key := range keys {
				if got := Contains([]byte(a), []byte(b), []byte(key)); got != in(a, b, key) {
					t.Errorf("%q in %q to %q: %v", key, a, b, got)
				}
			}
			for _, c := range keys {
				for _, d := range keys {
					start, end, ok := Intersect([]byte(a), []byte(b), []byte(c), []byte(d))
					some := false
					for _, key := range keys {
						both := in(a, b, key) && in(c, d, key)
						if some = some || both; ok && both != in(string(start), string(end), key) {
							t.Errorf("%q to %q and %q to %q: %q to %q, and %q is in both: %v", a, b, c, d, start, end, key, both)
						}
					}
					if ok != some {
						t.Errorf("%q to %q and %q to %q: %v, want %v", a, b, c, d, ok, some)
					}
				}
			}
		}
	}
}
