package ledger

import (
	"encoding/hex"
	"errors"
	"fmt"
	"testing"
)

// TestJoin: a server joins once, becomes a member or leaves, and goes no other way, however often
// it is asked for, and by whom.
func TestJoin(t *testing.T) {
	l, err := New(Shape{Incarnation: 1, ChunkBytes: 1 << 20, Chunks: 4, Slots: 2, Locks: 64})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Admit("a", 1, 8); err != nil {
		t.Fatal(err)
	}
	at := func(id uint16, state JoinState) JoinedServer {
		return JoinedServer{ID: id, State: state, Control: fmt.Sprintf("memory-%d:7471", id), Incarnation: uint64(id) << 40}
	}
	version := uint64(0)
	join := func(id uint16, asked, want JoinState, news bool, wantErr error) {
		t.Helper()
		now, isNew, err := l.Join("a", at(id, asked))
		if !errors.Is(err, wantErr) || now != want || isNew != news {
			t.Errorf("server %d, state %d: it has %d, news %v, %v; want %d, %v, %v", id, asked, now, isNew, err, want, news, wantErr)
		}
		if isNew {
			version++
		}
		if got, _, err := l.Joined("a", 0); err != nil || got != version || l.Joins("a") != version {
			t.Errorf("server %d, state %d: version %d, %v, want %d", id, asked, got, err, version)
		}
		if err := l.Check(); err != nil {
			t.Error(err)
		}
	}
	join(9, Member, 0, false, ErrNotOwned)
	join(9, Joining, Joining, true, nil)
	join(9, Joining, Joining, false, nil)
	join(3, Joining, Joining, true, nil)
	join(9, Member, Member, true, nil)
	join(9, Joining, Member, false, nil) // an operator that is behind
	join(9, Left, Member, false, ErrInUse)
	join(3, Left, Left, true, nil)
	join(3, Left, Left, false, nil)
	join(3, Joining, Left, false, ErrNotOwned)
	join(3, Member, Left, false, ErrNotOwned)
	join(5, Left, Left, true, nil) // it was never there, and never will be
	join(0, Joining, 0, false, ErrInvalid)
	join(1<<15, Joining, 0, false, ErrInvalid)
	join(4, 0, 0, false, ErrInvalid)
	other := at(9, Member)
	other.Incarnation++
	if now, _, err := l.Join("a", other); now != Member || !errors.Is(err, ErrInUse) {
		t.Errorf("another server of the same id: %d, %v", now, err)
	}
	if _, _, err := l.Join("b", at(9, Joining)); !errors.Is(err, ErrUnknownIndex) {
		t.Errorf("an index that is not there: %v", err)
	}
	_, all, err := l.Joined("a", 0)
	if err != nil || len(all) != 3 || all[0] != at(3, Left) || all[1] != at(5, Left) || all[2] != at(9, Member) {
		t.Errorf("joined are %+v, %v", all, err)
	}
	again, err := Decode(l.Append(nil))
	if err != nil || string(again.Append(nil)) != string(l.Append(nil)) {
		t.Errorf("what was stored is not what is read: %v", err)
	}
	client, err := l.Register("a", "one")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.Joined("a", client); err != nil {
		t.Error(err)
	}
	if _, err := l.Fence("a", client); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.Joined("a", client); !errors.Is(err, ErrFenced) {
		t.Errorf("a client that is fenced asks for the list: %v", err)
	}
	for id := uint16(100); len(all) < MaxJoined; id++ {
		join(id, Joining, Joining, true, nil)
		_, all, _ = l.Joined("a", 0)
	}
	join(99, Joining, 0, false, ErrExhausted)
	if l.Evict("a"); l.Joins("a") != 0 {
		t.Error("an index that was evicted has servers that joined")
	}
}

// TestVersion4 reads what a program wrote that knew of no servers that join.
func TestVersion4(t *testing.T) {
	const stored = "646d4c656467657204000000830000003283b964edfd03808080041408800801904e02004001407806686572652f32090406010101000102000101" +
		"000102a702010000d1fd03010103036d6170030300016702010102000167016dac0203012c010167016b02010102016d00030201030001b8010805" +
		"746865726501000000000000000000000001410202078008014102020780080e00"
	b, err := hex.DecodeString(stored)
	if err != nil {
		t.Fatal(err)
	}
	l, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := l.Append(nil), sampleHeld(t).Append(nil); string(got) != string(want) {
		t.Errorf("read as %x, want %x", got, want)
	}
}
