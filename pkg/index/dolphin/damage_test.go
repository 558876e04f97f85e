package dolphin

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// TestDamagedLeaves: what no client writes, as of a program that wrote where it must not, ends
// every operation that comes to it with an error that names the leaf. Other keys are served on.
func TestDamagedLeaves(t *testing.T) {
	o := index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 256}
	c := pooltest.New(t, pooltest.Options{})
	key := func(i uint64) []byte { return binary.BigEndian.AppendUint64(nil, i) }
	open := func() (*Tree, *Session) {
		x, err := open(c.Open(t), o)
		if err != nil {
			t.Fatal(err)
		}
		s, err := x.newSession()
		if err != nil {
			t.Fatal(err)
		}
		return x, s
	}
	_, w := open()
	const keys = 60
	for i := range uint64(keys) {
		if err := w.Insert(key(i), key(i)); err != nil {
			t.Fatal(err)
		}
	}
	leafOf := func(i uint64) (pool.Addr, []byte, int) {
		w.Begin()
		defer w.End()
		if there, err := w.find(key(i), false); err != nil || !there {
			t.Fatal(there, err)
		}
		return w.leaf.at, bytes.Clone(w.room), w.leaf.records
	}
	const middle, last = keys / 2, keys - 1
	first, _, _ := leafOf(0)
	type change struct {
		what  string
		of    uint64 // a key of the leaf that is damaged
		word  int    // offset of the word, 0 = the first state word
		value uint64
	}
	changes := []change{
		{"forward word 4", middle, atForward, 4},
		{"address inside of a leaf", middle, atForward, uint64(first) + 8},
		{"address of an inner node", middle, atForward, uint64(w.t.First)},
		{"address on no server", middle, atForward, uint64(pool.NewAddr(4000, 1<<20))},
		{"gone, of several", middle, atForward, gone},
		{"merging, of the last one", last, atForward, merging},
		{"another leaf's address", middle, atForward, uint64(first)},
		{"no length of min", middle, 8, 1<<64 - 1},
		{"no head", middle, 0, 0},
		{"right half", middle, atRight, 12345},
		{"another min", middle, atBounds, 0x4141414141414141},
		{"no state", middle, -1, 0x1234},
		{"longer than there is room", middle, -1, 1 | 8<<2 | 9<<14},
	}
	for _, d := range changes {
		t.Run(d.what, func(t *testing.T) {
			a, image, records := leafOf(d.of)
			if d.word < 0 {
				d.word = records
			}
			if first == a {
				t.Fatal("there is one leaf only")
			}
			put := func(word uint64) {
				t.Helper()
				w.Begin()
				defer w.End()
				binary.LittleEndian.PutUint64(w.room, word)
				w.PS.Write(pool.Sole, a+pool.Addr(d.word), w.room[:8])
				if err := w.PS.Post(); err != nil {
					t.Fatal(err)
				}
			}
			put(d.value)
			k, says := key(d.of), a.String()
			if d.what == "another leaf's address" {
				says = "" // which of them is damaged cannot be said
			}
			x, s := open()
			for what, do := range map[string]func(x *Tree, s *Session) error{
				"lookup": func(_ *Tree, s *Session) error { _, err := s.Lookup(k, nil); return err },
				"batch": func(_ *Tree, s *Session) (err error) {
					return errors.Join(s.LookupBatch([][]byte{k}, func(_ int, _ []byte, e error) { err = e }), err)
				},
				"insert": func(_ *Tree, s *Session) error { return s.Insert(k, nil) },
				"upsert": func(_ *Tree, s *Session) error { return s.Upsert(k, nil) },
				"update": func(_ *Tree, s *Session) error { return s.Update(k, k) },
				"delete": func(_ *Tree, s *Session) error { return s.Delete(k) },
				"modify": func(_ *Tree, s *Session) error {
					return s.Modify(k, func([]byte, bool) ([]byte, index.Action) { return nil, index.Keep })
				},
				"scan": func(_ *Tree, s *Session) error {
					return s.Scan(nil, 100, false, func(_, _ []byte) bool { return true })
				},
				"down": func(_ *Tree, s *Session) error {
					return s.Scan(nil, 100, true, func(_, _ []byte) bool { return true })
				},
				"survey": func(x *Tree, _ *Session) error { return x.Survey(func([]byte, int) error { return nil }) },
				"check":  func(x *Tree, _ *Session) error { _, err := x.Check(); return err },
			} {
				if what == "survey" && d.word == records {
					continue // it does not look at pairs
				}
				err := do(x, s)
				if err == nil || what != "check" && !errors.Is(err, index.ErrFormat) || !strings.Contains(err.Error(), says) {
					t.Errorf("%s: %v", what, err)
				}
				if v, err := s.Lookup(key(0), nil); err != nil || !bytes.Equal(v, key(0)) {
					t.Errorf("another key after %s: %x, %v", what, v, err)
				}
			}
			must(t, s.Close())
			put(binary.LittleEndian.Uint64(image[d.word:]))
		})
	}
	x, _ := open()
	if found, err := x.Check(); err != nil || found.Pairs != keys {
		t.Error(found.Pairs, err)
	}
}

// TestDamagedSlots: slots that no client writes end every operation that comes to them with an
// error that says so.
func TestDamagedSlots(t *testing.T) {
	o := index.Options{MaxKeyBytes: 20, MaxValueBytes: 8, NodeBytes: 576}
	c := pooltest.New(t, pooltest.Options{})
	open := func() (*Tree, *Session) {
		x, err := open(c.Open(t), o)
		must(t, err)
		s, err := x.newSession()
		must(t, err)
		return x, s
	}
	_, w := open()
	key := []byte("m25")
	for i := range 60 {
		must(t, w.Insert(fmt.Appendf(nil, "m%02d", i), nil))
	}
	w.Begin()
	if there, err := w.find(key, false); err != nil || !there || w.Level == 0 {
		t.Fatal(there, w.Level, err)
	}
	st := *w.Last()
	place := st.Node.Addr + pool.Addr(art.SlotAt(st.Idx))
	w.End()
	put := func(v art.Slot) {
		t.Helper()
		w.Begin()
		defer w.End()
		binary.LittleEndian.PutUint64(w.room, uint64(v))
		w.PS.Write(pool.Sole, place, w.room[:8])
		must(t, w.PS.Post())
	}
	for what, v := range map[string]art.Slot{
		"a node of a type that there is not": st.Word&^(art.LeafFlag|127<<48) | 100<<48,
		"a node above":                       w.t.RootSlot().WithKey(st.Word.Key()),
		"a leaf on no server":                st.Word&^art.AddrMask | art.Slot(8000)<<art.OffsetBits | 1,
		"a leaf inside of another one":       st.Word + 1,
	} {
		t.Run(what, func(t *testing.T) {
			put(v)
			defer put(st.Word)
			for what, do := range map[string]func(s *Session) error{
				"lookup": func(s *Session) error { _, err := s.Lookup(key, nil); return err },
				"batch":  func(s *Session) error { return s.LookupBatch([][]byte{key}, func(_ int, _ []byte, e error) {}) },
				"upsert": func(s *Session) error { return s.Upsert(key, key[:1]) },
				"delete": func(s *Session) error { return s.Delete(key) },
				"modify": func(s *Session) error {
					return s.Modify(key, func([]byte, bool) ([]byte, index.Action) { return nil, index.Keep })
				},
				"scan": func(s *Session) error {
					return s.Scan(nil, 100, false, func(_, _ []byte) bool { return true })
				},
				"down": func(s *Session) error {
					return s.Scan(nil, 100, true, func(_, _ []byte) bool { return true })
				},
			} {
				x, s := open()
				if err := do(s); !errors.Is(err, index.ErrFormat) {
					t.Errorf("%s: %v", what, err)
				}
				_ = s.Close()
				if _, err := x.Check(); err == nil {
					t.Errorf("a check finds nothing")
				}
			}
		})
	}
	x, _ := open()
	if found, err := x.Check(); err != nil || found.Pairs != 60 {
		t.Error(found.Pairs, err)
	}
}
