package dolphin

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

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

	w := &sweeper{s: third}
	third.Begin()
	first := true
	// A walk, with a change behind the first READ of a node.
	for b := art.EndBranch; b <= art.Highest; b++ {
		must(third.NewWalker(nil).SeeBelow(b, w.see, func(slot art.Slot) (bool, error) {
			if first {
				first = false
				must(other.Update(key(0), key(7)))
			}
			return w.leaf(slot)
		}))
	}
	third.End()
	for i, a := range m.at {
		if !slices.Contains(w.seen, a) {
			t.Errorf("half %d, %v, is in the tree, and was not seen", i, a)
		}
	}
	if v, err := other.Lookup(key(19<<40), nil); err != nil || binary.BigEndian.Uint64(v) != 19 {
		t.Error(v, err)
	}
}
