package ledger

import (
	"errors"
	"slices"
	"testing"
)

func nothing(uint16) bool { return false }

// end fences clients to the end.
func end(t *testing.T, l *Ledger, clients ...uint32) {
	t.Helper()
	for _, c := range clients {
		if _, err := l.Fence("a", c); err != nil || !l.Finished("a", c) {
			t.Fatalf("client %d is not fenced: %v", c, err)
		}
	}
}

func ledgerOf(t *testing.T, clients uint16) *Ledger {
	t.Helper()
	l, err := New(Shape{ChunkBytes: 1 << 20, Chunks: 4, Slots: 1, Locks: 4, Clients: clients})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Admit("a", 4, 0); err != nil {
		t.Fatal(err)
	}
	return l
}

// TestIdsForEver opens an index three times as often as there are ids. Each client gets a number
// that none had before, and its id is that of the client which was forgotten longest ago.
func TestIdsForEver(t *testing.T) {
	l := ledgerOf(t, 0)
	stays, err := l.Register("a", "stays")
	if err != nil {
		t.Fatal(err)
	}
	had := map[uint32]bool{stays: true}
	for n := range 3 * MaxClients {
		id, err := l.Register("a", "")
		if err != nil {
			t.Fatalf("opening %d: %v", n, err)
		}
		if had[id] {
			t.Fatalf("opening %d: client %d was there before", n, id)
		}
		had[id] = true
		if want := n%(MaxClients-1) + 2; int(uint16(id)) != want {
			t.Fatalf("opening %d: id %d, want %d", n, uint16(id), want)
		}
		end(t, l, id)
		if n%256 > 0 {
			continue
		}
		if next := l.Forgettable("a", 256); len(next) > 0 {
			if gone, _, err := l.Forget("a", next, nothing); err != nil || !slices.Equal(gone, next) {
				t.Fatalf("opening %d: %v of %v are forgotten, %v", n, gone, next, err)
			}
		}
	}
	if err := l.Live("a", stays); err != nil {
		t.Error(err)
	}
	if err := l.Check(); err != nil {
		t.Error(err)
	}
	again, err := Decode(l.Append(nil))
	if err != nil || string(again.Append(nil)) != string(l.Append(nil)) {
		t.Errorf("read again: %v", err)
	}
	if n := len(l.Append(nil)); n > 1024 {
		t.Errorf("the ledger takes %d bytes", n)
	}
}

// TestRemains: a client is not forgotten while anything is left of it.
func TestRemains(t *testing.T) {
	l := ledgerOf(t, 9)
	forgotten := func(want bool, clients ...uint32) {
		t.Helper()
		gone, news, err := l.Forget("a", clients, nothing)
		if err != nil || (len(gone) == len(clients)) != want || news != want {
			t.Fatalf("%v of %v are forgotten (%v), %v", gone, clients, news, err)
		}
	}
	one, _ := l.Register("a", "one")
	two, _ := l.Register("a", "two")
	chunk, err := l.Allocate("a", one, 64)
	if err != nil {
		t.Fatal(err)
	}
	claim := func(client uint32, start, end string, fenced ...uint32) {
		t.Helper()
		c := Claim{Client: client, Start: []byte(start), End: []byte(end), Fenced: fenced}
		if _, blocked, _, err := l.Acquire("a", c, func(uint32) bool { return true }); err != nil || len(blocked) > 0 {
			t.Fatal(blocked, err)
		}
	}
	claim(one, "a", "m")
	forgotten(false, one)
	l.Fence("a", one)
	forgotten(false, one)
	end(t, l, one)
	forgotten(false, one) // keys
	claim(two, "a", "m", one)
	forgotten(false, one) // a log
	all, _ := l.Holdings("a")
	if _, err := l.Settle("a", two, []byte("a"), []byte("m"), all[0].Epoch); err != nil {
		t.Fatal(err)
	}
	if gone, _, err := l.Forget("a", []uint32{one}, func(id uint16) bool { return uint32(id) == one }); len(gone) > 0 || err != nil {
		t.Fatalf("forgotten though it is busy: %v", err)
	}
	forgotten(true, one)
	if gone, news, err := l.Forget("a", []uint32{one}, nothing); !slices.Equal(gone, []uint32{one}) || news || err != nil {
		t.Errorf("forgotten again: %v, %v, %v", gone, news, err)
	}
	if n, err := l.Adopt("a", two, 64); n != chunk || err != nil {
		t.Errorf("the chunk of a forgotten client: %d, %v", n, err)
	}
	for what, err := range map[string]error{
		"live":     l.Live("a", one),
		"meet":     l.Meet("a", one),
		"free":     l.Free("a", one, chunk),
		"allocate": func() error { _, err := l.Allocate("a", one, 64); return err }(),
	} {
		if !errors.Is(err, ErrFenced) {
			t.Errorf("%s of a forgotten client: %v", what, err)
		}
	}
	if news, err := l.Fence("a", one); news || err != nil || !l.Complete("a", one) || l.Fenced("a", one) {
		t.Errorf("fence of a forgotten client: %v, %v", news, err)
	}
}

// TestNamesakes: of two clients with one id a server refuses the earlier one's calls, and does not
// take them for the later one's.
func TestNamesakes(t *testing.T) {
	l := ledgerOf(t, 1)
	first, _ := l.Register("a", "p")
	end(t, l, first)
	if _, err := l.Register("a", "p"); !errors.Is(err, ErrExhausted) {
		t.Fatal(err)
	}
	if next := l.Forgettable("a", 9); !slices.Equal(next, []uint32{first}) {
		t.Fatalf("%v can be forgotten", next)
	}
	l.Forget("a", []uint32{first}, nothing)
	second, err := l.Register("a", "p")
	if err != nil || second == first || uint16(second) != uint16(first) {
		t.Fatalf("clients %d and %d, %v", first, second, err)
	}
	chunk, _ := l.Allocate("a", second, 64)
	if err := l.Free("a", first, chunk); !errors.Is(err, ErrFenced) {
		t.Errorf("a chunk of its namesake is freed: %v", err)
	}
	if news, err := l.Fence("a", first); news || err != nil || l.Live("a", second) != nil {
		t.Errorf("the earlier client's fence ends the later one: %v, %v", news, err)
	}
	if l.Finished("a", first) {
		t.Error("a forgotten client's fence is finished")
	}
	if gone, news, _ := l.Forget("a", []uint32{first}, nothing); len(gone) != 1 || news || l.Live("a", second) != nil {
		t.Errorf("%v are forgotten again", gone)
	}
}

// TestIdsComeBackFromClientsWithChunks: all ids are those of clients that died, each with a chunk.
// Nobody lives who could adopt these. The next clients register all the same, and adopt them.
func TestIdsComeBackFromClientsWithChunks(t *testing.T) {
	const ids = 4
	l := ledgerOf(t, ids)
	have := map[uint32]bool{}
	for range ids {
		id, err := l.Register("a", "")
		if err != nil {
			t.Fatal(err)
		}
		chunk, err := l.Allocate("a", id, 64)
		if err != nil {
			t.Fatal(err)
		}
		have[chunk] = true
		end(t, l, id)
	}
	if _, err := l.Register("a", ""); !errors.Is(err, ErrExhausted) {
		t.Fatal(err)
	}
	gone, _, err := l.Forget("a", l.Forgettable("a", ids), nothing)
	if len(gone) != ids || err != nil {
		t.Fatalf("%v are forgotten, %v", gone, err)
	}
	l, err = Decode(l.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	if n := l.Adoptable(); n != ids {
		t.Errorf("%d chunks can be adopted, want %d", n, ids)
	}
	for range ids {
		id, err := l.Register("a", "")
		if err != nil {
			t.Fatal(err)
		}
		for chunk := range have {
			if err := l.Free("a", id, chunk); !errors.Is(err, ErrNotOwned) {
				t.Fatalf("client %d frees chunk %d of an earlier one with its id: %v", id, chunk, err)
			}
		}
		chunk, err := l.Adopt("a", id, 64)
		if err != nil || !have[chunk] {
			t.Fatal(chunk, err)
		}
		delete(have, chunk)
	}
	if err := l.Check(); err != nil {
		t.Error(err)
	}
}

// TestFenceOfALaterClient: a server that did not forget a client refuses the next one with its id,
// and a fence of that one is a fence of both.
func TestFenceOfALaterClient(t *testing.T) {
	l := ledgerOf(t, 9)
	first, later := Number(0, 5), Number(2, 5)
	l.Meet("a", first)
	if _, _, _, err := l.Acquire("a", Claim{Client: first, Start: []byte("a")}, nil); err != nil {
		t.Fatal(err)
	}
	chunk, _ := l.Allocate("a", first, 64)
	if err := l.Meet("a", later); !errors.Is(err, ErrUnknownClient) {
		t.Errorf("it is let in beside its namesake: %v", err)
	}
	if _, err := l.Allocate("a", later, 64); !errors.Is(err, ErrFenced) {
		t.Error(err)
	}
	if l.Fenced("a", later) || l.Complete("a", later) {
		t.Error("it is fenced")
	}
	end(t, l, later)
	for _, c := range []uint32{first, Number(1, 5), later} {
		if err := l.Meet("a", c); !errors.Is(err, ErrFenced) || !l.Complete("a", c) {
			t.Errorf("client %d: %v", c, err)
		}
	}
	if err := l.Check(); err != nil {
		t.Fatal(err)
	}
	two, _ := l.Register("a", "two")
	own, _, _, err := l.Acquire("a", Claim{Client: two, Start: []byte("a"), Fenced: []uint32{later}}, func(uint32) bool { return true })
	if err != nil || len(own) != 1 || own[0].Inherits[0].Client != later {
		t.Errorf("%+v, %v", own, err)
	}
	if n, err := l.Adopt("a", two, 64); n != chunk || err != nil {
		t.Error(n, err)
	}
}

// TestForgettableGoesOn: clients that cannot be forgotten do not stand in the way of others.
func TestForgettableGoesOn(t *testing.T) {
	l := ledgerOf(t, 8)
	for range 7 {
		id, _ := l.Register("a", "")
		end(t, l, id)
	}
	var all []uint32
	for range 4 {
		all = append(all, l.Forgettable("a", 2)...)
	}
	if !slices.Equal(all, []uint32{1, 2, 3, 4, 5, 6, 7, 1}) {
		t.Errorf("named are %v", all)
	}
}

// TestPlainVersion: a ledger that forgot nobody is one of version 4, which an older program reads.
func TestPlainVersion(t *testing.T) {
	l := sampleHeld(t)
	if v := l.Append(nil)[8]; v != plain {
		t.Errorf("version %d", v)
	}
	l.Fence("here/2", 300)
	l.Finished("here/2", 1)
	if gone, _, err := l.Forget("here/2", []uint32{1}, nothing); len(gone) != 1 || err != nil {
		t.Fatal(gone, err)
	}
	b := l.Append(nil)
	if b[8] != unjoined {
		t.Errorf("version %d", b[8])
	}
	if again, err := Decode(b); err != nil || !again.Complete("here/2", 1) || again.Fenced("here/2", 1) {
		t.Errorf("what is forgotten is not there again: %v", err)
	}
}
