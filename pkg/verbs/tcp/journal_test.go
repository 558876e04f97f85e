package tcp_test

import (
	"errors"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/shm"
	"github.com/dmindex/dmindex/pkg/verbs/tcp"
	"github.com/dmindex/dmindex/pkg/verbs/verbstest"
)

// mirroredServer checks at its end that the copy is equal.
type mirroredServer struct {
	verbs.Server
	t       testing.TB
	journal *verbs.Journal
	copy    *verbstest.Copy
	memory  []byte
}

func (s *mirroredServer) Close() error {
	err := s.Server.Close()
	if e := s.journal.Wait(nil, s.journal.Last()); e != nil {
		s.t.Error(e)
	}
	if !s.copy.Equal(s.memory) {
		s.t.Error("the copy is not equal")
	}
	return err
}

func startMirrored(t testing.TB, o verbs.ServerOptions, unrecorded ...verbs.Span) (address string, s *mirroredServer, err error) {
	s = &mirroredServer{t: t}
	for _, m := range o.Memory {
		if m.ID == verbs.RegionData {
			s.memory, s.copy = m.Bytes, verbstest.NewCopy(env.Real(), m.Bytes)
		}
	}
	s.journal = verbs.NewJournal(env.Real(), nil, unrecorded...)
	s.copy.Join(s.journal)
	o.Journal = s.journal
	address, s.Server, err = start("", o)
	return address, s, err
}

// TestConformanceMirrored: a server whose memory has a copy is as any other, and the copy is equal.
func TestConformanceMirrored(t *testing.T) {
	mirrored := verbstest.Harness{Device: tcp.NewDevice, Rounds: 200, Start: func(_ string, o verbs.ServerOptions) (string, verbs.Server, error) {
		return startMirrored(t, o)
	}}
	verbstest.Run(t, mirrored)
}

// reads executes calls: they READ a word, wherever the first byte of their request says, in KiB.
type reads struct{}

// Call implements verbs.Executor.
func (reads) Call(_ verbs.Peer, near verbs.Near, request, answer []byte) (int, error) {
	return 8, near.Read(verbs.RegionData, uint64(request[0])<<10, answer[:8])
}

// mirroredClients is a mirrored server, and a function that connects a client of it.
func mirroredClients(t *testing.T, unrecorded ...verbs.Span) (*mirroredServer, func(client uint16) (verbs.QP, []byte)) {
	t.Helper()
	tokens := new(verbstest.Tokens)
	o := verbs.ServerOptions{Memory: verbstest.Memory(t, 4<<20, 4096), Admission: tokens, Executor: reads{}}
	address, s, err := startMirrored(t, o, unrecorded...)
	if err != nil {
		t.Fatal(err)
	}
	d := tcp.NewDevice()
	return s, func(client uint16) (verbs.QP, []byte) {
		t.Helper()
		c, err := d.Connect(verbs.Target{Address: address, Token: tokens.Issue(verbs.Peer{Client: client})}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		a, err := d.NewArena(4096)
		if err != nil {
			t.Fatal(err)
		}
		q, err := c.NewQP(a)
		if err != nil {
			t.Fatal(err)
		}
		b, err := a.Alloc(16)
		if err != nil {
			t.Fatal(err)
		}
		return q, b[:8]
	}
}

// TestAnswersWaitForTheCopy: an answer goes out when the copy has what it depends on. One that
// depends on nothing that changed waits for nothing, and so does one of what is not recorded.
func TestAnswersWaitForTheCopy(t *testing.T) {
	const at, elsewhere, unrecorded = 4096, 1 << 20, 64 << 10
	s, connect := mirroredClients(t, verbs.Span{First: unrecorded, End: unrecorded + 4096})
	defer s.Close()
	for _, c := range []struct {
		name  string
		r     verbs.Request // asked for behind the change, by another client
		waits bool
	}{
		{"READ of the change", verbs.Request{Op: verbs.Read, Remote: at}, true},
		{"swap that finds it", verbs.Request{Op: verbs.CompareSwap, Remote: at, Compare: 1, Swap: 2}, true},
		{"WRITE elsewhere", verbs.Request{Op: verbs.Write, Remote: elsewhere + 4096}, true},
		{"call that READs it", verbs.Request{Op: verbs.Call, Args: 1}, true},
		{"READ of other memory", verbs.Request{Op: verbs.Read, Remote: elsewhere}, false},
		{"swap that finds other memory", verbs.Request{Op: verbs.CompareSwap, Remote: elsewhere, Compare: 1, Swap: 2}, false},
		{"atomic on a lock", verbs.Request{Op: verbs.FetchAdd, Region: verbs.RegionLocks, Add: 1}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			changes, buf := connect(1)
			looks, look := connect(2)
			if c.r.Local = look; c.r.Op == verbs.Call {
				c.r.Local, look[0] = look[:16], at>>10
			}
			s.copy.Hold(true)
			before := s.journal.Last()
			if err := changes.Start([]verbs.Request{{Op: verbs.FetchAdd, Remote: at, Add: 7, Local: buf}}); err != nil {
				t.Fatal(err)
			}
			for s.journal.Last() == before { // until it has taken effect
				changes.Poll(time.Millisecond)
			}
			if err := looks.Start([]verbs.Request{c.r}); err != nil {
				t.Fatal(err)
			}
			limit := time.Minute
			if c.waits {
				limit = 20 * time.Millisecond
			}
			if answered := looks.Poll(limit); answered == c.waits {
				t.Errorf("it is answered: %v", answered)
			}
			if changes.Poll(0) {
				t.Error("the change is answered")
			}
			s.copy.Hold(false)
			for _, q := range []verbs.QP{changes, looks} {
				if err := q.Wait(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestUnrecordedTakesNoOrder: lists of READs, and of changes that are not recorded, are executed
// and answered while somebody else has the order, and make no item.
func TestUnrecordedTakesNoOrder(t *testing.T) {
	const unrecorded = 64 << 10
	s, connect := mirroredClients(t, verbs.Span{First: unrecorded, End: unrecorded + 4096})
	defer s.Server.Close() // the copy lacks what is not recorded
	q, b := connect(1)
	waits, w := connect(2)
	if err := s.journal.Begin(nil, 0); err != nil {
		t.Fatal(err)
	}
	if err := waits.Start([]verbs.Request{{Op: verbs.Write, Remote: unrecorded - 8, Local: w}}); err != nil {
		t.Fatal(err)
	}
	if err := verbs.Post(q, []verbs.Request{
		{Op: verbs.Write, Remote: unrecorded, Local: b}, {Op: verbs.FetchAdd, Region: verbs.RegionLocks, Add: 1, Local: b},
		{Op: verbs.Read, Remote: unrecorded, Local: b}, {Op: verbs.Read, Remote: 0, Local: b},
	}); err != nil {
		t.Fatal(err)
	}
	if waits.Poll(0) || s.journal.Last() != 0 {
		t.Errorf("a WRITE took the order of another one; the journal ends at %d", s.journal.Last())
	}
	s.journal.Done()
	if err := waits.Wait(); err != nil || s.copy.Items() != 1 {
		t.Errorf("%d items, %v", s.copy.Items(), err)
	}
}

// TestServersOwnAtomics: what the server's process swaps is in the copy, too.
func TestServersOwnAtomics(t *testing.T) {
	s, connect := mirroredClients(t)
	defer s.Close()
	q, b := connect(1)
	own := s.Server.(verbs.LocalAtomics)
	for _, c := range []struct {
		region        verbs.RegionID
		compare, swap uint64
		old           uint64
		items         int
	}{
		{verbs.RegionData, 0, 5, 0, 1},
		{verbs.RegionData, 0, 6, 5, 1}, // it changes nothing
		{verbs.RegionData, 5, 7, 5, 2},
		{verbs.RegionLocks, 0, 7, 0, 2}, // not recorded
	} {
		old, err := own.CompareSwap(c.region, 16, c.compare, c.swap)
		if err != nil || old != c.old {
			t.Errorf("%+v: found %d, %v", c, old, err)
		}
		if err := s.journal.Wait(nil, s.journal.Last()); err != nil || s.copy.Items() != c.items {
			t.Errorf("%+v: %d items, %v", c, s.copy.Items(), err)
		}
	}
	if err := verbs.Post(q, []verbs.Request{{Op: verbs.Read, Remote: 16, Local: b}}); err != nil || b[0] != 7 {
		t.Errorf("a client reads %d, %v", b[0], err)
	}
	words := make([]uint64, 3)
	if err := own.(verbs.LocalReads).ReadLocal(verbs.RegionLocks, 8, words); err != nil || words[0] != 0 || words[1] != 7 || words[2] != 0 {
		t.Errorf("locks are %v, %v", words, err)
	}
	for _, at := range []uint64{4, 4 << 20, 1<<64 - 8} {
		if _, err := own.CompareSwap(verbs.RegionData, at, 0, 1); !errors.Is(err, verbs.ErrOutOfRange) {
			t.Errorf("swap at %#x: %v", at, err)
		}
		if err := own.(verbs.LocalReads).ReadLocal(verbs.RegionData, at, words); !errors.Is(err, verbs.ErrOutOfRange) {
			t.Errorf("words at %#x: %v", at, err)
		}
	}
}

// TestLostCopy: without its copy a server answers nothing that depends on what the copy may lack,
// and makes no change any more.
func TestLostCopy(t *testing.T) {
	s, connect := mirroredClients(t)
	defer s.Server.Close()
	q, b := connect(1)
	other, look := connect(2)
	late, c := connect(3)
	if err := verbs.Post(q, []verbs.Request{{Op: verbs.Write, Remote: 8, Local: b}}); err != nil {
		t.Fatal(err)
	}
	s.journal.Break(errors.New("gone"))
	if err := verbs.Post(q, []verbs.Request{{Op: verbs.Write, Remote: 4096, Local: b}}); err == nil {
		t.Error("a WRITE is answered that the copy may lack")
	}
	if err := verbs.Post(other, []verbs.Request{{Op: verbs.Read, Remote: 8, Local: look}}); err != nil {
		t.Errorf("a READ of what the copy has: %v", err)
	}
	if err := verbs.Post(other, []verbs.Request{{Op: verbs.Read, Remote: 4096, Local: look}}); err == nil {
		t.Error("a READ is answered of what the copy may lack")
	}
	if err := verbs.Post(late, []verbs.Request{{Op: verbs.Write, Remote: 64, Local: c}}); err == nil {
		t.Error("a later WRITE is answered")
	}
}

// TestAnswered: what was executed and waits for the copy is not answered yet.
func TestAnswered(t *testing.T) {
	s, connect := mirroredClients(t)
	defer s.Close()
	q, b := connect(1)
	s.copy.Hold(true)
	if err := q.Start([]verbs.Request{{Op: verbs.Write, Local: b}}); err != nil {
		t.Fatal(err)
	}
	for s.journal.Last() == 0 {
		q.Poll(time.Millisecond)
	}
	answering := s.Server.(verbs.Answering)
	if err := answering.Answered(5 * time.Millisecond); !errors.Is(err, verbs.ErrTimeout) {
		t.Errorf("while the copy is silent: %v", err)
	}
	s.copy.Hold(false)
	if err := answering.Answered(time.Minute); err != nil {
		t.Error(err)
	}
	if err := q.Wait(); err != nil {
		t.Error(err)
	}
}

// TestCutWhileWaiting: sessions that wait for a copy that is silent, before an answer and for room,
// end soon when they are cut. So does one that may not answer.
func TestCutWhileWaiting(t *testing.T) {
	s, connect := mirroredClients(t)
	defer s.Server.Close()
	s.copy.Hold(true)
	before := s.journal.Last()
	for client := range uint16(4) {
		q, b := connect(client + 1)
		if err := q.Start([]verbs.Request{{Op: verbs.Write, Remote: 64 * uint64(client), Local: b}}); err != nil {
			t.Fatal(err)
		}
		for before += verbs.Position(verbs.ItemBytes(8)); s.journal.Last() != before; {
			q.Poll(time.Millisecond)
		}
	}
	full := make([]byte, verbs.MaxTransfer)
	for room := verbs.JournalWindow - int(before); room > 0; {
		n := min(room, verbs.ItemBytes(len(full)))
		if err := s.journal.Begin(nil, n); err != nil {
			t.Fatal(err)
		}
		s.journal.Record(1<<20, full[:n-verbs.ItemHead])
		s.journal.Done()
		room -= n
	}
	q, b := connect(5)
	if err := q.Start([]verbs.Request{{Op: verbs.Write, Remote: 64, Local: b}}); err != nil || q.Poll(time.Millisecond) {
		t.Fatal(err)
	}
	begun := time.Now()
	if n := s.Disconnect(func(p verbs.Peer) bool { return p.Client != 0 }); n != 5 {
		t.Errorf("%d sessions were cut", n)
	}
	if took := time.Since(begun); took > verbs.WaitLimit/2 {
		t.Errorf("sessions that wait for the copy were cut within %v", took)
	}
}

// TestNoJournal: a provider whose clients reach the memory by themselves refuses a journal.
func TestNoJournal(t *testing.T) {
	o := verbs.ServerOptions{Memory: verbstest.Memory(t, 1<<20, 4096), Admission: new(verbstest.Tokens)}
	o.Journal = verbs.NewJournal(env.Real(), nil)
	if _, err := shm.NewServer(o); !errors.Is(err, verbs.ErrUnsupported) {
		t.Error(err)
	}
}
