package slottedtree

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
)

// grows makes room for coming in the leaf that holds the first of these, as a client does that
// keeps the leaf. between is called when the new leaves can be found, and not before. The
// operation is over then.
func grows(t *testing.T, s *Session, coming []slotted.Coming, between func(parts int)) int {
	t.Helper()
	s.Begin()
	defer s.End()
	p, err := s.Seek(coming[0].Key, fence.Holding, 0)
	fatal(t, err)
	image := make([]byte, s.Lay.NodeBytes)
	fatal(t, s.Read(p.Addr(), s.Node))
	copy(image, s.Node)
	var l slotted.Leaf
	if !l.Open(s.Lay, p.Addr(), image) {
		t.Fatal("the leaf is torn")
	}
	n := len(coming)
	for n > 1 && l.Above(coming[n-1].Key) {
		n--
	}
	parts, err := s.Grow(p.Addr(), image, coming[:n])
	fatal(t, err)
	between(parts)
	fatal(t, s.ConnectParts())
	return parts
}

// TestGrow makes room for runs of keys anywhere in a tree of small nodes, whose parents are divided
// by that, and then puts the keys. What was there stays, and the tree is in order and all of it
// connected.
func TestGrow(t *testing.T) {
	x, s := spread(t)
	r := rand.New(rand.NewPCG(2, 9))
	want, parts := map[uint64]bool{}, 0
	for round := range 60 {
		low, step := r.Uint64N(1<<20), 1+r.Uint64N(3)
		var coming []slotted.Coming
		for i := range 10 + r.Uint64N(90) {
			coming = append(coming, slotted.Coming{Key: number(low + i*step), Bytes: s.Lay.EntryBytes(8, 8)})
		}
		parts += grows(t, s, coming, func(int) {})
		st, err := x.Check()
		fatal(t, err)
		if st.Unlinked != 0 || int(st.Pairs) != len(want) {
			t.Fatalf("round %d: %d nodes are not linked, %d pairs, want %d", round, st.Unlinked, st.Pairs, len(want))
		}
		for i := range coming {
			fatal(t, s.Upsert(coming[i].Key, number(7)))
			want[low+uint64(i)*step] = true
		}
	}
	if parts < 200 {
		t.Errorf("%d leaves were made: this tests too little", parts)
	}
	for n := range want {
		if _, err := s.Lookup(number(n), nil); err != nil {
			t.Fatalf("key %d: %v", n, err)
		}
	}
}

// TestGrowBesideMerges: between the moment when new leaves can be found and their connection
// another session connects some, and merges them away. Dead ones are not connected.
func TestGrowBesideMerges(t *testing.T) {
	x, s := spread(t)
	other, err := x.NewSession()
	fatal(t, err)
	defer other.Close()
	for n := range uint64(400) {
		fatal(t, s.Insert(number(n<<20), number(n)))
	}
	merged := 0
	for round := range uint64(30) {
		var coming []slotted.Coming
		for i := range uint64(80) {
			coming = append(coming, slotted.Coming{Key: number(round*13<<20 + 1 + i), Bytes: s.Lay.EntryBytes(8, 8)})
		}
		grows(t, s, coming, func(parts int) {
			for i := 1; i < parts; i++ {
				if low, empty := s.EmptyPart(i); empty && i%3 != 0 {
					fatal(t, other.Connect(bytes.Clone(low), s.Part(i)))
					fatal(t, other.MergeAt(low))
					fatal(t, other.Read(s.Part(i), other.Node))
					var l slotted.Leaf
					if !l.Open(s.Lay, s.Part(i), other.Node) {
						merged++
					}
				}
			}
		})
		st, err := x.Check()
		fatal(t, err)
		if st.Unlinked != 0 || st.Pairs != 400 {
			t.Fatalf("round %d: %d nodes are not linked, %d pairs", round, st.Unlinked, st.Pairs)
		}
	}
	if merged == 0 {
		t.Error("no new leaf was merged: this tests nothing")
	}
}

// TestGrowOfOldImage: a leaf that is not what is kept of it is not changed.
func TestGrowOfOldImage(t *testing.T) {
	x, s := spread(t)
	for n := range uint64(5) {
		fatal(t, s.Insert(number(n), number(n)))
	}
	s.Begin()
	p, err := s.Seek(number(2), fence.Holding, 0)
	fatal(t, err)
	image := make([]byte, s.Lay.NodeBytes)
	fatal(t, s.Read(p.Addr(), s.Node))
	copy(image, s.Node)
	s.End()
	for n := uint64(5); n < 20; n++ {
		fatal(t, s.Insert(number(n), number(n)))
	}
	s.Begin()
	parts, err := s.Grow(p.Addr(), image, []slotted.Coming{{Key: number(1 << 30), Bytes: 16}})
	s.End()
	if parts != 0 || !errors.Is(err, index.ErrFormat) {
		t.Errorf("%d parts, %v", parts, err)
	}
	st, err := x.Check()
	fatal(t, err)
	if st.Pairs != 20 {
		t.Error(fmt.Sprint("pairs: ", st.Pairs))
	}
}
