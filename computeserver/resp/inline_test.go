package resp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/computeserver/computeservertest"
)

// TestInlineAgainstRedis splits random lines as a real redis-server does, which shows in an error
// what arguments it found.
func TestInlineAgainstRedis(t *testing.T) {
	rnd := computeservertest.Seeded(t)
	redis := computeservertest.NewRedis(t)
	clean := strings.NewReplacer("\r", " ", "\n", " ")
	unbalanced := 0
	for range 2500 {
		line := "NOPE " + string(randomBytes(rnd, "\"\"''\\\\xnrtba0fF  \t\v\f\rz\xff", 20)) + []string{"\n", "\r\n"}[rnd.IntN(2)]
		redis.Send(line)
		want := redis.Line()
		got := "-ERR Protocol error: unbalanced quotes in request\r\n"
		if args, ok := splitInline([]byte(line), nil); ok {
			got = "-" + clean.Replace(unknownCommand(args)) + "\r\n"
		} else {
			unbalanced++
			redis = redis.Again()
		}
		if got != want {
			t.Fatalf("%q is taken for\n%q; Redis says\n%q", line, got, want)
		}
	}
	if unbalanced < 100 || unbalanced > 2400 {
		t.Errorf("%d lines are unbalanced", unbalanced)
	}
}

// FuzzInline splits what another way of writing arguments made of them.
func FuzzInline(f *testing.F) {
	f.Add([]byte("a"), []byte("\"'\\x"), []byte{0, 255, 10})
	f.Fuzz(func(t *testing.T, a, b, c []byte) {
		var line strings.Builder
		for _, word := range [][]byte{a, b, c} {
			line.WriteString(" \"")
			for _, d := range word {
				fmt.Fprintf(&line, "\\x%02X", d)
			}
			line.WriteString("\"")
		}
		got, ok := splitInline([]byte(line.String()+"\r\n"), nil)
		if !ok || fmt.Sprintf("%q", got) != fmt.Sprintf("%q", [][]byte{a, b, c}) {
			t.Errorf("%q is taken for %q, %v", line.String(), got, ok)
		}
		any := append(append(append([]byte{}, a...), b...), c...)
		if args, _ := splitInline(any, nil); len(args) > len(a)+len(b)+len(c) {
			t.Errorf("%d arguments", len(args))
		}
	})
}
