package dumpfile

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dmindex/dmindex/client"
)

func write(t rapid.TB, pairs []client.Pair) []byte {
	var out bytes.Buffer
	w, err := NewWriter(&out, Description{Index: "ns/name", Created: time.Unix(1700000000, 0).UTC(), Program: "test"})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pairs {
		if err := w.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	if count, _, err := w.Close(); err != nil || count != uint64(len(pairs)) {
		t.Fatalf("closed with %d pairs, %v", count, err)
	}
	return out.Bytes()
}

func read(file []byte) (pairs []client.Pair, err error) {
	_, _, err = Read(bytes.NewReader(file), func(Description) error { return nil }, func(p client.Pair) error {
		pairs = append(pairs, client.Pair{Key: bytes.Clone(p.Key), Value: bytes.Clone(p.Value), Expires: p.Expires, Hash: p.Hash, Member: p.Member, Score: p.Score})
		return nil
	})
	return pairs, err
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		item := rapid.SliceOfN(rapid.Byte(), 0, 300)
		pairs := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) client.Pair {
			p := client.Pair{Key: item.Draw(t, "key"), Value: item.Draw(t, "value"), Hash: rapid.Bool().Draw(t, "hash")}
			if p.Member = !p.Hash && rapid.Bool().Draw(t, "member"); p.Member {
				p.Score = rapid.Float64().Draw(t, "score")
			}
			if deadline := rapid.Int64Min(0).Draw(t, "deadline"); deadline != 0 {
				p.Expires = time.UnixMilli(deadline)
			}
			return p
		}), 0, 50).Draw(t, "pairs")
		got, err := read(write(t, pairs))
		if err != nil || len(got) != len(pairs) {
			t.Fatalf("read %d pairs of %d: %v", len(got), len(pairs), err)
		}
		for i := range got {
			if !bytes.Equal(got[i].Key, pairs[i].Key) || !bytes.Equal(got[i].Value, pairs[i].Value) || !got[i].Expires.Equal(pairs[i].Expires) || got[i].Hash != pairs[i].Hash || got[i].Member != pairs[i].Member || got[i].Score != pairs[i].Score {
				t.Fatalf("pair %d differs", i)
			}
		}
	})
}

// TestReadsEarlierVersions: pairs of a dump without times do not expire, and those of one without
// types are strings. A type that is not known is damage.
func TestReadsEarlierVersions(t *testing.T) {
	for version, records := range map[string]string{"\x01": "\x02a\x011\x01\x00", "\x02": "\x02a\x011\x00\x01\x00\x07", "\x03": "\x02a\x011\x00\x00\x01\x00\x07\x01"} {
		file := []byte("DMDUMP\x00" + version + "\x02\x00\x00\x00{}" + records + "\x00\x02\x00\x00\x00\x00\x00\x00\x00")
		sum := sha256.Sum256(file)
		got, err := read(append(file, sum[:]...))
		if err != nil || len(got) != 2 || string(got[0].Key) != "a" || string(got[0].Value) != "1" || len(got[1].Key) != 0 || !got[0].Expires.IsZero() || got[0].Hash ||
			got[1].Expires.IsZero() != (version == "\x01") || got[1].Hash != (version == "\x03") {
			t.Errorf("version %x: %+v, %v", version, got, err)
		}
	}
	file := []byte("DMDUMP\x00\x04\x02\x00\x00\x00{}\x02a\x011\x00\x03\x00\x01\x00\x00\x00\x00\x00\x00\x00")
	sum := sha256.Sum256(file)
	if got, err := read(append(file, sum[:]...)); !errors.Is(err, ErrDamaged) {
		t.Errorf("a value of a later type: %+v, %v", got, err)
	}
}

// TestEveryDamageIsSeen cuts the file at every byte and flips every byte.
func TestEveryDamageIsSeen(t *testing.T) {
	file := write(t, []client.Pair{{Key: []byte("a"), Value: []byte("1")}, {}, {Key: []byte("set"), Value: []byte("m"), Member: true, Score: 1.5}, {Key: []byte("key"), Value: bytes.Repeat([]byte("v"), 200), Expires: time.UnixMilli(1_900_000_000_123)}})
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
	f.Add(write(f, []client.Pair{{Key: []byte("a"), Value: []byte("1"), Expires: time.UnixMilli(1)}}))
	f.Add([]byte("DMDUMP\x00\x01"))
	f.Add([]byte("DMDUMP\x00\x02"))
	f.Add([]byte("DMDUMP\x00\x03"))
	f.Add([]byte("DMDUMP\x00\x04"))
	f.Fuzz(func(t *testing.T, in []byte) {
		if _, err := read(in); err != nil && !errors.Is(err, ErrDamaged) {
			t.Errorf("error %v does not say ErrDamaged", err)
		}
	})
}
