package resp

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
)

// globBytes are those of which random patterns and keys are made: all that patterns give a meaning,
// and others on both sides of 0x80.
const globBytes = "**??[]^-\\\\abcz\x00\x01\xc3\xa9\xff\x80\n"

func randomBytes(rnd *rand.Rand, alphabet string, most int) []byte {
	b := make([]byte, rnd.IntN(most+1))
	for i := range b {
		b[i] = alphabet[rnd.IntN(len(alphabet))]
	}
	return b
}

// signed reports whether a pattern may have a set with a range from below 0x80 to above, which
// Redis takes to be one of signed numbers on some machines and of unsigned ones on others.
func signed(pattern []byte) bool {
	for i := 1; i+1 < len(pattern); i++ {
		if pattern[i] == '-' && (pattern[i-1] < 0x80) != (pattern[i+1] < 0x80) {
			return true
		}
	}
	return false
}

// TestGlobAgainstRedis compares matches of random patterns over random keys with those of a real
// redis-server.
func TestGlobAgainstRedis(t *testing.T) {
	rnd := computeservertest.Seeded(t)
	redis := computeservertest.NewRedis(t)
	in := bufio.NewReader(redis.NC)
	var keys []string
	for len(keys) < 600 {
		k := string(randomBytes(rnd, globBytes, 1+rnd.IntN(8)))
		// Redis matches the empty key with * but not with **
		if k != "" && !slices.Contains(keys, k) {
			keys = append(keys, k)
			redis.Send(computeservertest.Command("SET", k, ""))
			_, _ = in.ReadString('\n')
		}
	}
	slices.Sort(keys)
	const patterns, together = 6000, 50
	matched, partial := 0, 0
	for range patterns / together {
		var asked []string
		var send strings.Builder
		for len(asked) < together {
			var p []byte
			if rnd.IntN(2) == 0 { // a key that was changed a bit, so that many match
				p = []byte(keys[rnd.IntN(len(keys))])
				for range 1 + rnd.IntN(3) {
					i := rnd.IntN(len(p) + 1)
					p = slices.Replace(p, i, min(len(p), i+rnd.IntN(3)), randomBytes(rnd, globBytes, 3)...)
				}
			} else {
				p = randomBytes(rnd, globBytes, 9)
			}
			if !signed(p) {
				asked = append(asked, string(p))
				send.WriteString(computeservertest.Command("KEYS", string(p)))
			}
		}
		redis.Send(send.String())
		for _, p := range asked {
			want := readStrings(t, in)
			slices.Sort(want)
			g := newGlob([]byte(p), 512)
			var got []string
			for _, k := range keys {
				if is, _ := g.match([]byte(k)); is {
					got = append(got, k)
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("pattern %q matches\n%q; Redis says\n%q", p, got, want)
			}
			matched += len(got)
			if len(got) > 1 && len(got) < len(keys) {
				partial++
			}
		}
	}
	if partial < patterns/20 {
		t.Errorf("only %d patterns of %d match some keys and not others (%d matches)", partial, patterns, matched)
	}
}

// readStrings reads an array of strings.
func readStrings(t testing.TB, in *bufio.Reader) (out []string) {
	t.Helper()
	number := func(kind byte) int {
		line, err := in.ReadString('\n')
		if err != nil || line[0] != kind {
			t.Fatalf("got %q, %v; want a %c", line, err, kind)
		}
		n, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
		return n
	}
	for range number('*') {
		b := make([]byte, number('$')+2)
		if _, err := io.ReadFull(in, b); err != nil {
			t.Fatal(err)
		}
		out = append(out, string(b[:len(b)-2]))
	}
	return out
}

// slowGlob is what a glob means, said in the plainest way.
func slowGlob(items []globItem, key []byte) bool {
	switch {
	case len(items) == 0:
		return len(key) == 0
	case items[0].kind == globMany:
		return slowGlob(items[1:], key) || len(key) > 0 && slowGlob(items, key[1:])
	}
	return len(key) > 0 && items[0].matches(key[0]) && slowGlob(items[1:], key[1:])
}

func FuzzGlob(f *testing.F) {
	for _, p := range []string{"*", "a*b?c", "[a-z]*[^0-9]", "[", "[^", "[]x", "[\\]]", "\\", "*\xff", "[a-", "**a**"} {
		f.Add([]byte(p), []byte("ab\xff"))
	}
	f.Fuzz(func(t *testing.T, pattern, key []byte) {
		pattern, key = pattern[:min(len(pattern), 24)], key[:min(len(key), 12)]
		g := newGlob(pattern, 24)
		got, steps := g.match(key)
		if want := slowGlob(g.items, key); got != want {
			t.Errorf("%q, %q: %v", pattern, key, got)
		}
		if most := (len(key) + 2) * (len(key) + 3); steps > most {
			t.Errorf("%q, %q: %d steps, at most %d", pattern, key, steps, most)
		}
		if short := newGlob(pattern, len(key)); short.never && got {
			t.Errorf("%q matches %q, and was said to match nothing that short", pattern, key)
		}
	})
}

// TestScanMatchesBytes scans keys that are not UTF-8.
func TestScanMatchesBytes(t *testing.T) {
	c := newCluster(t, config.RoutingAny, nil, 1)
	r := c.raw(1)
	for _, k := range []string{"", "\x80a", "\xc3\xa9", "\xfe", "\xffa"} {
		r.Send(computeservertest.Command("SET", k, "v"))
		r.Expect("+OK\r\n")
	}
	f := func(pattern string, want ...string) {
		t.Helper()
		r.Send(computeservertest.Command("SCAN", "0", "MATCH", pattern, "COUNT", "100"))
		r.Expect("*2\r\n$1\r\n0\r\n" + computeservertest.Command(want...))
	}
	f("\xff*", "\xffa")
	f("??", "\x80a", "\xc3\xa9", "\xffa")
	f("?", "\xfe")
	f("\xc3*", "\xc3\xa9")
	f("[\xf0-\xff]*", "\xfe", "\xffa")
	f("", "")
	f("*", "", "\x80a", "\xc3\xa9", "\xfe", "\xffa")
	f(strings.Repeat("?", 513))
	f(strings.Repeat("[a]", 300_000))
}

// TestScanMatchIsBounded scans with a pattern that compares each key for as long as it can: steps
// of the scan end early, and the scan goes on.
func TestScanMatchIsBounded(t *testing.T) {
	c := newCluster(t, config.RoutingAny, nil, 1)
	r := c.raw(1)
	const keys = 300
	var send, stored strings.Builder
	for i := range keys {
		send.WriteString(computeservertest.Command("SET", fmt.Sprintf("%03d", i)+strings.Repeat("a", 509), ""))
		stored.WriteString("+OK\r\n")
	}
	r.Send(send.String() + computeservertest.Command("SET", "z"+strings.Repeat("a", 250)+"b", ""))
	r.Expect(stored.String() + "+OK\r\n")
	pattern := "*" + strings.Repeat("a", 250) + "b" // 65,000 comparisons a key
	found, steps := 0, 0
	for cursor := "0"; ; steps++ {
		r.Send(computeservertest.Command("SCAN", cursor, "MATCH", pattern, "COUNT", "1000"))
		r.Expect("*2\r\n")
		r.Line()
		cursor = strings.TrimSpace(r.Line())
		var n int
		if _, err := fmt.Sscanf(r.Line(), "*%d", &n); err != nil {
			t.Fatal(err)
		}
		for range n {
			r.Line()
			r.Line()
			found++
		}
		if cursor == "0" {
			break
		}
	}
	if least := keys * 65_000 / matchEffort / 2; found != 1 || steps < least {
		t.Errorf("%d keys match, in %d steps; want 1, in %d at least", found, steps+1, least)
	}
}
