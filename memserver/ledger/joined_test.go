package ledger

import (
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
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
	if err != nil || len(all) != 3 || !reflect.DeepEqual(all, []JoinedServer{at(3, Left), at(5, Left), at(9, Member)}) {
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

// TestVersion6 reads what a program wrote that knew one address of each server that joined, and
// what it can read is written for it.
func TestVersion6(t *testing.T) {
	const stored = "646d4c656467657206000000aa0000001ab879cdedfd0380808004140880080001904e02004001407806686572652f32090406010101000001020000" +
		"01010000010200a70201000000d1fd0301010003036d6170030300016702010102000167016dac0203012c010167016b02010102016d000302010300" +
		"020207030003613a310369627686080180808080808080801003623a310001b801080574686572650100000000000000000000000000014102020780" +
		"08014102020780080e00"
	b, err := hex.DecodeString(stored)
	if err != nil {
		t.Fatal(err)
	}
	l, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := l.Append(nil), sampleJoined(t).Append(nil); string(got) != string(want) || string(got) != string(b) {
		t.Errorf("read as %x, want %x", got, want)
	}
}

// TestJoinedCopies: who names copies notes where the server is by now, and who names none changes
// nothing, as an operator does that knows of no copies.
func TestJoinedCopies(t *testing.T) {
	l := sampleHeld(t)
	join := func(state JoinState, incarnation uint64, news bool, want error, control string, copies ...string) {
		t.Helper()
		before := l.Joins("here/2")
		_, isNew, err := l.Join("here/2", JoinedServer{ID: 9, State: state, Control: control, Incarnation: incarnation, Copies: copies})
		if isNew != news || !errors.Is(err, want) || news != (l.Joins("here/2") == before+1) {
			t.Errorf("%s and %v: news %v, %v; want %v, %v", control, copies, isNew, err, news, want)
		}
		if err := l.Check(); err != nil {
			t.Error(err)
		}
	}
	at := func(want ...string) {
		t.Helper()
		again, err := Decode(l.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		_, all, err := again.Joined("here/2", 0)
		if got := append([]string{all[0].Control}, all[0].Copies...); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("it is at %v, want %v", got, want)
		}
	}
	join(Joining, 1, true, nil, "a:1")
	join(Joining, 1, false, ErrInUse, "b:1")
	join(Joining, 1, true, nil, "a:1", "b:1")
	join(Member, 1, true, nil, "b:1") // the state is news
	at("a:1", "b:1")
	join(Joining, 1, false, nil, "a:1", "b:1")
	join(Member, 1, true, nil, "b:1", "c:1")
	at("b:1", "c:1")
	join(Member, 1, false, ErrInUse, "a:1")
	join(Member, 2, false, ErrInUse, "b:1", "c:1")
	join(Member, 1, false, ErrInvalid, "b:1", "")
	join(Member, 1, false, ErrInvalid, "b:1", make([]string, MaxJoinedCopies+1)...)
	at("b:1", "c:1")
}
