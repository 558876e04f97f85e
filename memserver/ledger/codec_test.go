package ledger

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// sample is a ledger with something of everything.
func sample(t testing.TB) *Ledger {
	t.Helper()
	return joinedBy(t, sampleJoined(t), JoinedServer{ID: 1030, State: Member, Control: "c:1", Incarnation: 1 << 60, Copies: []string{"b:1", "d:1"}})
}

// sampleJoined is a ledger with servers that joined, of one address each.
func sampleJoined(t testing.TB) *Ledger {
	t.Helper()
	return joinedBy(t, sampleHeld(t), JoinedServer{ID: 1030, State: Joining, Control: "b:1", Incarnation: 1 << 60}, JoinedServer{ID: 7, State: Left, Control: "a:1", Provider: "ibv"})
}

func joinedBy(t testing.TB, l *Ledger, servers ...JoinedServer) *Ledger {
	t.Helper()
	for _, s := range servers {
		if _, _, err := l.Join("here/2", s); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// sampleHeld is a ledger with holdings, without servers that joined.
func sampleHeld(t testing.TB) *Ledger {
	t.Helper()
	l := sampleOf(t, 1024)
	acquire := func(client uint32, start, end string, want int) {
		t.Helper()
		c := Claim{Client: client, Generation: 3, Start: []byte(start), End: []byte(end), Log: []byte{byte(client)}, Fenced: []uint32{2, 3}}
		own, _, _, err := l.Acquire("here/2", c, func(uint32) bool { return true })
		if err != nil || len(own) != want {
			t.Fatalf("client %d holds %v, %v", client, own, err)
		}
	}
	acquire(2, "", "k", 1)
	acquire(3, "m", "", 1)
	l.Fence("here/2", 2)
	l.Finished("here/2", 2)
	acquire(300, "g", "z", 1)
	l.Fence("here/2", 3)
	return l
}

// sampleOf is a ledger without holdings, with chunks for nodes of so many bytes.
func sampleOf(t testing.TB, node uint32) *Ledger {
	t.Helper()
	l, err := New(Shape{Incarnation: 0xfeed, ChunkBytes: 8 << 20, Chunks: 20, Slots: 8, Locks: 1024})
	if err != nil {
		t.Fatal(err)
	}
	do := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(l.Admit("gone", 3, 64))
	do(l.Admit("here/2", 9, 0))
	do(l.Admit("there", 1, 8))
	do(l.Allocate("gone", 1, node))
	for range 5 {
		do(l.Allocate("here/2", 7, node))
	}
	do(l.Register("here/2", "one"))
	do(l.Register("here/2", "two"))
	do(l.Register("here/2", "two"))
	do(l.Register("here/2", "three"))
	do(l.Fence("here/2", 1))
	do(l.Fence("here/2", 4))
	l.Finished("here/2", 4)
	do(l.Fence("here/2", 65534))
	do(nil, l.Meet("here/2", 300))
	do(nil, l.SetLease(10_000))
	do(nil, l.Free("here/2", 0, 4))
	do(nil, l.SwapMap("here/2", 0, 3, []byte("map")))
	l.Evict("gone")
	l.Drain(true)
	return l
}

// TestCrashPoints damages a stored ledger in every way that a torn or broken write could: cut off
// at every byte, every byte changed, a new one written over an old one up to every byte. It must be
// refused, or be the old or the new state.
func TestCrashPoints(t *testing.T) {
	l := sample(t)
	old := l.Append(nil)
	l.Drain(false)
	if _, err := l.Allocate("here/2", 9, 1024); err != nil {
		t.Fatal(err)
	}
	next := l.Append(nil)
	check := func(what string, b []byte) {
		t.Helper()
		got, err := Decode(b)
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrVersion) {
				t.Errorf("%s: %v", what, err)
			}
			return
		}
		if s := string(got.Append(nil)); s != string(old) && s != string(next) {
			t.Errorf("%s: gives a state that never was", what)
		}
	}
	for i := range next {
		check(fmt.Sprintf("cut off at byte %d", i), next[:i])
		check(fmt.Sprintf("torn at byte %d", i), append(append([]byte(nil), next[:i]...), old[min(i, len(old)):]...))
		for bit := range 8 {
			b := append([]byte(nil), next...)
			b[i] ^= 1 << bit
			if got, err := Decode(b); err == nil {
				t.Errorf("bit %d of byte %d flipped: accepted as %+v", bit, i, got.Totals())
			}
		}
	}
	check("followed by more", append(next, 0))
	for _, b := range [][]byte{old, next} {
		if _, err := Decode(b); err != nil {
			t.Error(err)
		}
	}
}

func TestOtherVersion(t *testing.T) {
	b := sample(t).Append(nil)
	binary.LittleEndian.PutUint32(b[8:], 9)
	if _, err := Decode(b); !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), "version 9") || !strings.Contains(err.Error(), "versions 2 to 7") {
		t.Errorf("error %v does not name both versions", err)
	}
}

// TestVersion2 reads what a program wrote that knew no sizes of nodes: sample, as it was then.
func TestVersion2(t *testing.T) {
	const stored = "646d4c6564676572020000005a000000942d0fd6edfd03808080041408800801904e02004001407806686572652f320904050101010002000374776f" +
		"000102a702010000d1fd03010103036d617001b8010805746865726501000000000000000000014102020701410202070e00"
	b, err := hex.DecodeString(stored)
	if err != nil {
		t.Fatal(err)
	}
	l, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := l.Append(nil), sampleOf(t, 0).Append(nil); string(got) != string(want) {
		t.Errorf("read as %x, want %x", got, want)
	}
	b[8] = 1
	if _, err := Decode(b); !errors.Is(err, ErrVersion) {
		t.Errorf("version 1: %v", err)
	}
}

// TestVersion3 reads what a program wrote that knew no holdings.
func TestVersion3(t *testing.T) {
	const stored = "646d4c6564676572030000005e0000004554bd00edfd03808080041408800801904e02004001407806686572652f3209040501010100020003" +
		"74776f000102a702010000d1fd03010103036d617001b801080574686572650100000000000000000001410202078008014102020780080e00"
	b, err := hex.DecodeString(stored)
	if err != nil {
		t.Fatal(err)
	}
	l, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := l.Append(nil), sampleOf(t, 1024).Append(nil); string(got) != string(want) {
		t.Errorf("read as %x, want %x", got, want)
	}
}

// TestAdoptedIsStored: who adopted a chunk has it after a restart, and nobody adopts it again.
func TestAdoptedIsStored(t *testing.T) {
	l := sample(t)
	l.Drain(false)
	if n, err := l.Adopt("here/2", 9, 1024); !errors.Is(err, ErrExhausted) {
		t.Fatalf("chunk %d of a live client is adopted: %v", n, err)
	}
	l.Fence("here/2", 7)
	if n, err := l.Adopt("here/2", 9, 1024); !errors.Is(err, ErrExhausted) {
		t.Fatalf("chunk %d is adopted while the fence is under way: %v", n, err)
	}
	l.Finished("here/2", 7)
	if n, err := l.Adopt("here/2", 9, 512); !errors.Is(err, ErrExhausted) {
		t.Fatalf("chunk %d is adopted for nodes of another size: %v", n, err)
	}
	if n, err := l.Adopt("there", 9, 1024); !errors.Is(err, ErrExhausted) {
		t.Fatalf("chunk %d is adopted by another index: %v", n, err)
	}
	if got := l.Adoptable(); got != 4 {
		t.Errorf("%d chunks can be adopted", got)
	}
	seen := map[uint32]bool{}
	for range 4 {
		n, err := l.Adopt("here/2", 9, 1024)
		if err != nil || seen[n] {
			t.Fatalf("chunk %d, %v; adopted before: %v", n, err, seen)
		}
		seen[n] = true
		if l, err = Decode(l.Append(nil)); err != nil {
			t.Fatal(err)
		}
		if err := l.Free("here/2", 8, n); !errors.Is(err, ErrNotOwned) {
			t.Errorf("free by another client: %v", err)
		}
	}
	if _, err := l.Adopt("here/2", 9, 1024); !errors.Is(err, ErrExhausted) {
		t.Errorf("a fifth: %v", err)
	}
	for n := range seen {
		if err := l.Free("here/2", 9, n); err != nil {
			t.Error(err)
		}
	}
}

func TestAppendAppends(t *testing.T) {
	l := sample(t)
	b := l.Append([]byte("before"))
	if !strings.HasPrefix(string(b), "before") {
		t.Error("what was there is gone")
	}
	if _, err := Decode(b[len("before"):]); err != nil {
		t.Error(err)
	}
}

// FuzzDecode gives the decoder bodies under a good header. What it accepts keeps every invariant
// and is stored the same way again.
func FuzzDecode(f *testing.F) {
	f.Add(sample(f).Append(nil)[headerSize:])
	empty, _ := New(Shape{Chunks: 1, Slots: 1, Locks: 4})
	f.Add(empty.Append(nil)[headerSize:])
	f.Fuzz(func(t *testing.T, body []byte) {
		Decode(body)
		r := reader{rest: body}
		r.upTo(anyUint64, "")
		r.upTo(anyUint64, "")
		if r.upTo(MaxChunks, "") > 1<<12 {
			return // correct, but slow
		}
		b := append(make([]byte, headerSize), body...)
		seal(b, version)
		l, err := Decode(b)
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Fatal(err)
			}
			return
		}
		again, err := Decode(l.Append(nil))
		if err != nil {
			t.Fatalf("it was accepted and is not any more: %v", err)
		}
		if string(again.Append(nil)) != string(l.Append(nil)) {
			t.Fatal("it changes when it is stored")
		}
		for l.dirty > 0 {
			n, _ := l.DirtyChunk()
			l.CleanedChunk(n)
		}
		if err := l.Check(); err != nil {
			t.Fatal(err)
		}
	})
}

// BenchmarkAdopt looks in vain through the chunks of one index, with the most clients that it can
// have had.
func BenchmarkAdopt(b *testing.B) {
	l, _ := New(Shape{ChunkBytes: 8 << 20, Chunks: 1 << 17, Slots: MaxSlots, Locks: 131072})
	l.Admit("a", 1<<17, 0)
	for n := range 1 << 17 {
		l.Allocate("a", uint32(n%100+1), 1024)
	}
	for id := uint32(101); id < NoClient; id++ {
		l.Fence("a", id)
		l.Finished("a", id)
	}
	for b.Loop() {
		if _, err := l.Adopt("a", 1, 1024); !errors.Is(err, ErrExhausted) {
			b.Fatal(err)
		}
	}
}

// BenchmarkAppend is a server of 1 TiB in chunks of 8 MiB with 16 indexes that took chunks in turn:
// no two neighbours alike.
func BenchmarkAppend(b *testing.B) {
	l, _ := New(Shape{ChunkBytes: 8 << 20, Chunks: 1 << 17, Slots: MaxSlots, Locks: 131072})
	for i := range 16 {
		l.Admit(fmt.Sprint("index-", i), 1<<13, 0)
	}
	for n := range 1 << 17 {
		l.Allocate(fmt.Sprint("index-", n%16), uint32(n%100+1), 1024)
	}
	buf := l.Append(nil)
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		buf = l.Append(buf[:0])
	}
}
