package smart_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/smart"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// paperNodes is how many inner nodes the paper has below the root where all keys share so many
// bytes, and then branch once: a slot of the root stands for one byte, each further node for six in
// its header and one in its slots (section 4.1.1).
func paperNodes(shared int) int { return 1 + (shared-1)/7 }

// ourNodes is the same with our heads, which have 11 bytes.
func ourNodes(shared int) int { return 1 + (shared-1)/12 }

// posted is what a session posts for do.
func posted(t *testing.T, s index.Session, do func() error) verbs.Counters {
	t.Helper()
	before := s.Counters()
	if err := do(); err != nil {
		t.Fatal(err)
	}
	d := s.Counters()
	return d.Sub(&before)
}

// TestLongPrefixes: keys share many bytes. A lookup that finds no copy READs the root, no more
// nodes than the paper has, and the leaf; with copies it READs the leaf. An insert beside a leaf
// READs that leaf, and WRITEs its own leaf and those nodes, in two round trips. Memory that the
// shared bytes take is that of these nodes, whatever the number of keys.
func TestLongPrefixes(t *testing.T) {
	for _, shared := range []int{1, 6, 7, 12, 13, 20, 100, 240} {
		o := index.Options{MaxKeyBytes: 255, MaxValueBytes: 8}
		c := pooltest.New(t, pooltest.Options{Servers: 1})
		open := func() (index.Index, index.Session) {
			x, err := smart.Open(c.Open(t), o)
			if err != nil {
				t.Fatal(err)
			}
			s, err := x.Session()
			if err != nil {
				t.Fatal(err)
			}
			return x, s
		}
		stem := bytes.Repeat([]byte{'p'}, shared)
		key := func(n int) []byte { return fmt.Appendf(bytes.Clone(stem), "%c", 'a'+n) }
		x, s := open()
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%d bytes shared: %v", shared, err)
			}
		}
		must(s.Insert(key(0), []byte("0")))
		d := posted(t, s, func() error { return s.Insert(key(1), []byte("1")) })
		nodes := uint64(ourNodes(shared))
		if d.Requests[verbs.Read] != 1 || d.Requests[verbs.Write] != 1+nodes || d.RoundTrips != 2 {
			t.Errorf("%d bytes shared: an insert that parts two keys takes %+v, want 1 READ, %d WRITEs, 2 round trips", shared, d, 1+nodes)
		}
		for n := 2; n < 16; n++ {
			must(s.Insert(key(n), []byte{byte(n)}))
		}
		_, cold := open()
		d = posted(t, cold, func() error { _, err := cold.Lookup(key(9), nil); return err })
		if reads := d.Requests[verbs.Read]; reads != 2+nodes || nodes > uint64(paperNodes(shared)) {
			t.Errorf("%d bytes shared: a lookup without copies READs %d times, want %d; with the paper's heads %d", shared, reads, 2+nodes, 2+paperNodes(shared))
		}
		t.Logf("%d bytes shared: %d READs and %d bytes without copies; with the paper's heads %d READs", shared, d.Requests[verbs.Read], d.Bytes[verbs.Read], 2+paperNodes(shared))
		if d = posted(t, cold, func() error { _, err := cold.Lookup(key(3), nil); return err }); d.Requests[verbs.Read] != 1 || d.Bytes[verbs.Read] > 384 {
			t.Errorf("%d bytes shared: a lookup with copies takes %+v", shared, d)
		}
		// The last of the shared bytes is another one: a head is divided, which makes one node
		// more.
		other := key(0)
		other[shared-1]++
		d = posted(t, s, func() error { return s.Insert(other, nil) })
		if d.Requests[verbs.Write] > 2+1 || d.RoundTrips > 6 {
			t.Errorf("%d bytes shared: an insert that divides a head takes %+v", shared, d)
		}
		_, cold = open()
		d = posted(t, cold, func() error { _, err := cold.Lookup(key(9), nil); return err })
		if reads := d.Requests[verbs.Read]; reads > 3+nodes {
			t.Errorf("%d bytes shared: a lookup without copies READs %d times below the head that was divided", shared, reads)
		}
		found := check(t, x)
		if most := int(nodes) + 2 + 2; found.Nodes-int(found.Pairs) > most {
			t.Errorf("%d bytes shared: %d nodes for %d pairs, want at most %d besides the leaves", shared, found.Nodes, found.Pairs, most)
		}
	}
}

// TestSparseKeys: of keys that share next to nothing a lookup READs, without copies, the root, a
// node or two, and the leaf, however long they are.
func TestSparseKeys(t *testing.T) {
	for _, length := range []int{8, 100} {
		o := index.Options{MaxKeyBytes: 255, MaxValueBytes: 8, CacheBytes: 1} // next to no copies
		random := rand.New(rand.NewPCG(1, uint64(length)))
		var keys [][]byte
		all, x := clients(t, 1, o)
		s := all[0]
		for range 3000 {
			key := make([]byte, length)
			for i := range key {
				key[i] = byte(random.Uint32())
			}
			if err := s.Insert(key, key[:8]); err != nil {
				t.Fatal(err)
			}
			keys = append(keys, key)
		}
		d := posted(t, s, func() error {
			for _, key := range keys {
				if _, err := s.Lookup(key, nil); err != nil {
					return err
				}
			}
			return nil
		})
		found := check(t, x)
		each := float64(d.Requests[verbs.Read]) / float64(len(keys))
		t.Logf("keys of %d bytes: %.2f READs and %.0f bytes a lookup, %d levels, %d inner nodes", length, each, float64(d.Bytes[verbs.Read])/float64(len(keys)), found.Levels, found.Nodes-int(found.Pairs))
		if each > 3.1 || found.Levels > 4 {
			t.Errorf("keys of %d bytes: %.2f READs a lookup, %d levels", length, each, found.Levels)
		}
	}
}
