package dex

import (
	"errors"
	"runtime"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool"
)

// TestTurnOfADeadSession: with caching off, a session passes its turn on, and with it a leaf that
// it has changed, to one that died and cannot write the leaf back. The change stays in the frame,
// and whoever comes next writes it back. So it is not answered as one that was not made.
func TestTurnOfADeadSession(t *testing.T) {
	x, s := opened(t, index.Options{Uint64: true, MaxValueBytes: 16, NodeBytes: 512, CacheBytes: 1 << 20, Switches: map[string]bool{"caching": false}})
	mustDo(t, s.Insert(scanKey(1), []byte("a value.")))
	other, err := x.newSession()
	mustDo(t, err)
	dead, err := x.newSession()
	mustDo(t, err)
	dead.b.PS.Read(pool.NewAddr(99, 0), dead.b.Staging())
	if dead.b.PS.Post() == nil {
		t.Fatal("the session lives")
	}
	key, value := scanKey(2), []byte("another")
	fp := x.lay.Fingerprint(key)
	epoch := x.ranges.Load().Span(0).Epoch

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
	o := other.apply(x.cache.Find(p.Addr()), p.Addr(), key, fp, epoch, insert)
	if o.st != frame.Done || o.err != nil {
		t.Fatalf("the change: %+v", o)
	}
	ended := make(chan error, 1)
	go func() { ended <- dead.Update(scanKey(1), []byte("changed.")) }()
	for !x.turns.wanted(p.Addr()) {
		runtime.Gosched()
	}
	if err := other.answer(&o, key, p.Addr()); err != nil && !errors.Is(err, index.ErrUnknown) {
		t.Errorf("a change that is made yet is answered as one that is not: %v", err)
	}
	other.b.End()
	if err := <-ended; err != nil && !errors.Is(err, index.ErrUnknown) {
		t.Errorf("the change of the dead session: %v", err)
	}
	mustDo(t, x.pool.Alive())
	mustDo(t, s.Insert(scanKey(3), value))
	for n, want := range map[uint64]string{1: "changed.", 2: "another", 3: "another"} {
		if got, err := s.Lookup(scanKey(n), nil); err != nil || string(got) != want {
			t.Errorf("key %d: %q, %v", n, got, err)
		}
	}
	mustDo(t, errors.Join(other.Close(), dead.Close()))
}
