package verbs_test

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/verbstest"
)

// noticed is how long a wait is watched that is not to end. Under load a wrong end may come later,
// and is missed then.
const noticed = 5 * time.Millisecond

// waits reports whether a wait goes on, and returns what it ends with.
func waits(wait func() error) (goesOn bool, over chan error) {
	over = make(chan error, 1)
	go func() { over <- wait() }()
	select {
	case err := <-over:
		over <- err
		return false, over
	case <-time.After(noticed):
		return true, over
	}
}

// TestNothingRecorded: while a journal has no feed its server's lists make no item, find room
// always, and are answered at once.
func TestNothingRecorded(t *testing.T) {
	j := verbs.NewJournal(env.Real(), nil)
	if err := j.Begin(nil, 3*verbs.JournalWindow); err != nil {
		t.Fatal(err)
	}
	p := max(j.Record(0, []byte("x")), j.Zero(8, 8), j.Splice(0, 0, nil))
	j.Done()
	if p != 0 || j.Last() != 0 || j.Ledger() != 0 || j.Seen(0, 16) != 0 || !j.Ready(p) || j.Mode().Records() {
		t.Errorf("an item at %d, the last one at %d", p, j.Last())
	}
}

// TestTwoFeeds: answers and room wait for the slower of two copies that are waited for, and what
// both lack is sent to both at once. When one is dropped nothing waits for it.
func TestTwoFeeds(t *testing.T) {
	memory := make([]byte, journalRegion)
	j := verbs.NewJournal(env.Real(), nil)
	for fast := range 2 {
		a, b := verbstest.NewCopy(env.Real(), memory), verbstest.NewCopy(env.Real(), memory)
		copies, feeds := []*verbstest.Copy{a, b}, []*verbs.Feed{a.Join(j), b.Join(j)}
		third, err := j.Feed(func() error { return nil }, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := j.Feed(func() error { return nil }, nil); !errors.Is(err, verbs.ErrTooMany) {
			t.Errorf("a fourth feed: %v", err)
		}
		third.Drop()
		slow := copies[1-fast]
		slow.Hold(true)
		p := change(t, j, memory, 64, []byte("both"), 0)
		goesOn, over := waits(func() error { return j.Wait(nil, p) })
		if !goesOn {
			t.Error("an answer goes out that a copy lacks")
		}
		if err := feeds[fast].Wait(nil, p); err != nil || !copies[fast].Equal(memory) {
			t.Errorf("the fast copy: %v", err)
		}
		for room := verbs.JournalWindow - verbs.ItemBytes(4); room >= verbs.ItemBytes(verbs.MaxTransfer); room -= verbs.ItemBytes(verbs.MaxTransfer) {
			change(t, j, memory, 0, make([]byte, verbs.MaxTransfer), 0)
		}
		goesOn, began := waits(func() error { return j.Begin(nil, verbs.ItemBytes(verbs.MaxTransfer)) })
		if !goesOn {
			t.Error("a change begins for which the slow copy has no room")
		}
		slow.Hold(false)
		if err := errors.Join(<-over, <-began); err != nil {
			t.Fatal(err)
		}
		j.Done()
		slow.Hold(true)
		p = change(t, j, memory, 64, []byte("one"), 0)
		_, over = waits(func() error { return j.Wait(nil, p) })
		feeds[1-fast].Drop()
		if err := <-over; err != nil || !copies[fast].Equal(memory) {
			t.Errorf("after the slow copy was dropped: %v", err)
		}
		feeds[fast].Drop()
	}
}

// stuck is a link to a copy that takes nothing.
type stuck struct{ closed atomic.Bool }

// Send implements verbs.Link.
func (s *stuck) Send([]byte) (int, error) { return 0, nil }

// Receive implements verbs.Link.
func (s *stuck) Receive() (verbs.Position, error) {
	if s.closed.Load() {
		return 0, verbs.ErrClosed
	}
	return 0, nil
}

// Close implements verbs.Link.
func (s *stuck) Close() error {
	s.closed.Store(true)
	return nil
}

// TestSlowJoin: a copy that nobody waits for, and that takes nothing, holds up nothing, and is
// given up when the window does not have what it lacks any more.
func TestSlowJoin(t *testing.T) {
	j, c, memory := newJournal()
	f, err := j.Feed(func() error { return nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	link := new(stuck)
	if err := f.Connect(link, f.Start()); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, verbs.MaxTransfer)
	for n := 0; f.Err() == nil; n++ {
		if n > 20 {
			t.Fatal("it is never given up")
		}
		if err := j.Wait(nil, change(t, j, memory, 0, data, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if !errors.Is(f.Err(), verbs.ErrGone) || !link.closed.Load() || f.Connected() {
		t.Errorf("%v", f.Err())
	}
	if err := f.Await(); !errors.Is(err, verbs.ErrGone) {
		t.Errorf("answers are to wait for it: %v", err)
	}
	if err := f.Connect(new(stuck), f.Start()); !errors.Is(err, verbs.ErrGone) {
		t.Errorf("it is connected: %v", err)
	}
	f.Drop()
	if err := j.Wait(nil, change(t, j, memory, 0, []byte("on"), 0)); err != nil || !c.Equal(memory) {
		t.Errorf("the other copy: %v", err)
	}
}

// TestReconnect: a copy goes on from where it is, and not from elsewhere.
func TestReconnect(t *testing.T) {
	gone := errors.New("gone")
	for name, c := range map[string]struct {
		from func(f *verbs.Feed, last verbs.Position) verbs.Position
		want error
	}{
		"from where it is known to be": {func(f *verbs.Feed, _ verbs.Position) verbs.Position { return f.Applied() }, nil},
		"from where it is":             {func(_ *verbs.Feed, last verbs.Position) verbs.Position { return last }, nil},
		"from before":                  {func(f *verbs.Feed, _ verbs.Position) verbs.Position { return f.Applied() - 8 }, verbs.ErrDisconnected},
		"from beyond":                  {func(_ *verbs.Feed, last verbs.Position) verbs.Position { return last + 8 }, verbs.ErrDisconnected},
	} {
		t.Run(name, func(t *testing.T) {
			memory := make([]byte, journalRegion)
			j, first := verbs.NewJournal(env.Real(), nil), verbstest.NewCopy(env.Real(), memory)
			f := first.Join(j)
			if err := j.Wait(nil, change(t, j, memory, 0, []byte("first"), 0)); err != nil {
				t.Fatal(err)
			}
			first.Hold(true)
			last := change(t, j, memory, 64, []byte("second"), 0)
			_, over := waits(func() error { return j.Wait(nil, last) })
			for first.Items() < 2 { // it has been sent
				runtime.Gosched()
			}
			first.Break(gone)
			for f.Connected() {
				runtime.Gosched()
			}
			if err := f.Follow(nil, last, time.Minute); !errors.Is(err, gone) {
				t.Errorf("its owner hears %v", err)
			}
			next, from := verbstest.NewCopy(env.Real(), memory), c.from(f, last)
			next.From(from)
			if err := f.Connect(next, from); !errors.Is(err, c.want) {
				t.Fatal(err)
			}
			if err := <-over; !errors.Is(err, c.want) {
				t.Errorf("what waits: %v", err)
			}
			if c.want == nil && f.Applied() != last {
				t.Errorf("it has %d of %d", f.Applied(), last)
			}
		})
	}
}

// TestMayNotAnswer: no answer goes out while the server may not answer, also one that needs
// nothing, nor with no copy at all.
func TestMayNotAnswer(t *testing.T) {
	var may atomic.Bool
	j := verbs.NewJournal(env.Real(), func(verbs.Position) bool { return may.Load() })
	goesOn, over := waits(func() error { return j.Wait(nil, 0) })
	if !goesOn {
		t.Error("it is answered")
	}
	may.Store(true)
	if err := <-over; err != nil {
		t.Error(err)
	}
	may.Store(false)
	w := j.NewWaiter()
	goesOn, over = waits(func() error { return j.Wait(w, 0) })
	w.Cut()
	if err := <-over; !goesOn || !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("who waits and is cut: %v", err)
	}
}

// TestLedgerOfAJoin: a copy that joins has the ledger once it got all of it, and passes over what
// changed before; one that has it passes over the parts.
func TestLedgerOfAJoin(t *testing.T) {
	has, joins := verbs.Replica{Known: true, Ledger: []byte("old")}, verbs.Replica{}
	for _, i := range []verbs.Item{
		{Kind: verbs.ItemLedgerPart, Data: []byte("begun before")},
		{Kind: verbs.ItemLedgerPart, Data: []byte("new")}, {Kind: verbs.ItemLedger, Head: 3, Data: []byte("er")}, {Kind: verbs.ItemLedgerPart, At: 3, Data: []byte("est")},
		{Kind: verbs.ItemLedgerWhole, Head: 6, Data: []byte("!")}, {Kind: verbs.ItemLedger, Tail: 0, Head: 1, Data: []byte("ow")},
	} {
		for _, r := range []*verbs.Replica{&has, &joins} {
			if err := r.Apply(&i); err != nil {
				t.Fatal(err)
			}
		}
		if joins.Known != (string(joins.Ledger) == "newest!" || string(joins.Ledger) == "now") {
			t.Errorf("it has %q: %v", joins.Ledger, joins.Known)
		}
	}
	if string(has.Ledger) != "oow" || string(joins.Ledger) != "now" {
		t.Errorf("%q, %q", has.Ledger, joins.Ledger)
	}
	if err := new(verbs.Replica).Apply(&verbs.Item{Kind: verbs.ItemLedgerPart, At: 1}); !errors.Is(err, verbs.ErrMalformed) {
		t.Errorf("a part without what is before it: %v", err)
	}
}

// TestSum: a sum that is not that of the memory is an error.
func TestSum(t *testing.T) {
	r := verbs.Replica{Memory: []byte("the memory of a copy"), Known: true}
	i := verbs.Item{Kind: verbs.ItemSum, At: 4, Bytes: 6, CRC: verbs.Sum([]byte("memory"))}
	if err := r.Apply(&i); err != nil {
		t.Error(err)
	}
	r.Memory[9]++
	if err := r.Apply(&i); !errors.Is(err, verbs.ErrDiffers) {
		t.Error(err)
	}
	if r.Known = false; r.Apply(&i) != nil {
		t.Error("a copy that joins, and has a part of the memory, is said to differ")
	}
}
