package ledger

import (
	"errors"
	"fmt"
	"testing"
)

// TestEveryDefaultFits admits as many indexes as there are slots with the default of locks.
func TestEveryDefaultFits(t *testing.T) {
	l, err := New(Shape{Chunks: 1, Slots: MaxSlots, Locks: 131072})
	if err != nil {
		t.Fatal(err)
	}
	for i := range MaxSlots {
		if _, err := l.Admit(fmt.Sprint("index-", i), 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Check(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Admit("one-more", 0, 0); !errors.Is(err, ErrExhausted) {
		t.Error(err)
	}
}

// TestRing hands out all ids there are: never 0, never NoClient, none twice, and none that is known
// otherwise.
func TestRing(t *testing.T) {
	l, _ := New(Shape{Chunks: 1, Slots: 1, Locks: 4})
	l.Admit("a", 0, 0)
	l.Fence("a", 2)
	l.Meet("a", 4)
	for want := 1; want <= MaxClients; want++ {
		if want == 2 || want == 4 {
			continue
		}
		if id, err := l.Register("a", ""); err != nil || int(id) != want {
			t.Fatalf("id %d, %v; want %d", id, err, want)
		}
		l.Fence("a", uint32(want))
	}
	if _, err := l.Register("a", ""); !errors.Is(err, ErrExhausted) {
		t.Fatal(err)
	}
}

// TestRegisterIsBounded: an index has so many clients that are not fenced, and another one once one
// of them is.
func TestRegisterIsBounded(t *testing.T) {
	l, _ := New(Shape{Chunks: 1, Slots: 2, Locks: 8})
	l.Admit("a", 0, 4)
	l.Admit("b", 0, 4)
	for range MaxLive {
		if _, err := l.Register("a", "x"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Register("a", "x"); !errors.Is(err, ErrExhausted) {
		t.Errorf("one client too many: %v", err)
	}
	if _, err := l.Register("b", "x"); err != nil {
		t.Errorf("another index: %v", err)
	}
	l.Fence("a", 7)
	if _, err := l.Register("a", "x"); err != nil {
		t.Errorf("after one was fenced: %v", err)
	}
	if err := l.Check(); err != nil {
		t.Error(err)
	}
}

// TestMeetIsBounded: so has a server where its clients did not register.
func TestMeetIsBounded(t *testing.T) {
	l, _ := New(Shape{Chunks: 1, Slots: 2, Locks: 8})
	l.Admit("a", 0, 4)
	for id := range uint32(MaxLive) {
		if err := l.Meet("a", 2*id+1); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Meet("a", 2); !errors.Is(err, ErrExhausted) {
		t.Errorf("one client too many: %v", err)
	}
	if err := l.Meet("a", 3); err != nil {
		t.Errorf("one that is known: %v", err)
	}
	l.Fence("a", 7)
	if err := l.Meet("a", 2); err != nil {
		t.Errorf("after one was fenced: %v", err)
	}
	if err := l.Check(); err != nil {
		t.Error(err)
	}
}

// TestManyClientsAreFewBytes: what a life of an index leaves behind is a few runs, whatever the
// order in which clients ended.
func TestManyClientsAreFewBytes(t *testing.T) {
	l, _ := New(Shape{Chunks: 1, Slots: 1, Locks: 4})
	l.Admit("a", 0, 0)
	empty := len(l.Append(nil))
	for n := range MaxClients {
		id, _ := l.Register("a", fmt.Sprint("pod-", n%7))
		if n >= 5 {
			l.Fence("a", id-5)
			l.Finished("a", id-5)
		}
	}
	if got := len(l.Append(nil)) - empty; got > 100 {
		t.Errorf("%d clients, 5 of them live, take %d bytes", MaxClients, got)
	}
	if again, err := Decode(l.Append(nil)); err != nil || again.places[0].liveClients() != 5 || len(again.places[0].clients) != MaxClients {
		t.Errorf("read again: %v", err)
	}
}

func TestClientSet(t *testing.T) {
	ended := map[uint32]bool{1: true, 63: true, 64: true, 300: true, 65534: true}
	p := &place{}
	for id := range uint32(NoClient) {
		p.clients = append(p.clients, client{id: uint16(id), state: clientFencing})
		if ended[id] {
			p.clients[id].state = clientFenced
		}
	}
	var s clientSet
	p.addAdoptable(&s)
	for id := range uint32(NoClient) {
		if s.has(uint16(id)) != ended[id] {
			t.Errorf("client %d is in the set: %v", id, s.has(uint16(id)))
		}
	}
}
