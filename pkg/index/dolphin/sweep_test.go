package dolphin

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// TestPiecesOfASweep: a piece of a sweep's walks does not READ much more than its share, whatever
// keys have in common. Together pieces see all that is in the tree.
func TestPiecesOfASweep(t *testing.T) {
	const keys = 3000
	long := strings.Repeat("the same for all keys ", 5)
	for name, key := range map[string]func(i uint64) string{
		"one prefix": func(i uint64) string { return fmt.Sprintf("%s%05d", long, i) },
		"spread":     func(i uint64) string { return string(binary.BigEndian.AppendUint64(nil, i*0x9E3779B97F4A7C15)) },
		"prefixes":   func(i uint64) string { return strings.Repeat("a", int(i%100)) + fmt.Sprint(i) },
	} {
		t.Run(name, func(t *testing.T) {
			c := pooltest.New(t, pooltest.Options{})
			x, err := open(c.Open(t), index.Options{MaxKeyBytes: 120, MaxValueBytes: 8, NodeBytes: 576})
			must(t, err)
			s, err := x.newSession()
			must(t, err)
			for i := range uint64(keys) {
				must(t, s.Insert([]byte(key(i)), nil))
			}
			w := &sweeper{s: s}
			seen := map[pool.Addr]bool{}
			for _, piece := range []func([]byte) ([]byte, bool, error){w.byKeys, w.bySlots} {
				for place, more := []byte(nil), true; more; {
					w.seen = w.seen[:0]
					before := bytes.Clone(place)
					place, more, err = piece(place)
					must(t, err)
					if n := len(w.seen); n > 2*pieceNodes {
						t.Errorf("a piece from %q saw %d nodes and leaves", before, n)
					}
					if more && bytes.Compare(place, before) <= 0 {
						t.Fatalf("a piece went from %q to %q", before, place)
					}
					for _, a := range w.seen {
						seen[a] = true
					}
				}
			}
			must(t, s.SeeRoots(func(roots []pool.Addr) {
				for _, a := range roots {
					seen[a] = true
				}
			}))
			found, err := x.Check()
			must(t, err)
			for a := range found.Parts() {
				if !seen[a] {
					t.Errorf("%v is in the tree, and was not seen", a)
				}
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// walked goes all of a walk, piece by piece, from a place on.
func (w *sweeper) walked(t *testing.T, piece func([]byte) ([]byte, bool, error), from []byte) {
	t.Helper()
	for more := true; more; {
		var err error
		from, more, err = piece(from)
		must(t, err)
	}
}

// TestSweepBesideACompletion: a client died behind the forward word of a split. Another one
// completes the split before a sweep's walks, between them or behind them. They see both halves,
// and so they do if that one dies when it has replaced a half in turn.
func TestSweepBesideACompletion(t *testing.T) {
	key := func(i uint64) []byte { return binary.BigEndian.AppendUint64(nil, i) }
	for when := range 3 {
		for replaced := range 2 {
			c := pooltest.New(t, pooltest.Options{})
			open := func() *Session {
				x, err := open(c.Open(t), index.Options{Uint64: true, MaxValueBytes: 8})
				must(t, err)
				s, err := x.newSession()
				must(t, err)
				return s
			}
			dead, other, third := open(), open(), open()
			for i := range uint64(20) {
				must(t, dead.Insert(key(i<<40), key(i)))
			}
			halves := forwardOnly(t, dead, key(0), 2)
			complete := func() {
				must(t, other.Update(key(0), key(7)))
				if replaced > 0 {
					forwardOnly(t, other, key(19<<40), 1)
				}
			}
			w := &sweeper{s: third}
			for i, piece := range []func([]byte) ([]byte, bool, error){w.byKeys, w.bySlots} {
				if when == i {
					complete()
				}
				w.walked(t, piece, nil)
			}
			if when == 2 {
				complete()
			}
			for i, a := range halves {
				if !slices.Contains(w.seen, a) {
					t.Errorf("completed at %d, replaced %d: half %d, %v, is in the tree, and was not seen", when, replaced, i, a)
				}
			}
			if v, err := third.Lookup(key(19<<40), nil); err != nil || binary.BigEndian.Uint64(v) != 19 {
				t.Error(v, err)
			}
		}
	}
}

// forwardOnly does requests 1 and 2 of replace.go with the leaf of key, in whose place n leaves
// come, as a client that dies behind them.
func forwardOnly(t *testing.T, s *Session, key []byte, n int) []pool.Addr {
	t.Helper()
	s.Begin()
	defer s.End()
	if there, err := s.lock(key, true); err != nil || !there {
		t.Fatal(there, err)
	}
	l := &s.leaf
	s.gatherAlive(l)
	var m leaves
	must(t, s.allot(&m, l.at, n, false))
	high := bytes.Clone(l.high)
	if l.endless {
		high = nil
	}
	if n == 1 {
		s.make(0, m.at[0], l.low, high, pool.Nil, s.pairs)
	} else {
		cut := len(s.pairs) / 2
		bound := separator(l.key(s.pairs[cut-1].cursor, s.pairs[cut-1].w), l.key(s.pairs[cut].cursor, s.pairs[cut].w))
		s.make(0, m.at[0], l.low, bound, m.at[1], s.pairs[:cut])
		s.make(1, m.at[1], bound, high, pool.Nil, s.pairs[cut:])
	}
	s.Forget()
	must(t, s.publishLeaves(&m))
	return m.at[:n]
}

// TestSweepBesideMerges: leaves are merged behind a sweep's walks, between and before them, so
// pairs move to lower places. The walks see the block of each pair that stays.
func TestSweepBesideMerges(t *testing.T) {
	key := func(i uint64) []byte { return binary.BigEndian.AppendUint64(nil, i*0x01010101) }
	const keys = 2000
	c := pooltest.New(t, pooltest.Options{Chunks: 32})
	x, err := open(c.Open(t), index.Options{Uint64: true, MaxValueBytes: 100, InlineBytes: 1, NodeBytes: 256})
	must(t, err)
	s, err := x.newSession()
	must(t, err)
	other, err := x.newSession()
	must(t, err)
	for i := range uint64(keys) {
		must(t, s.Insert(key(i), bytes.Repeat([]byte{1}, 100)))
	}
	merges := x.Merges.Load()
	at := uint64(0)
	merge := func(to uint64) {
		for ; at < min(to, keys); at++ {
			if at%8 != 0 {
				must(t, other.Delete(key(at)))
			}
		}
	}
	w := &sweeper{s: s}
	for n, piece := range []func([]byte) ([]byte, bool, error){w.byKeys, w.bySlots} {
		var place []byte
		for more := true; more; {
			if place, more, err = piece(place); n == 0 {
				// All leaves to behind the place where the next piece begins.
				merge(binary.BigEndian.Uint64(append(bytes.Clone(place), make([]byte, 8)...))/0x01010101 + 30)
			}
			must(t, err)
		}
	}
	if n := x.Merges.Load() - merges; n < keys/100 {
		t.Errorf("%d merges", n)
	}
	found, err := x.Check()
	must(t, err)
	for _, p := range found.Memory {
		if p.Kind == index.KindBlock && !slices.Contains(w.seen, p.Addr) {
			t.Errorf("block %v is in the tree, and was not seen", p.Addr)
		}
	}
}
