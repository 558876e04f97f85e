package dolphin

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// TestSplitWithoutInnerNodes: there is memory for leaves, and none for an inner node. An insert
// that would divide a leaf is refused, and the leaf is as it was.
func TestSplitWithoutInnerNodes(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{Servers: 1, Chunks: 2, ChunkBytes: 64 << 10})
	x, err := open(c.Open(t), index.Options{MaxKeyBytes: 20, MaxValueBytes: 8, NodeBytes: 576})
	if err != nil {
		t.Fatal(err)
	}
	s, err := x.newSession()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		for i := range 3 {
			must(t, s.Insert(fmt.Appendf(nil, "%s%d", k, i), nil))
		}
	}
	var leaves []pool.Addr
	for range 12 {
		a, err := s.PS.AllocateBlock(x.lay.size, pool.Nil)
		must(t, err)
		leaves = append(leaves, a)
	}
	takeAll(s)
	for _, a := range leaves {
		x.Pool.Free(a, x.lay.size)
	}
	refused := false
	for i := 0; !refused && i < 90; i++ {
		err := s.Insert(fmt.Appendf(nil, "g%d", 10+i), nil)
		if refused = errors.Is(err, index.ErrPoolFull); !refused {
			must(t, err)
		}
	}
	if !refused {
		t.Fatal("there was memory for an inner node")
	}
	found, err := x.Check()
	must(t, err)
	if found.Unlinked > 0 {
		t.Errorf("%d leaves without slots", found.Unlinked)
	}
	must(t, s.Delete([]byte("g1")))
}

// takeAll takes all memory that there is, and returns it by its size.
func takeAll(s *Session) map[pool.Addr]int {
	taken := map[pool.Addr]int{}
	for size := s.Pool.MostNodeBytes() &^ 63; size > 0; size -= 64 {
		for {
			a, err := s.PS.AllocateBlock(size, pool.Nil)
			if err != nil {
				break
			}
			taken[a] = size
		}
	}
	return taken
}

// TestFullBehindAForwardWord: a client died behind the forward word of a split, and there is no
// memory for what follows it. Pairs of both halves are found, and deleted, and get other values
// where these take no more room, and pairs for which there is room come in. What takes more is
// refused with what to do, until there is memory.
func TestFullBehindAForwardWord(t *testing.T) {
	for _, o := range []index.Options{{MaxKeyBytes: 20, MaxValueBytes: 8, NodeBytes: 576}, {MaxKeyBytes: 20, MaxValueBytes: 40, NodeBytes: 576}} {
		c := pooltest.New(t, pooltest.Options{Servers: 1, Chunks: 2, ChunkBytes: 64 << 10})
		x, err := open(c.Open(t), o)
		must(t, err)
		s, err := x.newSession()
		must(t, err)
		const keys = 26 // two leaves, of which the right one is to be divided: its slot gets a node
		for i := range keys {
			must(t, s.Insert(fmt.Appendf(nil, "a%02d", i), []byte{1}))
		}
		forwardOnly(t, s, []byte("a25"), 2)
		taken := takeAll(s)
		s.SetLimit(2e9)
		modified := func([]byte, bool) ([]byte, index.Action) { return []byte{3}, index.Put }
		for i := range keys {
			k := fmt.Appendf(nil, "a%02d", i)
			now := "\x03"
			if err := s.Modify(k, modified); x.lay.words {
				must(t, err)
				must(t, s.Update(k, []byte{3}))
			} else if err != nil { // each new value takes a record, and at times a leaf for it
				if now = "\x01"; !errors.Is(err, index.ErrPoolFull) {
					t.Fatal(err)
				}
			}
			if v, err := s.Lookup(k, nil); err != nil || string(v) != now {
				t.Errorf("%s: %v, %v", k, v, err)
			}
			if i%2 == 0 {
				must(t, s.Delete(k))
			}
		}
		n := 0
		for ; err == nil && n < 100; n++ {
			err = s.Insert(fmt.Appendf(nil, "a25%02d", n), []byte{4})
		}
		if x.lay.words && n < 2 || !errors.Is(err, index.ErrPoolFull) || !strings.Contains(err.Error(), "delete pairs, or let the index have more memory") {
			t.Errorf("insert %d: %v", n, err)
		}
		if found, err := x.Check(); err != nil || found.Unlinked != 2 || found.Pairs != uint64(keys/2+n-1) {
			t.Errorf("%+v, %v", found, err)
		}
		for a, size := range taken {
			x.Pool.Free(a, size)
		}
		for n--; n < 100; n++ {
			must(t, s.Insert(fmt.Appendf(nil, "a25%02d", n), []byte{4}))
		}
		if found, err := x.Check(); err != nil || found.Unlinked != 0 || found.Pairs != keys/2+100 {
			t.Errorf("%+v, %v", found, err)
		}
	}
}

// TestFullAndShut: a client died while it changed a leaf, and there is no memory for the leaf that
// is to take its place. Pairs are deleted, and get values of the same length. New records, which
// might lie over one that is there in part, are refused.
func TestFullAndShut(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{Servers: 1, Chunks: 2, ChunkBytes: 64 << 10})
	x, err := open(c.Open(t), index.Options{MaxKeyBytes: 20, MaxValueBytes: 8, NodeBytes: 576})
	must(t, err)
	s, err := x.newSession()
	must(t, err)
	key := func(i int) []byte { return fmt.Appendf(nil, "a%d", i) }
	for i := range 6 {
		must(t, s.Insert(key(i), []byte{1}))
	}
	s.Begin()
	if there, err := s.lock(key(0), true); err != nil || !there {
		t.Fatal(there, err)
	}
	l := &s.leaf
	end, _ := l.find(key(6), 0)
	inPart := end.end.at + wordBytes
	l.setWord(inPart, 0x41) // the key of a record whose state word is not there
	s.writeAt(inPart, wordBytes)
	l.setWord(atForward, shut)
	s.writeAt(atForward, wordBytes)
	must(t, s.publish())
	s.End()
	taken := takeAll(s)
	must(t, s.Delete(key(0)))
	must(t, s.Update(key(1), []byte{2}))
	for _, err := range []error{s.Insert(key(7), []byte{1}), s.Upsert(key(2), []byte{1, 2})} {
		if !errors.Is(err, index.ErrPoolFull) {
			t.Errorf("a record was made: %v", err)
		}
	}
	for a, size := range taken {
		x.Pool.Free(a, size)
	}
	must(t, s.Insert(key(7), []byte{1}))
	for i, want := range []string{"", "\x02", "\x01", "\x01", "\x01", "\x01", "", "\x01"} {
		if v, err := s.Lookup(key(i), nil); string(v) != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", key(i), v, err)
		}
	}
}

// TestMergesWithLittleMemory: a merge is begun only where there is memory for all that its
// completion may take, and then comes to its end: that is one leaf where the left one is empty, and
// two where it is not, as others may fill the right one meanwhile.
func TestMergesWithLittleMemory(t *testing.T) {
	for _, d := range []struct {
		left, free    int // pairs of the left leaf, and leaves for which there is memory
		fills, merges bool
	}{{1, 1, false, false}, {1, 2, false, true}, {1, 2, true, true}, {0, 0, false, false}, {0, 1, false, true}, {0, 1, true, true}} {
		t.Run(fmt.Sprintf("%+v", d), func(t *testing.T) {
			c := pooltest.New(t, pooltest.Options{Servers: 1, Chunks: 2, ChunkBytes: 64 << 10})
			x, err := open(c.Open(t), index.Options{MaxKeyBytes: 20, MaxValueBytes: 8, NodeBytes: 576})
			must(t, err)
			s, err := x.newSession()
			must(t, err)
			other, err := x.newSession()
			must(t, err)
			key := func(i int) []byte { return fmt.Appendf(nil, "a%02d", i) }
			const keys = 24 // two leaves, of which the left one has most
			for i := range keys {
				must(t, s.Insert(key(i), nil))
			}
			s.Begin()
			left := 0
			for i := 0; i < keys && left >= 0; i++ { // deletes that leave the merge to be done
				if there, err := s.lock(key(i), true); err != nil || !there {
					t.Fatal(there, err)
				}
				if s.leaf.endless {
					must(t, s.Unlock(nil))
					break
				}
				if left++; left <= d.left {
					must(t, s.Unlock(nil))
					continue
				}
				f, _ := s.leaf.find(key(i), s.lay.tagOf(key(i)))
				must(t, s.remove(&f))
			}
			s.End()
			pairs := keys - left + d.left
			var free []pool.Addr
			for range d.free {
				a, err := s.PS.AllocateBlock(x.lay.size, pool.Nil)
				must(t, err)
				free = append(free, a)
			}
			takeAll(s)
			for _, a := range free {
				x.Pool.Free(a, x.lay.size)
			}
			for range 60 { // a leaf with pairs looks at the next one now and then
				s.Begin()
				if there, err := s.find(nil, false); err != nil || !there || s.leaf.forward() != 0 {
					t.Fatal(there, s.leaf.forward(), err)
				}
				if s.leaf.endless { // it was merged
					s.End()
					break
				}
				if d.fills {
					pairs += mergeBesideInserts(t, s, other, len(free))
				} else if err := s.merge(); err != nil && !errors.Is(err, index.ErrPoolFull) {
					t.Fatal(err)
				}
				s.End()
			}
			if (x.Merges.Load() > 0) != d.merges {
				t.Errorf("%d merges", x.Merges.Load())
			}
			if found, err := x.Check(); err != nil || found.Unlinked > 0 || found.Pairs != uint64(pairs) {
				t.Errorf("%d pairs, want %d, %d leaves without slots: %v", found.Pairs, pairs, found.Unlinked, err)
			}
			must(t, s.Delete(key(keys-1)))
			if d.left > 0 {
				must(t, s.Delete(key(0)))
			}
		})
	}
}

// mergeBesideInserts is what merge does with the leaf in s.leaf. It reserves n leaves, and others
// fill the leaf behind it before its lock word is held. It returns how many pairs that takes.
func mergeBesideInserts(t *testing.T, s, other *Session, n int) (pairs int) {
	t.Helper()
	defer s.EndReserve(s.BeginReserve())
	low, next := bytes.Clone(s.leaf.low), bytes.Clone(s.leaf.high)
	for range n {
		must(t, s.Reserve(s.lay.size, s.leaf.at))
	}
	if there, err := s.lock(low, false); err != nil || !there {
		t.Fatal(there, err)
	}
	s.leaf.setWord(atForward, merging)
	s.writeAt(atForward, wordBytes)
	must(t, s.publish())
	for ; ; pairs++ {
		k := fmt.Appendf(nil, "%s%03d", next, pairs)
		other.Begin()
		there, err := other.lock(k, true)
		if err != nil || !there {
			t.Fatal(there, err)
		}
		f, _ := other.leaf.find(k, other.lay.tagOf(k))
		fits := other.leaf.hasRoom(f.end, other.lay.recordSize(len(k), 0))
		must(t, other.Unlock(nil))
		other.End()
		if !fits {
			break
		}
		must(t, other.Insert(k, nil))
	}
	if there, err := s.find(low, false); err != nil || !there || s.leaf.forward() != merging {
		t.Fatal(there, err)
	}
	must(t, s.mergeOn())
	return pairs
}

// TestReserveInAReserve: what is done during a change takes none of its reserve.
func TestReserveInAReserve(t *testing.T) {
	x, err := open(pooltest.New(t, pooltest.Options{Servers: 1, Chunks: 2, ChunkBytes: 64 << 10}).Open(t), index.Options{Uint64: true, MaxValueBytes: 8})
	must(t, err)
	s, err := x.newSession()
	must(t, err)
	s.Begin()
	defer s.End()
	outer := s.BeginReserve()
	must(t, s.Reserve(x.lay.size, pool.Nil))
	takeAll(s)
	inner := s.BeginReserve()
	if _, _, err := s.Allocate(x.lay.size, pool.Nil); !errors.Is(err, index.ErrPoolFull) {
		t.Errorf("it took the reserve of the other one: %v", err)
	}
	s.EndReserve(inner)
	_, _, err = s.Allocate(x.lay.size, pool.Nil)
	must(t, err)
	s.GiveBack()
	s.EndReserve(outer)
}
