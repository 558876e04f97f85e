package smart

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestLookupParts: a lookup READs the cell that counts. That is cell 0 until the leaf is changed in
// place; where that happens to most leaves lookups READ whole leaves, and no second time.
func TestLookupParts(t *testing.T) {
	const n, size = 400, 200
	c := pooltest.New(t, pooltest.Options{})
	x, err := Open(c.Open(t), index.Options{MaxKeyBytes: 32, MaxValueBytes: size})
	if err != nil {
		t.Fatal(err)
	}
	open, err := x.Session()
	if err != nil {
		t.Fatal(err)
	}
	s := open.(*Session)
	key := func(i int) []byte { return fmt.Appendf(nil, "a key of %022d", i) }
	value := func(i, turn int) []byte { return bytes.Repeat([]byte{byte(i), byte(turn)}, size/2) }
	for i := range n {
		if err := s.Insert(key(i), value(i, 0)); err != nil {
			t.Fatal(err)
		}
	}
	leaf := newShape(len(key(0)), size)
	half := float64(s.lay.firstPart(leaf.bytes()))
	if leaf.bytes()-int(half) < leastSpared {
		t.Fatalf("%.0f of %d bytes: this tests nothing", half, leaf.bytes())
	}
	for turn, most := range []struct{ bytes, trips float64 }{
		{half + 10, 1.01},                        // never changed
		{float64(leaf.bytes()) + 1, 1.3},         // cell 1 counts: it is soon known
		{half + 0.3*float64(leaf.bytes()), 1.01}, // cell 0 counts again
	} {
		for i := range n {
			if turn > 0 {
				if err := s.Update(key(i), value(i, turn)); err != nil {
					t.Fatal(err)
				}
			}
		}
		// Lookups count that find all inner nodes in the cache.
		var sum verbs.Counters
		counted := 0
		for i := range n {
			before, missed := s.Counters(), s.Count.Misses
			if got, err := s.Lookup(key(i), nil); err != nil || !bytes.Equal(got, value(i, turn)) {
				t.Fatalf("turn %d, key %d: %x: %v", turn, i, got, err)
			}
			if s.Count.Misses == missed {
				now := s.Counters()
				d := now.Sub(&before)
				sum.Sum(&d)
				counted++
			}
		}
		if counted < n/2 {
			t.Fatalf("%d lookups of %d found all inner nodes in the cache: this tests nothing", counted, n)
		}
		read, trips := float64(sum.Bytes[verbs.Read])/float64(counted), float64(sum.RoundTrips)/float64(counted)
		t.Logf("turn %d: %.0f bytes of leaves of %d in %.2f round trips", turn, read, leaf.bytes(), trips)
		if read > most.bytes || trips > most.trips {
			t.Errorf("turn %d: at most %.0f bytes and %.2f round trips are expected", turn, most.bytes, most.trips)
		}
		// a batch READs the cell that counts as well, and the other one never
		keys := make([][]byte, n)
		for i := range keys {
			keys[i] = key(i)
		}
		for tries := 1; ; tries++ {
			before, missed := s.Counters(), s.Count.Misses
			if err := s.LookupBatch(keys, func(i int, got []byte, err error) {
				if err != nil || !bytes.Equal(got, value(i, turn)) {
					t.Errorf("turn %d, key %d of a batch: %x: %v", turn, i, got, err)
				}
			}); err != nil {
				t.Fatal(err)
			}
			now := s.Counters()
			d := now.Sub(&before)
			if s.Count.Misses != missed && tries < 50 {
				continue
			}
			if read = float64(d.Bytes[verbs.Read]) / n; read > float64(leaf.bytes())+1 || turn != 1 && read > half+1 {
				t.Errorf("turn %d: %.0f bytes a key of a batch", turn, read)
			}
			break
		}
	}
}

// TestPartsBesideUpdates: a leaf is changed between the READ of its first part and that of cell 1.
// Then what was READ is no value that it had, and the lookup READs it again.
func TestPartsBesideUpdates(t *testing.T) {
	var l leaf
	c := content{value: bytes.Repeat([]byte("old "), 50)}
	s := newShape(30, len(c.value))
	image := l.build(testSums, s, make([]byte, s.bytes()), 64, 7, bytes.Repeat([]byte("k"), 30), &c)
	lay, err := newLayout(index.Options{MaxKeyBytes: 32, MaxValueBytes: 256})
	if err != nil {
		t.Fatal(err)
	}
	change := func(i int, v string) {
		l.putCell(i, &content{value: bytes.Repeat([]byte(v), 50)})
		l.setControl(i, alive)
	}
	change(1, "one ")
	part := bytes.Clone(image[:lay.firstPart(len(image))])
	var got leaf
	open := func(other bool) verdict { return got.openPart(testSums, part, 64, len(image), other) }
	if v := open(false); v != apart {
		t.Fatalf("cell 1 counts and was not READ: %v", v)
	}
	read := func() { // cell 1
		offset, cell := got.otherCell()
		copy(cell, image[offset:])
	}
	change(0, "two ")
	change(1, "tri ")
	read()
	if v := open(true); v != torn {
		t.Errorf("a cell of two changes later: %v", v)
	}
	copy(part, image)
	if v := open(false); v != apart {
		t.Fatal(v)
	}
	read()
	if v := open(true); v != whole {
		t.Fatal(v)
	} else if value, long := got.value(); long || !bytes.Equal(value, bytes.Repeat([]byte("tri "), 50)) {
		t.Errorf("%q", value)
	}
	if !got.hasKey(bytes.Repeat([]byte("k"), 30)) {
		t.Error("it lost its key")
	}
	change(0, "for ")
	copy(part, image)
	if v := open(true); v != torn { // READ again after that, and cell 0 counts now
		t.Errorf("%v", v)
	}
	if v := open(false); v != whole {
		t.Errorf("cell 0 counts: %v", v)
	}
}
