package core

import (
	"log/slog"
	"testing"
	"time"

	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestConfirmedDead: of the clients that are confirmed dead only those are remembered that hold
// keys.
func TestConfirmedDead(t *testing.T) {
	a, err := NewAccounts(env.Real(), nil, ledger.Shape{Incarnation: 1, ChunkBytes: 1 << 20, Chunks: 4, Slots: 4, Locks: 64})
	if err != nil {
		t.Fatal(err)
	}
	c := New(env.Real(), a, newToken, make([]byte, 128), time.Hour, slog.New(slog.DiscardHandler))
	c.Offer(Provider{"fake", "", &meddling{}})
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	err = a.Change(Grow, func(l *ledger.Ledger) error {
		must(l.Admit("x", 1, 16))
		return l.SwapMap("x", 0, 1, []byte("map"))
	})
	if err != nil {
		t.Fatal(err)
	}
	next := func() (id uint32) {
		if err := a.Change(Grow, func(l *ledger.Ledger) (err error) { id, err = l.Register("x", ""); return err }); err != nil {
			t.Fatal(err)
		}
		return id
	}
	dead := func(want int, ids ...uint32) {
		t.Helper()
		if _, err := c.Fence("x", ids, true, time.Second); err != nil {
			t.Fatal(err)
		}
		if n := len(a.leases.dead); n != want {
			t.Errorf("%d clients are remembered, want %d", n, want)
		}
	}
	take := func(by uint32, from ...uint32) {
		t.Helper()
		own, blocked, err := c.Acquire("x", ledger.Claim{Client: by, Generation: 1, Fenced: from})
		if err != nil || len(own) != 1 || len(blocked) != 0 {
			t.Fatalf("acquired %+v, blocked by %+v: %v", own, blocked, err)
		}
	}
	first, second, third := next(), next(), next()
	take(first)
	dead(0, third, 77)
	dead(1, first)
	dead(1, first)
	if !a.leases.isDead(verbs.Peer{Index: "x", Client: uint16(first)}) {
		t.Error("one that holds keys is forgotten")
	}
	take(second, first)
	dead(1, second)
	if a.leases.isDead(verbs.Peer{Index: "x", Client: uint16(first)}) {
		t.Error("one that holds keys no more is remembered")
	}
}

// TestTurnsEnd: nothing stays of a turn that is over.
func TestTurnsEnd(t *testing.T) {
	turns := newTurns(env.Real())
	first, other := turns.begin("a"), turns.begin("b")
	if n := len(turns.of); n != 2 {
		t.Errorf("%d turns, want 2", n)
	}
	first()
	turns.begin("a")()
	other()
	if n := len(turns.of); n != 0 {
		t.Errorf("%d turns stay", n)
	}
}
