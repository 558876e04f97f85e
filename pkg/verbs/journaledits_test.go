package verbs

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
)

// edited is what a copy makes of a text that is sent as edits.
func edited(t testing.TB, old, now []byte, most int) (length int, ok bool) {
	t.Helper()
	edits, ok := AppendEdits([]byte("before"), old, now, most)
	if !ok {
		if string(edits) != "before" {
			t.Fatalf("edits that are too long are %q", edits)
		}
		return 0, false
	}
	edits = edits[len("before"):]
	got, err := applyEdits(nil, old, edits)
	if err != nil || !bytes.Equal(got, now) || len(edits) > most {
		t.Fatalf("%d bytes of edits, at most %d, make %.200q of %.200q, not %.200q: %v", len(edits), most, got, old, now, err)
	}
	return len(edits), true
}

// TestEdits: a text with its checksum in front that changes at its end, and in two places far from
// each other, is sent as what changed, whatever lies between.
func TestEdits(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	old := make([]byte, 5<<20)
	for i := range old {
		old[i] = byte(random.Uint32())
	}
	change := func(f func(now []byte) []byte) []byte {
		now := f(bytes.Clone(old))
		now[16]++ // the checksum
		now[19]--
		return now
	}
	for name, c := range map[string]struct {
		now  []byte
		most int // bytes of edits
	}{
		"nothing else":      {change(func(b []byte) []byte { return b }), 10},
		"the end":           {change(func(b []byte) []byte { return append(b, "more"...) }), 30},
		"a byte each 64KiB": {change(func(b []byte) []byte { return each(b, 64<<10) }), 80 * 16},
		"a slot comes":      {change(func(b []byte) []byte { return splice(b, 1<<20, 0, 3000) }), 3300},
		"a slot goes":       {change(func(b []byte) []byte { return splice(b, 1<<20, 2<<20, 0) }), 200},
		"two places":        {change(func(b []byte) []byte { return append(splice(b, 1<<20, 70, 90)[:len(b)-10], "other"...) }), 400},
	} {
		if n, ok := edited(t, old, c.now, 1<<20); !ok || n > c.most {
			t.Errorf("%s: %d bytes of edits, at most %d are needed", name, n, c.most)
		}
	}
	other := make([]byte, 5<<20)
	if _, ok := edited(t, old, other, 1<<20); ok {
		t.Error("another text is made of edits that are too short for it")
	}
}

func each(b []byte, n int) []byte {
	for i := n; i < len(b); i += n {
		b[i]++
	}
	return b
}

// splice replaces bytes at an offset by others.
func splice(b []byte, at, gone, come int) []byte {
	return append(append(append([]byte{}, b[:at]...), bytes.Repeat([]byte("a new slot: "), come/12)...), b[at+gone:]...)
}

// FuzzEdits: edits make the one text of the other, and whatever else comes is refused or makes
// something of limited length.
func FuzzEdits(f *testing.F) {
	f.Add([]byte("an old text that is longer than one match"), []byte("a new text that is longer than one match, and goes on"), uint16(100))
	f.Add(bytes.Repeat([]byte("period"), 50), bytes.Repeat([]byte("period "), 40), uint16(9))
	f.Add([]byte{}, []byte{1, 0, 0}, uint16(0))
	f.Fuzz(func(t *testing.T, a, b []byte, most uint16) {
		edited(t, a, b, int(most))
		edited(t, a, append(append(bytes.Clone(a), b...), a...), 1<<20)
		if got, err := applyEdits(nil, a, b); err != nil && !errors.Is(err, ErrMalformed) || len(got) > len(a)+len(b) {
			t.Fatalf("%d bytes of %d and %d: %v", len(got), len(a), len(b), err)
		}
	})
}
