package dex

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool"
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
	f := x.cache.Find(p.Addr())
	o := other.apply(f, p.Addr(), key, fp, epoch, insert)
	if o.st != frame.Done || o.err != nil || !x.unwritten(p.Addr()) {
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

// TestTurnsEndAtLimits: a session that waits for its turn, or for the write-back after it passed
// the turn on, leaves the queue when the limit of its operation is over. Those behind it go on.
func TestTurnsEndAtLimits(t *testing.T) {
	x, first := opened(t, index.Options{Uint64: true, MaxValueBytes: 100, NodeBytes: 512, CacheBytes: 1 << 20, Switches: map[string]bool{"caching": false}})
	mustDo(t, first.Insert(scanKey(1), []byte("before")))
	begun := func() *session {
		s, err := x.newSession()
		mustDo(t, err)
		t.Cleanup(func() { mustDo(t, s.Close()) })
		s.b.Begin()
		t.Cleanup(s.b.End)
		return s
	}
	// Its operation is over already; that of each wait would be an hour.
	overdue := func(s *session) {
		s.b.PS.SetLimit(0)
		if s.b.PS.Overdue() == nil {
			t.Fatal("an operation without a limit is not overdue")
		}
		s.SetLimit(time.Hour)
	}
	s, late, last := begun(), begun(), begun()
	key, value := scanKey(1), []byte("after")
	p, err := s.b.Descend(key)
	mustDo(t, err)
	a, h := p.Addr(), x.turns.of(p.Addr())
	_, err = s.enter(a)
	mustDo(t, err)
	overdue(late)
	if _, err := late.enter(a); !errors.Is(err, pool.ErrTimeout) {
		t.Errorf("who waits for a turn beyond its limit: %v", err)
	}

	fp, epoch := x.lay.Fingerprint(key), x.ranges.Load().Span(0).Epoch
	_, err = s.prepare(&p, key, value, fp, epoch, upsert)
	mustDo(t, err)
	var l slotted.Leaf
	hops := 0
	_, _, err = s.fetch(&p, &l, key, &hops, true)
	mustDo(t, err)
	if o := s.apply(x.cache.Find(a), a, key, fp, epoch, upsert); o.st != frame.Done || o.err != nil {
		t.Fatalf("the change: %+v", o)
	}
	g := env.NewWaitGroup(x.env)
	g.Go("the last one", func() {
		if _, err := last.enter(a); err != nil {
			t.Error(err)
		}
	})
	for !x.turns.wanted(a) {
		x.env.Yield()
	}
	overdue(s)
	if err := s.leave(); !errors.Is(err, index.ErrUnknown) {
		t.Errorf("who waits for a write-back beyond its limit: %v", err)
	}
	g.Wait(env.Forever)
	mustDo(t, last.leave())
	if h.queue(a) != nil {
		t.Error("nobody waits, and there is a queue")
	}
	if got, err := first.Lookup(key, nil); err != nil || !bytes.Equal(got, value) {
		t.Errorf("after the last turn: %q, %v", got, err)
	}
}
