package keyrange

import (
	"fmt"
	"strings"
	"testing"
)

// TestHide: no key is left of what Quote and Format write into messages, and the rest stays.
func TestHide(t *testing.T) {
	h := Hider{[]byte("salt")}
	keys := []string{"customer", `a "quoted" \ key`, "with ) and , and [", "\x00\xff", "ключ", strings.Repeat("long", 30)}
	for _, a := range keys {
		for _, b := range append(keys, "") {
			start, end := []byte(a), []byte(b)
			for _, message := range []string{
				"keys " + Format(start, end) + " wait", Format(start, end), "keys " + Format(nil, start) + " of " + Format(end, nil),
				fmt.Sprintf("keys from %s on", Quote(start)), fmt.Sprintf("key %s comes after key %s, they must ascend", Quote(start), Quote(start)),
				fmt.Sprintf("partition map: range %s stands after %s; starts must ascend", Quote(start), Quote(start)),
			} {
				got := h.Text(message)
				for _, key := range []string{a, b} {
					if key != "" && strings.Contains(got, strings.Trim(Quote([]byte(key)[:min(len(key), 8)]), `"`)) {
						t.Errorf("%s\nbecame %s", message, got)
					}
				}
			}
			if len(a) <= maxQuoted && len(b) <= maxQuoted {
				if got, want := h.Text("keys "+Format(start, end)+`, pod "x"`), "keys "+h.Format(start, end)+`, pod "x"`; got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			}
		}
	}
	for _, message := range []string{"", `the image "x:1" cannot be pulled`, "3 of 4 servers, [1, 2)", `["", end)`} {
		if got := h.Text(message); got != message {
			t.Errorf("%s became %s", message, got)
		}
	}
	if a, b := h.Quote([]byte("k")), (Hider{[]byte("other")}).Quote([]byte("k")); a == b || len(a) != 1+2*digestBytes || h.Quote(nil) != `""` {
		t.Errorf("digests %s and %s, and %s", a, b, h.Quote(nil))
	}
}
