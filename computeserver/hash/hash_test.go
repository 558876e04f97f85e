package hash

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// TestFinds: fields that were appended are found, at the places that are told, and what is cut off
// or there twice is no hash.
func TestFinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		items := rapid.SliceOfNDistinct(rapid.SliceOfN(rapid.Byte(), 0, 200), 1, 20, func(b []byte) string { return string(b) }).Draw(t, "fields")
		var h []byte
		for i, field := range items {
			h = AppendItem(AppendItem(h, field), bytes.Repeat([]byte{byte(i)}, 7*i))
		}
		if err := Check(h); err != nil || Len(h) != len(items) {
			t.Fatalf("%d fields: %v", Len(h), err)
		}
		end := 0
		for i, field := range items {
			value, at, ok := Find(h, field)
			name, rest, _ := Next(h[at.Begin:])
			if !ok || len(value) != 7*i || at.Begin != end || !bytes.Equal(name, field) || len(rest) != len(h)-at.Value || at.Value > at.End {
				t.Fatalf("field %d: %x at %+v, %v", i, value, at, ok)
			}
			end = at.End
		}
		if _, _, ok := Find(h, []byte("none of them, and longer than all that are there, so it is a field that nobody has drawn: it has more than two hundred bytes, which is as many as the longest one of those has that are drawn at the begin")); ok || end != len(h) {
			t.Fatalf("a field that is not there: %v; the last one ends at %d of %d", ok, end, len(h))
		}
		for n := range h {
			if err := Check(h[:n]); err == nil && Len(h[:n]) == len(items) {
				t.Fatalf("cut at %d of %d it is a hash of all fields", n, len(h))
			}
		}
		if err := Check(AppendItem(AppendItem(h, items[0]), nil)); !errors.Is(err, ErrForm) {
			t.Fatalf("a field that is there twice: %v", err)
		}
	})
}

// FuzzCheck: whatever the bytes are, nothing but a hash passes, and nothing is read beyond them.
func FuzzCheck(f *testing.F) {
	f.Add([]byte("\x01a\x01b"), []byte("a"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01a"), []byte("a"))
	f.Fuzz(func(t *testing.T, b, field []byte) {
		value, at, found := Find(b, field)
		if found && (at.End > len(b) || len(value) > at.End-at.Value) {
			t.Errorf("%x of %x lies at %+v", field, b, at)
		}
		if Check(b) != nil {
			return
		}
		n := 0
		for rest := b; len(rest) > 0; n++ {
			_, rest, _ = Next(rest)
			_, rest, _ = Next(rest)
		}
		if n != Len(b) || n == 0 {
			t.Errorf("%x has %d fields and is said to have %d", b, n, Len(b))
		}
	})
}
