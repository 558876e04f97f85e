package core

import (
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestIndexesTakeTurns: a fence of one index waits for one attempt of another index, however many
// unfinished fences that has.
func TestIndexesTakeTurns(t *testing.T) {
	var s fences
	for id := range uint32(24000) {
		s.begin("many", 1+id, 0)
	}
	s.begin("one", 1, 0)
	if index, ids := s.nextDue(0); index != "many" || len(ids) != maxTogether {
		t.Fatalf("first turn: %d clients of %q", len(ids), index)
	}
	if index, ids := s.nextDue(0); index != "one" || len(ids) != 1 {
		t.Fatalf("second turn: %d clients of %q", len(ids), index)
	}
	tried := maxTogether
	for {
		index, ids := s.nextDue(0)
		if len(ids) == 0 {
			break
		}
		if index != "many" {
			t.Fatalf("%q again", index)
		}
		tried += len(ids)
	}
	if tried != 24000 {
		t.Errorf("%d clients were tried, want each once", tried)
	}
	// After an attempt in vain each is tried alone.
	now := firstRetry
	if _, ids := s.nextDue(now); len(ids) != 1 {
		t.Errorf("%d clients are tried together again", len(ids))
	}
	s.begin("one", 1, 0)
	if s.len() != 24001 {
		t.Errorf("%d fences", s.len())
	}
	s.end("one", 1)
	s.end("one", 1)
	for id := range uint32(12000) {
		s.end("many", 24000-id)
	}
	s.endIndex("none")
	if index, _ := s.nextDue(time.Hour); index != "many" || s.len() != 12000 {
		t.Errorf("%d fences, a turn of %q", s.len(), index)
	}
	s.endIndex("many")
	if _, ids := s.nextDue(time.Hour); len(ids) != 0 || s.len() != 0 {
		t.Errorf("%d fences after the last index", s.len())
	}
}

// TestLeasesOfEachIndex: an index whose clients are all silent holds up no other one.
func TestLeasesOfEachIndex(t *testing.T) {
	var s leases
	for id := range uint16(1000) {
		s.extend(verbs.Peer{Index: "many", Client: 1 + id}, 0)
	}
	s.extend(verbs.Peer{Index: "one", Client: 1}, 0)
	over := s.expired(time.Second, MaxFenced)
	if n := len(over); n != MaxFenced+1 || over[n-1].Index != "one" {
		t.Errorf("%d leases are over, the last of %q", n, over[n-1].Index)
	}
}

// meddling is a provider on which something happens while a client becomes quiet.
type meddling struct{ meanwhile func() }

func (*meddling) Serve(net.Listener) error             { return nil }
func (*meddling) Disconnect(func(verbs.Peer) bool) int { return 0 }
func (*meddling) Close() error                         { return nil }

func (m *meddling) Fence(func(verbs.Peer) bool, time.Duration) error {
	if f := m.meanwhile; f != nil {
		m.meanwhile = nil
		f()
	}
	return nil
}

// TestFenceAcrossAdmissions: an index is evicted and admitted again while a client of it is being
// fenced. A client of the new admission has the same id: its locks stay its own, and its fence is
// not finished by the earlier one.
func TestFenceAcrossAdmissions(t *testing.T) {
	a, err := NewAccounts(env.Real(), nil, ledger.Shape{Incarnation: 1, ChunkBytes: 1 << 20, Chunks: 4, Slots: 4, Locks: 64})
	if err != nil {
		t.Fatal(err)
	}
	locks := make([]byte, 128)
	c := New(env.Real(), a, newToken, locks, time.Hour, slog.New(slog.DiscardHandler))
	p := &meddling{}
	c.Offer(Provider{"fake", "", p})
	admit := func() {
		err := a.Change(Grow, func(l *ledger.Ledger) error {
			if _, err := l.Admit("x", 1, 16); err != nil {
				return err
			}
			return l.Meet("x", 5)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	clean := func() {
		a.Note(func(l *ledger.Ledger) {
			for slot, _, _, dirty := l.DirtyPlace(); dirty; slot, _, _, dirty = l.DirtyPlace() {
				l.CleanedPlace(slot)
			}
		})
	}
	anew := func() {
		if _, _, err := c.Evict("x"); err != nil {
			t.Fatal(err)
		}
		clean()
		admit()
		locks[0] = 5 // the new client's lock
	}
	admit()
	p.meanwhile = anew
	if _, err := c.Fence("x", []uint32{5}, false, time.Minute); !errors.Is(err, ledger.ErrUnknownClient) {
		t.Errorf("a fence of an earlier admission: %v", err)
	}
	if locks[0] != 5 || locks[1] != 0 {
		t.Errorf("the new client's lock says %#x, REPAIR is %#x", locks[:2], pool.Repair)
	}
	p.meanwhile = func() {
		anew()
		if err := c.refuse("x", []uint32{5}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Fence("x", []uint32{5}, false, time.Minute); !errors.Is(err, ledger.ErrUnknownClient) {
		t.Errorf("a fence of an earlier admission: %v", err)
	}
	var left []uint32
	if a.Read(func(l *ledger.Ledger) { left = l.Unfinished("x") }); len(left) != 1 || locks[0] != 5 {
		t.Errorf("unfinished: %v, locks %#x", left, locks[:2])
	}
	if n, err := c.Fence("x", []uint32{5}, false, time.Minute); n != 1 || err != nil {
		t.Errorf("its own fence: %d locks, %v", n, err)
	}
	p.meanwhile = func() { t.Error("a fence that is complete is gone through again") }
	if n, err := c.Fence("x", []uint32{5}, false, time.Minute); n != 0 || err != nil {
		t.Errorf("a fence that is complete: %d locks, %v", n, err)
	}
}

// TestForgetWaitsForFences: a client is not forgotten while a call is finishing its fence a second
// time: that would cut the connections of a later client with its id, and take its locks.
func TestForgetWaitsForFences(t *testing.T) {
	a, err := NewAccounts(env.Real(), nil, ledger.Shape{Incarnation: 1, ChunkBytes: 1 << 20, Chunks: 4, Slots: 4, Locks: 64})
	if err != nil {
		t.Fatal(err)
	}
	c := New(env.Real(), a, newToken, make([]byte, 128), time.Hour, slog.New(slog.DiscardHandler))
	p := &meddling{}
	c.Offer(Provider{"fake", "", p})
	if err := a.Change(Grow, func(l *ledger.Ledger) error { _, err := l.Admit("x", 1, 16); return err }); err != nil {
		t.Fatal(err)
	}
	forget := func() int {
		gone, _, err := c.Forget("x", []uint32{5})
		if err != nil {
			t.Fatal(err)
		}
		return len(gone)
	}
	p.meanwhile = func() {
		p.meanwhile = nil
		// by another caller, to its end
		if _, err := c.Fence("x", []uint32{5}, false, time.Minute); err != nil {
			t.Fatal(err)
		}
		if n := forget(); n != 0 {
			t.Error("it is forgotten during a fence")
		}
	}
	if _, err := c.Fence("x", []uint32{5}, false, time.Minute); err != nil {
		t.Fatal(err)
	}
	if n := forget(); n != 1 {
		t.Error("it is not forgotten after its fence")
	}
}
