package smart

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// TestFullNodeThatIsOutProvesNothing: a full node was replaced by one with a key more, and who did
// that died before the dead mark. A client whose copies lead to the old node, and that has no copy
// of it, READs it: it is whole, and all of its slots are frozen. That does not prove that the key
// is not there.
func TestFullNodeThatIsOutProvesNothing(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{})
	open := func() (*Tree, *Session) {
		x, err := Open(c.Open(t), index.Options{MaxKeyBytes: 20, MaxValueBytes: 8})
		if err != nil {
			t.Fatal(err)
		}
		s, err := x.Session()
		if err != nil {
			t.Fatal(err)
		}
		return x.(*Tree), s.(*Session)
	}
	_, a := open()
	key := func(n int) []byte { return fmt.Appendf(nil, "key %c", 'a'+n) }
	full := art.FirstType.Slots() - 1 // and an end slot
	for n := range full {
		if err := a.Insert(key(n), []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	y, b := open()
	if _, err := b.Lookup(key(0), nil); err != nil {
		t.Fatal(err)
	}
	node := b.Path[1].Node
	if b.Level != 1 || node.Kind != art.FirstType || node.Children() != full {
		t.Fatalf("level %d, %+v", b.Level, node.Header())
	}
	old := b.Path[0].Word
	image := bytes.Clone(b.Node[:art.HeadBytes])
	if err := a.Insert(key(full), []byte("v")); err != nil {
		t.Fatal(err)
	}
	// as if the dead mark had not been written
	a.Begin()
	copy(a.Answers, image)
	a.PS.Write(pool.Sole, node.Addr, a.Answers[:art.HeadBytes])
	if err := a.PS.Post(); err != nil {
		t.Fatal(err)
	}
	a.End()
	forget := func() {
		if h := y.Cache.Get(node.Addr, 0); h != nil {
			y.Cache.Drop(h)
		}
		b.Learn(&art.Step{Node: y.Root.Load(), Idx: b.Path[0].Idx}, old)
	}
	forget()
	if _, err := b.Lookup(key(full), nil); err != nil {
		t.Errorf("lookup: %v", err)
	}
	forget()
	found := errors.New("not visited")
	if err := b.LookupBatch([][]byte{key(full)}, func(_ int, _ []byte, err error) { found = err }); err != nil || found != nil {
		t.Errorf("batch: %v, %v", err, found)
	}
	forget()
	if err := b.Update(key(full), []byte("w")); err != nil {
		t.Errorf("update: %v", err)
	}
}

// TestTombstonesAreNew: a key comes and goes, and its memory is used again. Its slot has another
// tombstone each time.
func TestTombstonesAreNew(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{})
	x, err := Open(c.Open(t), index.Options{MaxKeyBytes: 20, MaxValueBytes: 8})
	if err != nil {
		t.Fatal(err)
	}
	open, err := x.Session()
	if err != nil {
		t.Fatal(err)
	}
	s := open.(*Session)
	before := map[art.Slot]int{}
	const most = 300_000
	again := 0 // deletes since memory came back
	for i := 0; i < most && again < 2000; i++ {
		if x.Stats().Reclaimed > 0 {
			again++
		}
		if err := errors.Join(s.Insert([]byte("k"), nil), s.Delete([]byte("k"))); err != nil {
			t.Fatal(err)
		}
		s.Begin()
		w, err := s.ReadWord(&s.Path[0])
		s.End()
		if err != nil || !w.Tomb() {
			t.Fatalf("%#x: %v", w, err)
		}
		if n, ok := before[w]; ok {
			t.Fatalf("delete %d leaves the tombstone %#x, as delete %d did", i, w, n)
		}
		before[w] = i
	}
	if again == 0 {
		t.Error("no memory was used again")
	}
}
