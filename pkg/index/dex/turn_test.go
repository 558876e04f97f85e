package dex

import (
	"bytes"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
)

// TestForeseesNothingUnwritten: with caching off, a key that another session has put into the
// leaf's frame, and not written back, is no reason to refuse an insertion: a lookup would not find
// the key.
func TestForeseesNothingUnwritten(t *testing.T) {
	x, s := opened(t, index.Options{Uint64: true, MaxValueBytes: 100, InlineBytes: 8, NodeBytes: 512, CacheBytes: 1 << 20, Switches: map[string]bool{"caching": false}})
	mustDo(t, s.Insert(scanKey(1), []byte("a value.")))
	other, err := x.newSession()
	mustDo(t, err)
	key, value := scanKey(2), bytes.Repeat([]byte("long"), 20)
	fp := x.lay.Fingerprint(key)
	epoch := x.ranges.Load().spans[0].epoch

	// the other session, up to the moment before it passes its turn on
	other.b.Begin()
	p, err := other.b.Descend(key)
	mustDo(t, err)
	if _, err := other.prepare(&p, key, value, fp, epoch, insert); err != nil {
		t.Fatal(err)
	}
	if _, err := other.enter(p.Addr()); err != nil {
		t.Fatal(err)
	}
	var l slotted.Leaf
	hops := 0
	if _, _, err := other.fetch(&p, &l, key, &hops, true); err != nil {
		t.Fatal(err)
	}
	f := x.cache.find(p.Addr())
	o := other.apply(f, p.Addr(), key, fp, epoch, insert)
	if o.st != done || o.err != nil || !x.unwritten(p.Addr()) {
		t.Fatalf("the change: %+v; it is not written back: %v", o, x.unwritten(p.Addr()))
	}

	if o := s.foresee(&p, key, fp, insert); o.answer != nil {
		t.Errorf("an insertion is refused: %v", o.answer)
	}
	if _, err := s.Lookup(key, nil); err != index.ErrNotFound {
		t.Errorf("a lookup before the change is written back: %v", err)
	}
	mustDo(t, other.answer(&o, key, p.Addr()))
	other.b.End()
	if got, err := s.Lookup(key, nil); err != nil || !bytes.Equal(got, value) {
		t.Errorf("a lookup after the change: %q, %v", got, err)
	}
	mustDo(t, other.Close())
}
