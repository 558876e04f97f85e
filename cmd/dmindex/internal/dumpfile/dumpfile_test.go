package dumpfile

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"
)

type pair struct{ key, value []byte }

func write(t rapid.TB, pairs []pair) []byte {
	var out bytes.Buffer
	w, err := NewWriter(&out, Description{Index: "ns/name", Created: time.Unix(1700000000, 0).UTC(), Program: "test"})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pairs {
		if err := w.Add(p.key, p.value); err != nil {
			t.Fatal(err)
		}
	}
	if count, _, err := w.Close(); err != nil || count != uint64(len(pairs)) {
		t.Fatalf("closed with %d pairs, %v", count, err)
	}
	return out.Bytes()
}

func read(file []byte) (pairs []pair, err error) {
	_, _, err = Read(bytes.NewReader(file), func(Description) error { return nil }, func(k, v []byte) error {
		pairs = append(pairs, pair{bytes.Clone(k), bytes.Clone(v)})
		return nil
	})
	return pairs, err
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		item := rapid.SliceOfN(rapid.Byte(), 0, 300)
		pairs := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) pair {
			return pair{item.Draw(t, "key"), item.Draw(t, "value")}
		}), 0, 50).Draw(t, "pairs")
		got, err := read(write(t, pairs))
		if err != nil || len(got) != len(pairs) {
			t.Fatalf("read %d pairs of %d: %v", len(got), len(pairs), err)
		}
		for i := range got {
			if !bytes.Equal(got[i].key, pairs[i].key) || !bytes.Equal(got[i].value, pairs[i].value) {
				t.Fatalf("pair %d differs", i)
			}
		}
	})
}

// TestEveryDamageIsSeen cuts the file at every byte and flips every byte.
func TestEveryDamageIsSeen(t *testing.T) {
	file := write(t, []pair{{[]byte("a"), []byte("1")}, {nil, nil}, {[]byte("key"), bytes.Repeat([]byte("v"), 200)}})
	for n := range file {
		if _, err := read(file[:n]); !errors.Is(err, ErrDamaged) {
			t.Errorf("cut at %d of %d: %v", n, len(file), err)
		}
		changed := bytes.Clone(file)
		changed[n] ^= 0x41
		if _, err := read(changed); !errors.Is(err, ErrDamaged) {
			t.Errorf("byte %d of %d flipped: %v", n, len(file), err)
		}
	}
	if _, err := read(append(bytes.Clone(file), 0)); !errors.Is(err, ErrDamaged) {
		t.Errorf("a byte more: %v", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(write(f, []pair{{[]byte("a"), []byte("1")}}))
	f.Add([]byte("DMDUMP\x00\x01"))
	f.Fuzz(func(t *testing.T, in []byte) {
		if _, err := read(in); err != nil && !errors.Is(err, ErrDamaged) {
			t.Errorf("error %v does not say ErrDamaged", err)
		}
	})
}
