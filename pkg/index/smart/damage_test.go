package smart

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// TestDamagedSlots: slots that no client writes, as of a program that wrote where it must not, end
// every operation that comes to them with an error that says so. Other keys are served on.
func TestDamagedSlots(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{})
	o := index.Options{MaxKeyBytes: 20, MaxValueBytes: 8}
	x, err := Open(c.Open(t), o)
	if err != nil {
		t.Fatal(err)
	}
	s, err := x.Session()
	if err != nil {
		t.Fatal(err)
	}
	w := s.(*Session)
	for _, key := range []string{"a1", "a2", "b", "c"} {
		if err := s.Insert([]byte(key), nil); err != nil {
			t.Fatal(err)
		}
	}
	at := func(b byte) pool.Addr { return w.Path[0].Node.Addr + pool.Addr(art.SlotAt(w.lay.Base()+int(b))) }
	if _, err := s.Lookup([]byte("a1"), nil); err != nil || w.Level != 1 {
		t.Fatal(w.Level, err)
	}
	deep := w.Path[1].Node.Addr + pool.Addr(art.SlotAt(w.Path[1].Idx))
	for n, change := range []func(v art.Slot) art.Slot{
		// a leaf that is longer than any
		func(v art.Slot) art.Slot { return v | 127<<48 },
		// a node of a type that there is not
		func(v art.Slot) art.Slot { return v&^(art.LeafFlag|127<<48) | 100<<48 },
		// the node itself, or one above it
		func(v art.Slot) art.Slot { return w.t.RootSlot().WithKey(v.Key()) },
		// a server that there is not
		func(v art.Slot) art.Slot { return v&^art.AddrMask | art.Slot(8000)<<art.OffsetBits | 1 },
	} {
		for _, key := range []string{"a1", "b", "a1 below"} {
			place := at(key[0])
			if key == "a1 below" {
				if place, key = deep, "a1"; n == 3 {
					continue
				}
			}
			t.Run(fmt.Sprint(n, " ", key), func(t *testing.T) {
				y, err := Open(c.Open(t), o)
				if err != nil {
					t.Fatal(err)
				}
				open := func() index.Session {
					s, err := y.Session()
					if err != nil {
						t.Fatal(err)
					}
					s.SetLimit(50e6)
					return s
				}
				w.Begin()
				if err := w.Read(place, w.Answers[:8]); err != nil {
					t.Fatal(err)
				}
				before := bytes.Clone(w.Answers[:8])
				put := func(b []byte) {
					w.PS.Write(pool.Sole, place, append(w.Answers[:0], b...))
					if err := w.PS.Post(); err != nil {
						t.Fatal(err)
					}
				}
				put(binary.LittleEndian.AppendUint64(nil, uint64(change(art.Slot(binary.LittleEndian.Uint64(before))))))
				w.End()
				k := []byte(key)
				for what, do := range map[string]func(s index.Session) error{
					"lookup": func(s index.Session) error { _, err := s.Lookup(k, nil); return err },
					"batch":  func(s index.Session) error { return s.LookupBatch([][]byte{k}, func(int, []byte, error) {}) },
					"insert": func(s index.Session) error { return s.Insert(k, nil) },
					"upsert": func(s index.Session) error { return s.Upsert(k, nil) },
					"delete": func(s index.Session) error { return s.Delete(k) },
					"modify": func(s index.Session) error {
						return s.Modify(k, func([]byte, bool) ([]byte, index.Action) { return nil, index.Keep })
					},
					"scan":   func(s index.Session) error { return s.Scan(nil, 100, false, func(_, _ []byte) bool { return true }) },
					"up":     func(s index.Session) error { return s.Scan(nil, 100, true, func(_, _ []byte) bool { return true }) },
					"check":  func(index.Session) error { _, err := y.(index.Checker).Check(); return err },
					"survey": func(index.Session) error { return y.(index.Surveyor).Survey(func([]byte, int) error { return nil }) },
				} {
					if n > 2 && (what == "check" || what == "survey") {
						continue // the session of such an address is dead, and these say so
					}
					s := open()
					if err := do(s); err == nil || n < 3 && what != "check" && !errors.Is(err, index.ErrFormat) {
						t.Errorf("%s: %v", what, err)
					} else {
						t.Logf("%s: %v", what, err)
					}
					if _, err := s.Lookup([]byte("c"), nil); n < 3 && err != nil {
						t.Errorf("another key after %s: %v", what, err)
					}
					_ = s.Close()
				}
				w.Begin()
				put(before)
				w.End()
			})
		}
	}
	if _, err := x.(index.Checker).Check(); err != nil {
		t.Error(err)
	}
}

// TestWayThatLeadsBack: the way of the root was damaged, and leads to the root itself. Every walk
// along the ways ends, and says so.
func TestWayThatLeadsBack(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{})
	o := index.Options{MaxKeyBytes: 20, MaxValueBytes: 8}
	x, err := Open(c.Open(t), o)
	if err != nil {
		t.Fatal(err)
	}
	s, err := x.Session()
	if err != nil {
		t.Fatal(err)
	}
	w := s.(*Session)
	w.Begin()
	w.PS.Write(pool.Sole, w.t.RootAddr()+art.AtWay, binary.LittleEndian.AppendUint64(w.Answers[:0], uint64(w.t.RootSlot())))
	if err := w.PS.Post(); err != nil {
		t.Fatal(err)
	}
	w.End()
	for what, do := range map[string]func() error{
		"lookup": func() error { _, err := s.Lookup([]byte("a"), nil); return err },
		"check":  func() error { _, err := x.(index.Checker).Check(); return err },
		"survey": func() error { return x.(index.Surveyor).Survey(func([]byte, int) error { return nil }) },
		"sweep":  func() error { return w.SeeRoots(func([]pool.Addr) {}) },
	} {
		if err := do(); !errors.Is(err, index.ErrFormat) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestErrorsNameNoOtherKey: the error of an operation that comes to a leaf of another key, as
// damaged memory may have it, does not say which key that is. Its caller may have no right to it.
func TestErrorsNameNoOtherKey(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{})
	x, err := Open(c.Open(t), index.Options{MaxKeyBytes: 20, MaxValueBytes: 8})
	if err != nil {
		t.Fatal(err)
	}
	s, err := x.Session()
	if err != nil {
		t.Fatal(err)
	}
	w := s.(*Session)
	for _, key := range []string{"a1", "a2", "mine", "zebra1", "zebra2", "secret"} {
		if err := s.Insert([]byte(key), nil); err != nil {
			t.Fatal(err)
		}
	}
	root := w.Path[0].Node.Addr
	hides := func(what string, err error, secret string) {
		t.Helper()
		if !errors.Is(err, index.ErrFormat) || bytes.Contains([]byte(err.Error()), []byte(secret)) || bytes.Contains([]byte(err.Error()), fmt.Appendf(nil, "%x", secret)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	word := func(b byte) pool.Addr { return root + pool.Addr(art.SlotAt(w.lay.Base()+int(b))) }
	w.Begin()
	var at [2]art.Slot
	for i, b := range []byte("ms") {
		if err := w.Read(word(b), w.Answers[:8]); err != nil {
			t.Fatal(err)
		}
		at[i] = art.Slot(binary.LittleEndian.Uint64(w.Answers))
	}
	w.PS.Write(pool.Sole, word('m'), binary.LittleEndian.AppendUint64(w.Answers[:0], uint64(at[0]&^art.AddrMask|at[1]&art.AddrMask)))
	if err := w.PS.Post(); err != nil {
		t.Fatal(err)
	}
	w.End()
	hides("insert", s.Insert([]byte("my own"), nil), "secret")

	// the slot of a1 leads to the node of the zebras
	if _, err := s.Lookup([]byte("a1"), nil); err != nil || w.Level != 1 {
		t.Fatal(w.Level, err)
	}
	place, was := w.Path[1].Node.Addr+pool.Addr(art.SlotAt(w.Path[1].Idx)), w.Path[1].Word
	w.Begin()
	if err := w.Read(word('z'), w.Answers[:8]); err != nil {
		t.Fatal(err)
	}
	zebras := art.Slot(binary.LittleEndian.Uint64(w.Answers))
	w.PS.Write(pool.Sole, place, binary.LittleEndian.AppendUint64(w.Answers[:0], uint64(zebras.WithKey(was.Key()))))
	if err := w.PS.Post(); err != nil {
		t.Fatal(err)
	}
	w.End()
	y, err := Open(c.Open(t), index.Options{MaxKeyBytes: 20, MaxValueBytes: 8})
	if err != nil {
		t.Fatal(err)
	}
	other, err := y.Session()
	if err != nil {
		t.Fatal(err)
	}
	_, err = other.Lookup([]byte("a1"), nil)
	hides("lookup", err, "ebra")
}

// TestServersBeyond: memory of a server whose number is too large for a slot is not used. What was
// answered is there.
func TestServersBeyond(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{FirstID: 1<<art.ServerBits - 1, Servers: 2, Chunks: 3, ChunkBytes: 256 << 10})
	x, err := Open(c.Open(t), index.Options{MaxKeyBytes: 20, MaxValueBytes: 5000, InlineBytes: 10})
	if err != nil {
		t.Fatal(err)
	}
	s, err := x.Session()
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	there := map[string][]byte{}
	for n := range 2000 {
		key, value := fmt.Appendf(nil, "key %04d", n/2), bytes.Repeat([]byte{byte(n)}, n*7%5000)
		switch err := s.Upsert(key, value); {
		case errors.Is(err, index.ErrPoolFull):
			refused++
		case err != nil:
			t.Fatal(err)
		default:
			there[string(key)] = value
		}
	}
	for key, value := range there {
		if got, err := s.Lookup([]byte(key), nil); err != nil || !bytes.Equal(got, value) {
			t.Fatalf("%s has %d bytes, want %d: %v", key, len(got), len(value), err)
		}
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
	t.Logf("%d of 2000 refused", refused)
	found, err := x.(index.Checker).Check()
	if err == nil {
		_, err = c.Audit(found.Parts())
	}
	if err != nil {
		t.Error(err)
	}
}
