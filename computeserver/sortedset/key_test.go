package sortedset

import (
	"bytes"
	"cmp"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// someMember is one with bytes that stand in keys.
var someMember = rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 'a', 0xfe, 0xff}), 0, 6)

var someScore = rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{0, 1, -1, 0.5, math.Inf(1), math.Inf(-1), math.SmallestNonzeroFloat64, math.Copysign(0, -1)}))

// TestEntriesCompare: entries are in the order of scores, then of members, and hold what they were
// made of. A range of scores has those that it should have.
func TestEntriesCompare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := number{1, 2, 3}
		a, b := someMember.Draw(t, "a"), someMember.Draw(t, "b")
		x, y := someScore.Draw(t, "x"), someScore.Draw(t, "y")
		of := stamp(rapid.SliceOfN(rapid.Byte(), stampBytes, stampBytes).Draw(t, "stamp"))
		one, two := n.appendEntry(nil, x, a, of), n.appendEntry(nil, y, b, stamp{9})
		want := cmp.Or(cmp.Compare(x, y), bytes.Compare(a, b))
		if got := bytes.Compare(one, two); want != 0 && got != want {
			t.Fatalf("(%v, %q) compares with (%v, %q) as %d, want %d", x, a, y, b, got, want)
		}
		if member, is, ok := parseEntry(one); !ok || !bytes.Equal(member, a) || is != of {
			t.Fatalf("%x is %q, %x, %v", one, member, is, ok)
		}
		if len(one) != entryBytes+escapedLen(a) {
			t.Fatalf("%d bytes, not %d", len(one), entryBytes+escapedLen(a))
		}
		open := rapid.Bool().Draw(t, "open")
		low, high := n.bounds([2]Limit{{Score: y, Open: open}, {Score: math.Inf(1)}})
		in := bytes.Compare(one, low) >= 0 && bytes.Compare(one, high) < 0
		if want := x > y || x == y && !open; in != want {
			t.Fatalf("%v is at or above %v (open: %v): %v", x, y, open, in)
		}
		low, high = n.bounds([2]Limit{{Score: math.Inf(-1)}, {Score: y, Open: open}})
		in = bytes.Compare(one, low) >= 0 && bytes.Compare(one, high) < 0
		if want := x < y || x == y && !open; in != want {
			t.Fatalf("%v is at or below %v (open: %v): %v", x, y, open, in)
		}
	})
}

// TestScoreOfEntries: the key of an entry says the score, and the two zeros are one.
func TestScoreOfEntries(t *testing.T) {
	for _, score := range []float64{0, math.Copysign(0, -1), 1.5, -1.5, math.Inf(1), math.Inf(-1), math.SmallestNonzeroFloat64} {
		if got := scoreOf(number{1}.appendEntry(nil, score, []byte("m\x00"), stamp{2})); got != score || math.Signbit(got) != (score < 0) {
			t.Errorf("the entry of %v is of %v", score, got)
		}
	}
}

// TestStoredForms: what is stored is read as it was, and nothing else is taken for it.
func TestStoredForms(t *testing.T) {
	for _, i := range []item{{score: 1.5, stamp: stamp{1}}, {marked: true, score: 1.5, stamp: stamp{1}}, {pending: true, score: math.Inf(-1), stamp: stamp{2}}, {pending: true, had: true, score: 3, stamp: stamp{3}, former: -4, formerStamp: stamp{4}}, {pending: true, had: true, marked: true, score: 3, stamp: stamp{3}, former: -4, formerStamp: stamp{4}}} {
		b := i.marshal()
		if got, ok := parseItem(b); !ok || got != i {
			t.Errorf("%x is %+v, want %+v", b, got, i)
		}
		if _, ok := parseItem(b[:len(b)-1]); ok {
			t.Errorf("%x is an item", b[:len(b)-1])
		}
		if b[0] = 5; len(b) > itemBytes {
			t.Errorf("%d bytes; at most %d are said", len(b), itemBytes)
		}
		if _, ok := parseItem(b); ok {
			t.Errorf("%x is an item", b)
		}
	}
	h := head{state: isClosing, number: number{1}, token: stamp{2}}
	if got, ok := parseHead(h.marshal()); !ok || got != h {
		t.Errorf("%x is %+v, want %+v", h.marshal(), got, h)
	}
	for _, b := range [][]byte{nil, h.marshal()[1:], append([]byte("x"), h.marshal()[1:]...)} {
		if _, ok := parseHead(b); ok {
			t.Errorf("%x is a head", b)
		}
	}
}
