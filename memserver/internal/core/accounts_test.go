package core

import (
	"errors"
	"fmt"
	"testing"

	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/env"
)

// sized is a store of so many bytes, which has room for two ledgers, as a volume has.
type sized int

func (s sized) Save(b []byte) error {
	if 2*len(b) > int(s) {
		return errors.New("no space left")
	}
	return nil
}

// TestRoomForFences: indexes that grow as far as they can leave room for what moves keys, and that
// for fences and for what is given back, which find the volume full without the limit.
func TestRoomForFences(t *testing.T) {
	const limit = 64 << 10
	a, err := NewAccounts(env.Real(), sized(2*limit), ledger.Shape{Incarnation: 1, ChunkBytes: 1 << 20, Chunks: 1 << 10, Slots: 8, Locks: 64})
	if err != nil {
		t.Fatal(err)
	}
	a.Limit(limit)
	// change makes a change again and again, until it fails.
	change := func(k Kind, f func(*ledger.Ledger, uint64) error) error {
		for n := range uint64(1 << 14) {
			if err := a.Change(k, func(l *ledger.Ledger) error { return f(l, n) }); err != nil {
				return err
			}
		}
		return nil
	}
	var clients []uint32
	if err := a.Change(Grow, func(l *ledger.Ledger) error { _, err := l.Admit("a", 8, 4); return err }); err != nil {
		t.Fatal(err)
	}
	err = change(Move, func(l *ledger.Ledger, n uint64) error {
		id, err := l.Register("a", fmt.Sprintf("%0*d", ledger.MaxClientName, n))
		clients = append(clients, id)
		return err
	})
	if !errors.Is(err, ErrFull) || !errors.Is(err, ledger.ErrExhausted) || len(clients) < 500 {
		t.Fatalf("%d clients came: %v", len(clients), err)
	}
	if err := a.Change(Grow, func(l *ledger.Ledger) error { _, err := l.Admit("b", 8, 4); return err }); !errors.Is(err, ErrFull) {
		t.Errorf("another index: %v", err)
	}
	err = change(Move, func(l *ledger.Ledger, n uint64) error { return l.SwapMap("a", n, n+1, make([]byte, 1<<10*(n+1))) })
	if !errors.Is(err, ErrFull) {
		t.Errorf("maps that grow: %v", err)
	}
	// Of clients that nobody met a fence is remembered as well.
	for n := range 4 * uint32(len(clients)) {
		id := 4*uint32(len(clients)) - n
		if err := a.Change(Mend, func(l *ledger.Ledger) error { _, err := l.Fence("a", id); return err }); err != nil {
			t.Fatalf("fence client %d: %v", id, err)
		}
	}
	if err := a.Change(Grow, func(l *ledger.Ledger) error { _, err := l.Admit("b", 8, 4); return err }); err != nil {
		t.Errorf("another index, after the clients of the first are fenced: %v", err)
	}
}

// TestReleaseLeavesRoomForFences: a release that divides what a client holds is refused where keys
// could not be moved either, so that releases do not fill what is kept for fences. The client can
// release all of it.
func TestReleaseLeavesRoomForFences(t *testing.T) {
	const limit = 64 << 10
	a, err := NewAccounts(env.Real(), sized(2*limit), ledger.Shape{Incarnation: 1, ChunkBytes: 1 << 20, Chunks: 1 << 10, Slots: 8, Locks: 64})
	if err != nil {
		t.Fatal(err)
	}
	a.Limit(limit)
	var id uint32
	var epoch uint64
	err = a.Change(Grow, func(l *ledger.Ledger) error {
		_, admitted := l.Admit("a", 8, 4)
		client, registered := l.Register("a", "pod")
		id = client
		granted, _, _, acquired := l.Acquire("a", ledger.Claim{Client: id}, nil)
		if acquired == nil {
			epoch = granted[0].Epoch
		}
		return errors.Join(admitted, registered, acquired)
	})
	if err != nil {
		t.Fatal(err)
	}
	c := &Core{Accounts: a, HoldingsChanged: func(string) {}}
	if err := c.Release("a", id, []byte("b"), []byte("c"), epoch); err != nil {
		t.Errorf("while there is room: %v", err)
	}
	if err := a.Change(Move, func(l *ledger.Ledger) error { return l.SwapMap("a", 0, 1, make([]byte, limit*7/8)) }); err != nil {
		t.Fatal(err)
	}
	if err := c.Release("a", id, []byte("d"), []byte("e"), epoch); !errors.Is(err, ledger.ErrHoldings) {
		t.Errorf("a part in the middle: %v", err)
	}
	if err := c.Release("a", id, nil, nil, epoch); err != nil {
		t.Errorf("all that is held: %v", err)
	}
}
