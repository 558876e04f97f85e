package dolphin

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// busySweeper is a sweeper beside which something is done before it comes to the first leaf.
type busySweeper struct {
	sweeper
	first func()
}

func (w *busySweeper) SeeLeaf(slot art.Slot) (bool, error) {
	if do := w.first; do != nil {
		w.first = nil
		do()
	}
	return w.sweeper.SeeLeaf(slot)
}

// TestPiecesOfASweep: a piece of a sweep's walk does not READ much more than its share, whatever
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
			for place, more := []byte(nil), true; more; {
				w.seen = w.seen[:0]
				before := bytes.Clone(place)
				place, more, err = w.piece(place)
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

// TestSweepBesideACompletion: a client died behind the forward word of a split. The walk of a sweep
// READs the node with the leaf's slot, then another client completes the split, then the walk comes
// to the leaf. It sees both halves.
func TestSweepBesideACompletion(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{})
	open := func() *Session {
		x, err := open(c.Open(t), index.Options{Uint64: true, MaxValueBytes: 8})
		if err != nil {
			t.Fatal(err)
		}
		s, err := x.newSession()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	key := func(i uint64) []byte { return binary.BigEndian.AppendUint64(nil, i) }
	dead, other, third := open(), open(), open()
	for i := range uint64(20) {
		must(dead.Insert(key(i<<40), key(i)))
	}
	// the dead client: requests 1 and 2 of replace.go
	dead.Begin()
	if there, err := dead.lock(key(0), true); err != nil || !there {
		t.Fatal(there, err)
	}
	l := &dead.leaf
	dead.alive(l)
	var m leaves
	must(dead.allot(&m, l.at, 2, false))
	cut := len(dead.pairs) / 2
	bound := separator(l.key(dead.pairs[cut-1].cursor, dead.pairs[cut-1].w), l.key(dead.pairs[cut].cursor, dead.pairs[cut].w))
	dead.make(0, m.at[0], l.low, bound, m.at[1], dead.pairs[:cut])
	dead.make(1, m.at[1], bound, nil, pool.Nil, dead.pairs[cut:])
	must(dead.writeLeaves(&m))
	l.setWord(atForward, uint64(m.at[0]))
	dead.writeAt(atForward, wordBytes)
	must(dead.publish())
	dead.End()

	w := &busySweeper{sweeper: sweeper{s: third}, first: func() { must(other.Update(key(0), key(7))) }}
	third.Begin()
	_, more, err := third.NewWalker(nil).SeeFrom(nil, 1000, w)
	must(err)
	third.End()
	if more {
		t.Error("the walk ended before the tree did")
	}
	for i, a := range m.at {
		if !slices.Contains(w.seen, a) {
			t.Errorf("half %d, %v, is in the tree, and was not seen", i, a)
		}
	}
	if v, err := other.Lookup(key(19<<40), nil); err != nil || binary.BigEndian.Uint64(v) != 19 {
		t.Error(v, err)
	}
}
