package verbs_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/verbstest"
)

const journalRegion = 8 << 20

func newJournal(unrecorded ...verbs.Span) (*verbs.Journal, *verbstest.Copy, []byte) {
	memory := make([]byte, journalRegion)
	c := verbstest.NewCopy(env.Real(), memory)
	j := verbs.NewJournal(env.Real(), nil, unrecorded...)
	c.Join(j)
	return j, c, memory
}

// change makes a change as a list does that has no other one. Data nil = n bytes become zero.
func change(t testing.TB, j *verbs.Journal, memory []byte, at uint64, data []byte, n int) (p verbs.Position) {
	t.Helper()
	if err := j.Begin(nil, verbs.ItemBytes(len(data))); err != nil {
		t.Fatal(err)
	}
	defer j.Done()
	if data == nil {
		p = j.Zero(at, n)
		clear(memory[at:][:n])
		return p
	}
	p = j.Record(at, data)
	copy(memory[at:], data)
	return p
}

// TestJournalOrder: the copy is equal when it has all, through many windows; each change is seen at
// each of its bytes, by its position or a later one.
func TestJournalOrder(t *testing.T) {
	j, c, memory := newJournal()
	random := rand.New(rand.NewPCG(1, 2))
	sent := 0
	for sent < 3*verbs.JournalWindow {
		n := 1 + random.IntN([]int{16, 600, 300_000}[random.IntN(3)])
		at := uint64(random.IntN(journalRegion - n))
		var data []byte
		if random.IntN(4) > 0 {
			data = make([]byte, n)
			for i := range data {
				data[i] = byte(random.Uint32())
			}
		}
		p := change(t, j, memory, at, data, n)
		sent += verbs.ItemBytes(len(data))
		if p != verbs.Position(sent) || j.Last() != p {
			t.Fatalf("change at %d ends at %d, the last one at %d; %d bytes were recorded", at, p, j.Last(), sent)
		}
		if look := at + uint64(random.IntN(n)); j.Seen(look, 1) != p {
			t.Fatalf("byte %d was changed at %d, seen at %d", look, p, j.Seen(look, 1))
		}
		if random.IntN(8) == 0 {
			if err := j.Wait(nil, p); err != nil || !j.Ready(p) {
				t.Fatal(err)
			}
		}
	}
	if err := j.Wait(nil, j.Last()); err != nil || !c.Equal(memory) {
		t.Fatalf("the copy is equal: %v, %v", c.Equal(memory), err)
	}
}

// TestJournalWindow: no more is recorded than the copy may lack.
func TestJournalWindow(t *testing.T) {
	j, c, memory := newJournal()
	data := make([]byte, verbs.MaxTransfer)
	c.Hold(true)
	for room := verbs.JournalWindow; room >= verbs.ItemBytes(len(data)); room -= verbs.ItemBytes(len(data)) {
		change(t, j, memory, 0, data, 0)
	}
	full := j.Last()
	goesOn, began := waits(func() error { return j.Begin(nil, verbs.ItemBytes(len(data))) })
	if !goesOn {
		t.Fatalf("it begins beyond the window: %v", <-began)
	}
	c.Hold(false)
	if err := <-began; err != nil || j.Ready(full+1) {
		t.Fatal(err)
	}
	j.Done()
	if err := j.Begin(nil, verbs.JournalWindow+1); !errors.Is(err, verbs.ErrTooMany) {
		t.Errorf("more than a window: %v", err)
	}
}

// TestJournalReserve: changes of the server itself do not wait for room, and have a limit of their
// own. A list that waits goes on when the copy has caught up with both.
func TestJournalReserve(t *testing.T) {
	j, c, memory := newJournal()
	data := make([]byte, verbs.MaxTransfer)
	c.Hold(true)
	for room := verbs.JournalWindow; room >= verbs.ItemBytes(len(data)); room -= verbs.ItemBytes(len(data)) {
		change(t, j, memory, 0, data, 0)
	}
	own := 0
	for {
		err := j.BeginNow(verbs.ItemBytes(len(data)))
		if errors.Is(err, verbs.ErrTooMany) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		j.Splice(0, 0, data)
		j.Done()
		own += verbs.ItemBytes(len(data))
		if own > verbs.JournalReserve+verbs.JournalWindow {
			t.Fatal("it never ends")
		}
	}
	if own < verbs.JournalReserve-verbs.ItemBytes(len(data)) || j.Ledger() != j.Last() {
		t.Errorf("the reserve had room for %d bytes; the ledger's last change is at %d of %d", own, j.Ledger(), j.Last())
	}
	began := make(chan error)
	go func() { began <- j.Begin(nil, verbs.ItemBytes(8)) }()
	c.Hold(false)
	if err := <-began; err != nil {
		t.Fatal(err)
	}
	j.Done()
}

// TestSplice: the copy's ledger becomes what the server's is; an item of another ledger is refused.
func TestSplice(t *testing.T) {
	j, c, _ := newJournal()
	old := ""
	for _, now := range []string{"a ledger", "a longer ledger", "a longer, other ledger", "a ledger", "", "x"} {
		head := 0
		for head < min(len(old), len(now)) && old[head] == now[head] {
			head++
		}
		tail := 0
		for tail < min(len(old), len(now))-head && old[len(old)-1-tail] == now[len(now)-1-tail] {
			tail++
		}
		if err := j.BeginNow(verbs.ItemBytes(len(now))); err != nil {
			t.Fatal(err)
		}
		p := j.Splice(head, tail, []byte(now[head:len(now)-tail]))
		j.Done()
		if err := j.Wait(nil, p); err != nil || string(c.Ledger()) != now {
			t.Fatalf("%q became %q at the copy, and %q here: %v", old, c.Ledger(), now, err)
		}
		old = now
	}
	r := verbs.Replica{Ledger: []byte("xyz"), Known: true}
	if err := r.Apply(&verbs.Item{Kind: verbs.ItemLedger, Head: 2, Tail: 1<<32 - 1}); !errors.Is(err, verbs.ErrMalformed) || string(r.Ledger) != "xyz" {
		t.Errorf("%q, %v", r.Ledger, err)
	}
}

// TestJournalBreaks: a journal whose copy is given up is ready for nothing new, and goes on when
// nothing waits for that copy any more.
func TestJournalBreaks(t *testing.T) {
	gone := errors.New("gone")
	for name, breaks := range map[string]func(j *verbs.Journal, c *verbstest.Copy) error{
		"the server": func(j *verbs.Journal, _ *verbstest.Copy) error { j.Break(gone); return gone },
		"more than was sent": func(j *verbs.Journal, c *verbstest.Copy) error {
			c.Surprise()
			return verbs.ErrDisconnected
		},
		"panic": func(j *verbs.Journal, c *verbstest.Copy) error {
			if err := j.Begin(nil, verbs.ItemBytes(8)); err != nil {
				return err
			}
			j.Record(0, make([]byte, 8))
			j.Abandon()
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			memory := make([]byte, journalRegion)
			j, c := verbs.NewJournal(env.Real(), nil), verbstest.NewCopy(env.Real(), memory)
			f := c.Join(j)
			had := change(t, j, memory, 0, []byte("had"), 0)
			if err := j.Wait(nil, had); err != nil {
				t.Fatal(err)
			}
			lost := change(t, j, memory, 0, []byte("lost"), 0)
			want := breaks(j, c)
			if err := j.Wait(nil, lost); err == nil || want != nil && !errors.Is(err, want) {
				t.Errorf("what the copy may lack: %v", err)
			}
			if err := j.Wait(nil, had); err != nil {
				t.Errorf("what the copy had: %v", err)
			}
			if f.Err() == nil || j.Ready(j.Ledger()) == (name == "the server") {
				t.Errorf("%v; an answer that tells of the ledger may go out: %v", f.Err(), j.Ready(j.Ledger()))
			}
			f.Drop()
			if err := j.Wait(nil, j.Ledger()); err != nil || j.Mode().Records() {
				t.Errorf("without the copy: %v", err)
			}
			later := verbstest.NewCopy(env.Real(), memory)
			later.Join(j)
			if err := j.Wait(nil, change(t, j, memory, 0, []byte("later"), 0)); err != nil || !later.Equal(memory) {
				t.Errorf("with another copy: %v", err)
			}
		})
	}
}

// TestJournalRecorded: a change is recorded if any of its bytes is.
func TestJournalRecorded(t *testing.T) {
	j, _, _ := newJournal(verbs.Span{First: 0, End: 4096}, verbs.Span{First: 8192, End: 8704})
	for _, c := range []struct {
		region verbs.RegionID
		at     uint64
		n      int
		want   bool
	}{
		{verbs.RegionData, 0, 4096, false},
		{verbs.RegionData, 0, 4097, true},
		{verbs.RegionData, 4096, 8, true},
		{verbs.RegionData, 8184, 16, true},
		{verbs.RegionData, 8192, 512, false},
		{verbs.RegionData, 8696, 8, false},
		{verbs.RegionData, 8696, 16, true},
		{verbs.RegionData, 8704, 1, true},
		{verbs.RegionData, 1<<64 - 8, 64, true}, // beyond the region, which others refuse
		{verbs.RegionData, 4096, 0, false},
		{verbs.RegionLocks, 8704, 8, false},
	} {
		if got := j.Recorded(c.region, c.at, c.n); got != c.want {
			t.Errorf("%d bytes at %d:%d are recorded: %v", c.n, c.region, c.at, got)
		}
	}
}

// FuzzNextItem: whatever bytes come, an item lies within them and within the region.
func FuzzNextItem(f *testing.F) {
	f.Add([]byte("\x00\x01\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00hello\x00\x00\x00more"), uint32(4096))
	f.Add([]byte("\x00\x01\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x01hello"), uint32(4096))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\x05\x00\x00\x00\x00\x00\x00\x00hello\x00\x00\x00"), uint32(4096))
	f.Fuzz(func(t *testing.T, b []byte, size uint32) {
		i, n, err := verbs.NextItem(b, uint64(size))
		switch {
		case err != nil:
			if !errors.Is(err, verbs.ErrMalformed) || n != 0 {
				t.Fatal(n, err)
			}
		case n > len(b) || n%8 != 0, n > 0 && i.Kind <= verbs.ItemZeros && (i.Bytes < 1 || i.At+uint64(i.Bytes) > uint64(size)), i.Data != nil && n != verbs.ItemBytes(len(i.Data)), i.Kind == verbs.ItemData && len(i.Data) != i.Bytes && n > 0:
			t.Fatalf("%d bytes of %d for %d (%d) at %d, of a region of %d", n, len(b), i.Bytes, len(i.Data), i.At, size)
		}
	})
}
