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
