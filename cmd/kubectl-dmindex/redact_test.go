package main

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dmindex/dmindex/pkg/keyrange"
)

func TestRedactText(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		if got := redactText(text); got != want {
			t.Errorf("%q\nis  %q\nnot %q", text, got, want)
		}
	}
	m := digest([]byte("m"))
	if m == "#62c66a7a5dd70c31" || m != digest([]byte("m")) || m == digest([]byte("n")) {
		t.Errorf("the digest %s says which key it is, or not whether two are equal", m)
	}
	f("3 compute servers answer at demo.shop.svc:6379", "3 compute servers answer at demo.shop.svc:6379")
	f(`keys ["m", end) wait for memory server 2`, `keys [`+m+`, end) wait for memory server 2`)
	f(`["", "m"); ["m", end)`, `[begin, `+m+`); [`+m+`, end)`)
	f(`time=1 msg=x keys="[\"\", \"m\")" why="say \"no\""`, `time=1 msg=x keys="[begin, `+m+`)" why="say \"no\""`)
	f(`delete key "m": no memory`, `delete key `+m+`: no memory`)
	f("a -----BEGIN EC PRIVATE KEY-----\nMHc\n-----END EC PRIVATE KEY----- b", "a <redacted> b")
	f("cut off -----BEGIN PRIVATE KEY-----\nMHc", "cut off <redacted>")
	f(`password=hunter2 {"Token": "abc", "n": 1}`, `password=<redacted> {"Token": <redacted>, "n": 1}`)
	f("Authorization: Bearer abc.def", "Authorization: Bearer <redacted>")
	f("--password-file=/conn/password", "--password-file=/conn/password")
}

// TestRedactAnyKey: whatever keys are in a message, in a log or in JSON, none is left.
func TestRedactAnyKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// "SECRET" marks what must not be left, also in a key that is shown by its beginning
		part := rapid.StringOfN(rapid.RuneFrom([]rune("a\"\\[](),; \x00\nß=")), 0, 6, -1)
		key := func(name string) []byte {
			return []byte(part.Draw(t, name+" begins") + "SECRET" + part.Draw(t, name+" ends"))
		}
		start, end := key("start"), key("end")
		if rapid.Bool().Draw(t, "long") {
			end = []byte(string(end) + strings.Repeat("SECRET", 20))
		}
		text := fmt.Sprintf("keys %s; %s wait, key %s", keyrange.Format(start, end), keyrange.Format(end, nil), keyrange.Quote(start))
		for _, said := range []string{text, "msg=" + strconv.Quote(text), strings.Join([]string{text, text}, "\n")} {
			if got := redactText(said); strings.Contains(got, "SECRET") {
				t.Fatalf("%s\nbecomes %s", said, got)
			}
		}
	})
}
