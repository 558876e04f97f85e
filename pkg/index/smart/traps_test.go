package smart_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/smart"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// The traps in the published program, one test each. Those of its combining are in indexsim
// (TestCombinedWritesAndReads), and all of this beside crashes.

// clients opens the index with n clients, a session each.
func clients(t *testing.T, n int, o index.Options) (all []index.Session, x index.Index) {
	t.Helper()
	c := pooltest.New(t, pooltest.Options{Chunks: 32})
	for range n {
		var err error
		if x, err = smart.Open(c.Open(t), o); err != nil {
			t.Fatal(err)
		}
		s, err := x.Session()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all, x
}

func check(t *testing.T, x index.Index) index.Structure {
	t.Helper()
	found, err := x.(index.Checker).Check()
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestInsertBesideOldCopies: one client's copies are from before header splits, leaf splits and
// type switches by another one. It finds what the other one inserted as soon as that was answered,
// inserts beside it, and neither loses a pair of the other one.
func TestInsertBesideOldCopies(t *testing.T) {
	all, x := clients(t, 2, index.Options{MaxKeyBytes: 40, MaxValueBytes: 8})
	a, b := all[0], all[1]
	random := rand.New(rand.NewPCG(5, 5))
	known := map[string]bool{}
	insert := func(s index.Session, key string) {
		t.Helper()
		if err := s.Insert([]byte(key), []byte("v")); err != nil && (!known[key] || !errors.Is(err, index.ErrExists)) {
			t.Fatalf("insert %q: %v", key, err)
		}
		known[key] = true
	}
	// A long common prefix makes chains. Keys that leave it at a random place split heads.
	const stem = "a common prefix of thirty bytes"
	for i := range 2000 {
		key := fmt.Sprint(stem[:random.IntN(len(stem))], random.IntN(300))
		if _, err := b.Lookup([]byte(key), nil); (err == nil) != known[key] {
			t.Fatalf("lookup of %q, there: %v: %v", key, known[key], err)
		}
		insert(a, key)
		if _, err := b.Lookup([]byte(key), nil); err != nil {
			t.Fatalf("%d: lookup of %q, whose insert was answered: %v", i, key, err)
		}
		insert(b, fmt.Sprint(stem[:random.IntN(len(stem))], random.IntN(300)))
	}
	if found := check(t, x); found.Pairs != uint64(len(known)) {
		t.Fatalf("%d pairs, want %d", found.Pairs, len(known))
	}
}

// TestOneSlotForAPartialKey: keys are deleted and inserted again by clients whose copies have
// different slots empty. No node ever has a partial key twice (the checker looks), and no key is
// found when it is deleted.
func TestOneSlotForAPartialKey(t *testing.T) {
	all, x := clients(t, 3, index.Options{Uint64: true, MaxValueBytes: 8})
	random := rand.New(rand.NewPCG(6, 6))
	there := map[uint64]bool{}
	for i := range 6000 {
		k := uint64(random.IntN(40)) << (8 * random.IntN(3))
		key := binary.BigEndian.AppendUint64(nil, k)
		s := all[random.IntN(len(all))]
		var err error
		if random.IntN(2) == 0 {
			if err = s.Insert(key, key); there[k] == (err == nil) {
				t.Fatalf("%d: insert of %d, there: %v: %v", i, k, there[k], err)
			}
			there[k] = true
		} else {
			if err = s.Delete(key); there[k] != (err == nil) {
				t.Fatalf("%d: delete of %d, there: %v: %v", i, k, there[k], err)
			}
			delete(there, k)
		}
		if _, err := all[random.IntN(len(all))].Lookup(key, nil); there[k] != (err == nil) {
			t.Fatalf("%d: lookup of %d, there: %v: %v", i, k, there[k], err)
		}
		if i%500 == 0 {
			check(t, x)
		}
	}
	if found := check(t, x); found.Pairs != uint64(len(there)) {
		t.Fatalf("%d pairs, want %d", found.Pairs, len(there))
	}
}

// TestTornLeafIsReadAgain: a lookup, a batch or a scan that meets a torn leaf READs it again, until
// it is whole. It does not answer that the key is not there, and a scan neither visits the pair nor
// leaves it out.
func TestTornLeafIsReadAgain(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{Provider: "shm", Chunks: 8})
	x, err := smart.Open(c.Open(t), index.Options{MaxKeyBytes: 16, MaxValueBytes: 24})
	if err != nil {
		t.Fatal(err)
	}
	s, err := x.Session()
	if err != nil {
		t.Fatal(err)
	}
	mark := []byte("a value that is found.")
	for _, k := range []string{"a", "b", "c"} {
		v := []byte(k)
		if k == "b" {
			v = mark
		}
		if err := s.Insert([]byte(k), v); err != nil {
			t.Fatal(err)
		}
	}
	scan := func(reverse bool) (visited string, err error) {
		err = s.Scan(nil, 10, reverse, func(k, _ []byte) bool { visited += string(k); return true })
		return visited, err
	}
	torn := false
	for i := range c.Options.Servers {
		m := c.Memory(c.Options.FirstID+uint16(i), verbs.RegionData)
		at := bytes.Index(m, mark)
		if at < 0 {
			continue
		}
		torn = true
		m[at+3] ^= 1
		s.SetLimit(50 * time.Millisecond)
		if v, err := s.Lookup([]byte("b"), nil); !errors.Is(err, index.ErrTimeout) {
			t.Errorf("lookup of a torn leaf: %q, %v", v, err)
		}
		if err := s.LookupBatch([][]byte{[]byte("a"), []byte("b")}, func(i int, v []byte, err error) {
			if i == 1 && !errors.Is(err, index.ErrTimeout) {
				t.Errorf("lookup of a torn leaf in a batch: %q, %v", v, err)
			}
		}); err != nil && !errors.Is(err, index.ErrTimeout) {
			t.Errorf("batch with a torn leaf: %v", err)
		}
		if err := s.Update([]byte("b"), []byte("v")); !errors.Is(err, index.ErrTimeout) && err != nil {
			t.Errorf("update of a torn leaf: %v", err)
		} else if err == nil {
			t.Error("a torn leaf is updated")
		}
		for _, reverse := range []bool{false, true} {
			if visited, err := scan(reverse); !errors.Is(err, index.ErrTimeout) || len(visited) > 1 {
				t.Errorf("scan over a torn leaf, reverse: %v, visits %q: %v", reverse, visited, err)
			}
		}
		m[at+3] ^= 1
		s.SetLimit(time.Minute)
	}
	if !torn {
		t.Fatal("the value is in no server's memory")
	}
	if v, err := s.Lookup([]byte("b"), nil); err != nil || !bytes.Equal(v, mark) {
		t.Errorf("when it is whole again: %q, %v", v, err)
	}
	if visited, err := scan(false); err != nil || visited != "abc" {
		t.Errorf("a scan when it is whole again visits %q: %v", visited, err)
	}
}

// TestReadsByType: of a node as many slots are READ as the type in its parent's slot says. So the
// first lookup of a client READs the root, which is direct, one line of 64 bytes for each small
// node on the way, and the leaf.
func TestReadsByType(t *testing.T) {
	const root, line, children = 2088, 64, 4
	c := pooltest.New(t, pooltest.Options{Chunks: 8})
	open := func() index.Session {
		x, err := smart.Open(c.Open(t), index.Options{Uint64: true, MaxValueBytes: 8})
		if err != nil {
			t.Fatal(err)
		}
		s, err := x.Session()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s, last := open(), []byte(nil)
	for i := range children {
		for j := range children {
			last = []byte{7, byte(i), 1, 1, 1, byte(j), 1, 1}
			if err := s.Insert(last, []byte("v")); err != nil {
				t.Fatal(err)
			}
		}
	}
	cold := open()
	before := cold.Counters()
	if _, err := cold.Lookup(last, nil); err != nil {
		t.Fatal(err)
	}
	n := cold.Counters()
	n = n.Sub(&before)
	if reads, bytes := n.Requests[verbs.Read], n.Bytes[verbs.Read]; reads != 4 || bytes > root+3*line {
		t.Errorf("%d READs of %d bytes; want the root's %d, two nodes' and a leaf's %d", reads, bytes, root, line)
	}
}

// TestMemory: leaves and inner nodes take what they need: at most twice the pair and 64 bytes more,
// where the published program takes some 300 for a pair of 8/8.
func TestMemory(t *testing.T) {
	for name, key := range map[string]func(i uint64) uint64{
		"hashed":    func(i uint64) uint64 { return i * 0x9E3779B97F4A7C15 },
		"ascending": func(i uint64) uint64 { return i },
		"sparse":    func(i uint64) uint64 { return i << 40 },
	} {
		t.Run(name, func(t *testing.T) {
			all, x := clients(t, 1, index.Options{Uint64: true, MaxValueBytes: 8})
			const n = 40000
			for i := range uint64(n) {
				b := binary.BigEndian.AppendUint64(nil, key(i))
				if err := all[0].Insert(b, b); err != nil {
					t.Fatal(err)
				}
			}
			found := check(t, x)
			each := float64(found.NodeBytes) / n
			t.Logf("%.1f bytes a pair, %d nodes on %d levels", each, found.Nodes, found.Levels)
			if each > 2*16+64 {
				t.Errorf("%.1f bytes a pair", each)
			}
		})
	}
}

// TestPathsAreUncompressed: what splits and grows comes back: when all but one of each group of
// keys are deleted there is no chain of nodes left above the last one, and no large node.
func TestPathsAreUncompressed(t *testing.T) {
	all, x := clients(t, 1, index.Options{MaxKeyBytes: 40, MaxValueBytes: 8})
	s := all[0]
	const groups, each = 30, 50
	for pass := range 2 {
		for g := range groups {
			for i := range each {
				key := fmt.Appendf(nil, "%02d group %03d", g, i)
				var err error
				switch {
				case pass == 0:
					err = s.Insert(key, []byte("v"))
				case i != 7:
					err = s.Delete(key)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		found := check(t, x)
		t.Logf("%d pairs, %d nodes with %d bytes on %d levels", found.Pairs, found.Nodes, found.NodeBytes, found.Levels)
		if pass == 1 && (found.Pairs != groups || found.Nodes > groups+8 || found.Levels > 4) {
			t.Errorf("%+v is left of %d groups", found.Nodes, groups)
		}
	}
}

// TestEmptyNodesComeBack: two clients delete the keys of each node in turns, each with copies from
// before the deletes of the other one. No node without children is left.
func TestEmptyNodesComeBack(t *testing.T) {
	all, x := clients(t, 2, index.Options{MaxKeyBytes: 40, MaxValueBytes: 8})
	const groups, each = 40, 9
	key := func(g, i int) []byte { return fmt.Appendf(nil, "%02d group %d", g, i) }
	for g := range groups {
		for i := range each {
			if err := all[0].Insert(key(g, i), nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	for g := range groups {
		for i := range each { // the copies have all children
			for _, s := range all {
				if _, err := s.Lookup(key(g, i), nil); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for g := range groups {
		for i := range each {
			if err := all[i%2].Delete(key(g, i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if found := check(t, x); found.Pairs != 0 || found.Nodes > 1 {
		t.Errorf("%d pairs, and %d nodes are left of nothing", found.Pairs, found.Nodes)
	}
}
