package core

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/env"
)

// TestLateFenceAtAServerThatJoined: a server that joined after the home forgot a client is told of
// that client by a late fence. It lets the next client with the id in once that fence is complete,
// and it can be asked to forget the next one.
func TestLateFenceAtAServerThatJoined(t *testing.T) {
	a := must(NewAccounts(env.Real(), nil, ledger.Shape{Incarnation: 1, ChunkBytes: 1 << 20, Chunks: 4, Slots: 4, Locks: 64}))
	c := New(env.Real(), a, newToken, make([]byte, 128), time.Hour, slog.New(slog.DiscardHandler))
	p := &meddling{}
	c.Offer(Provider{"fake", "", p})
	must(0, a.Change(Grow, func(l *ledger.Ledger) error { _, err := l.Admit("x", 4, 16); return err }))
	connect := func(client uint32) error {
		_, _, _, err := c.Connect("x", client, c.Provider("fake"), Caller{})
		return err
	}
	number := func(generation uint16) uint32 { return ledger.Number(generation, 5) }

	p.meanwhile = func() {
		if err := connect(number(1)); !errors.Is(err, ledger.ErrUnknownClient) {
			t.Errorf("connect while the earlier client's fence goes on: %v", err)
		}
	}
	must(c.Fence("x", []uint32{number(0)}, false, time.Minute))
	if err := connect(number(1)); err != nil {
		t.Fatalf("the next client with the id is not let in: %v", err)
	}
	must(c.Fence("x", []uint32{number(0)}, false, time.Minute))
	if err := connect(number(1)); err != nil {
		t.Errorf("a fence of the earlier client concerns the next one: %v", err)
	}

	// one that left a chunk is forgotten for the next one, and one that left keys did not end as
	// the home says
	must(allocate(c, number(1)))
	must(c.Fence("x", []uint32{number(1)}, false, time.Minute))
	if err := connect(number(2)); err != nil {
		t.Errorf("connect beside a chunk that the earlier client left: %v", err)
	}
	must(0, a.Change(Grow, func(l *ledger.Ledger) error {
		_, _, _, err := l.Acquire("x", ledger.Claim{Client: number(2), Start: []byte("a")}, nil)
		return err
	}))
	must(c.Fence("x", []uint32{number(2)}, false, time.Minute))
	if err := connect(number(3)); !errors.Is(err, ledger.ErrUnknownClient) {
		t.Errorf("connect beside what the earlier client left: %v", err)
	}
	if gone, _, err := c.Forget("x", []uint32{number(3)}); err != nil || len(gone) > 0 {
		t.Errorf("%v is forgotten beside what the earlier client left, %v", gone, err)
	}

	// the next one never came here, and ended
	must(c.Fence("x", []uint32{ledger.Number(3, 6)}, false, time.Minute))
	if gone, _, err := c.Forget("x", []uint32{ledger.Number(4, 6)}); err != nil || len(gone) != 1 {
		t.Errorf("%v is forgotten, %v", gone, err)
	}
	if _, _, _, err := c.Connect("x", ledger.Number(4, 6), c.Provider("fake"), Caller{}); !errors.Is(err, ledger.ErrFenced) {
		t.Errorf("connect of one that is forgotten: %v", err)
	}
}
