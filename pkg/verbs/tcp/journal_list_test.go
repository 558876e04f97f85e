package tcp

import (
	"encoding/binary"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/internal/mapped"
	"github.com/dmindex/dmindex/pkg/verbs/verbstest"
)

// has is a link to a copy that has all at once.
type has struct{ sent verbs.Position }

// Send implements verbs.Link.
func (h *has) Send(b []byte) (int, error) {
	h.sent += verbs.Position(len(b))
	return len(b), nil
}

// Receive implements verbs.Link.
func (h *has) Receive() (verbs.Position, error) { return h.sent, nil }

// Close implements verbs.Link.
func (h *has) Close() error { return nil }

// newJournal is a journal with such a copy.
func newJournal(t testing.TB) *verbs.Journal {
	t.Helper()
	j := verbs.NewJournal(env.Real(), nil)
	f, err := j.Feed(func() error { return nil }, nil)
	if err == nil {
		err = errors.Join(f.Await(), f.Connect(new(has), 0))
	}
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// TestJournalAllocations: recording a list, and waiting for the copy, allocates nothing; neither
// does a list whose answer goes out in pieces.
func TestJournalAllocations(t *testing.T) {
	space, err := mapped.NewSpace(verbstest.Memory(t, 4<<20, 4096))
	if err != nil {
		t.Fatal(err)
	}
	j := newJournal(t)
	s := &session{space: space, journal: j, waiter: j.NewWaiter(), checked: true, out: make([]byte, 0, outBuffer)}
	frame := encodeList([]verbs.Request{
		{Op: verbs.Write, Remote: 100, Local: make([]byte, 300)}, {Op: verbs.FetchAdd, Remote: 8, Add: 1, Local: make([]byte, 8)},
		{Op: verbs.Read, Remote: 0, Local: make([]byte, 1024)}, {Op: verbs.FetchAdd, Region: verbs.RegionLocks, Add: 1, Local: make([]byte, 8)},
	}, 0, 1)
	h, err := decodeHeader(frame)
	if err != nil {
		t.Fatal(err)
	}
	part := request{Request: verbs.Request{Op: verbs.Write, Remote: 64, Local: make([]byte, 64)}, length: 64}
	if n := testing.AllocsPerRun(1000, func() {
		s.out = s.out[:0]
		if err := s.list(&h, frame); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.applyPart(&part, part.length, false); err != nil {
			t.Fatal(err)
		}
		if err := s.journal.Wait(s.waiter, s.need); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestJournalInPieces: a long list is recorded part by part, and what its pieces say is waited for.
func TestJournalInPieces(t *testing.T) {
	memory := verbstest.Memory(t, 4<<20, 4096)
	b, tokens := newBuffers(), new(verbstest.Tokens)
	b.frame, b.turn = patience, patience
	mirror := verbstest.NewCopy(env.Real(), memory[verbs.RegionData].Bytes)
	j := verbs.NewJournal(env.Real(), nil)
	mirror.Join(j)
	s, err := newServer(verbs.ServerOptions{Memory: memory, Admission: tokens, Journal: j}, b)
	if err != nil {
		t.Fatal(err)
	}
	address := listen(t, s)
	takeAll(t, b)
	longAnswers(t, patientConn(t, address, tokens))
	if err := j.Wait(nil, j.Last()); err != nil || mirror.Items() == 0 || !mirror.Equal(memory[verbs.RegionData].Bytes) {
		t.Errorf("after %d changes the copy is equal: %v, %v", mirror.Items(), mirror.Equal(memory[verbs.RegionData].Bytes), err)
	}
	space, err := mapped.NewSpace(memory)
	if err != nil {
		t.Fatal(err)
	}
	looks := &session{space: space, journal: j, checked: true}
	read := request{Request: verbs.Request{Op: verbs.Read, Remote: 1 << 20, Local: make([]byte, 4096)}, length: 4096}
	if _, _, err := looks.applyPart(&read, read.length, false); err != nil || looks.need != j.Seen(1<<20, 4096) || looks.need == 0 {
		t.Errorf("a piece needs %d, what it READ changed last at %d, %v", looks.need, j.Seen(1<<20, 4096), err)
	}
}

// TestStampBeforeChange: a READ beside a change that finds it finds its stamp.
func TestStampBeforeChange(t *testing.T) {
	changes := uint64(1 << 20)
	if testing.Short() { // as under the race detector, to which one is enough
		changes = 1 << 16
	}
	space, err := mapped.NewSpace(verbstest.Memory(t, 1<<20, 4096))
	if err != nil {
		t.Fatal(err)
	}
	j := newJournal(t)
	poster := func(op verbs.Op) func() (found uint64, need verbs.Position) {
		s := &session{space: space, journal: j, checked: true, out: make([]byte, 0, outBuffer)}
		frame := encodeList([]verbs.Request{{Op: op, Add: 1, Local: make([]byte, 8)}}, 0, 1)
		h, err := decodeHeader(frame)
		if err != nil {
			t.Fatal(err)
		}
		return func() (uint64, verbs.Position) {
			s.out, s.need = s.out[:0], 0
			if err := s.list(&h, frame); err != nil {
				t.Error(err)
			}
			return binary.LittleEndian.Uint64(s.out[headerSize:]), s.need
		}
	}
	add, read, over := poster(verbs.FetchAdd), poster(verbs.Read), make(chan struct{})
	go func() {
		defer close(over)
		for range changes {
			add()
		}
	}()
	for found := uint64(0); found < changes && !t.Failed(); {
		var need verbs.Position
		// one item for each change
		if found, need = read(); need < verbs.Position(found)*verbs.Position(verbs.ItemBytes(8)) {
			t.Errorf("a READ finds change %d, and needs %d", found, need)
		}
	}
	<-over
}

// TestSettleWithJournal: Settle waits for a list of a server with a journal, though nothing is
// checked there.
func TestSettleWithJournal(t *testing.T) {
	memory := verbstest.Memory(t, 4<<20, 4096)
	g, tokens := &gated{make(chan struct{}), make(chan struct{})}, new(verbstest.Tokens)
	s, err := NewServer(verbs.ServerOptions{Memory: memory, Admission: tokens, Executor: g, Journal: newJournal(t)})
	if err != nil {
		t.Fatal(err)
	}
	call := newPoster(t, listen(t, s), tokens)
	done := make(chan error)
	go func() { done <- call(verbs.Request{Op: verbs.Call, Args: 8, Local: make([]byte, 64)}) }()
	<-g.began
	if err := s.(verbs.Checked).Settle(10 * time.Millisecond); !errors.Is(err, verbs.ErrTimeout) {
		t.Errorf("while a call is executed: %v", err)
	}
	g.end <- struct{}{}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := s.(verbs.Checked).Settle(time.Minute); err != nil {
		t.Errorf("after the call: %v", err)
	}
}

// TestPanicBreaksJournal: a panic between a record and its change gives the order up, and no answer
// goes out any more that needs what the copy is not known to have.
func TestPanicBreaksJournal(t *testing.T) {
	j := newJournal(t)
	s := &session{journal: j}
	list := []request{{Request: verbs.Request{Op: verbs.Write, Local: make([]byte, 8)}, length: 8}}
	if err := s.begin(list); err != nil {
		t.Fatal(err)
	}
	p := j.Record(0, list[0].Local)
	s.leaveOrder()
	if err := j.Begin(nil, 0); err != nil { // it would wait for ever if the order were not given up
		t.Fatal(err)
	}
	j.Done()
	if err := j.Wait(nil, p); err == nil {
		t.Error("the copy is waited for")
	}
}

// TestModeOfAList: a list that went by an old mode, and whose check has not begun, begins anew: so
// nothing goes by that mode once Settle has returned. A server that is halted executes nothing.
func TestModeOfAList(t *testing.T) {
	space, err := mapped.NewSpace(verbstest.Memory(t, 1<<20, 4096))
	if err != nil {
		t.Fatal(err)
	}
	j := verbs.NewJournal(env.Real(), nil)
	s := &session{space: space, journal: j, waiter: j.NewWaiter(), checked: true, out: make([]byte, 0, outBuffer)}
	frame := encodeList([]verbs.Request{{Op: verbs.FetchAdd, Add: 1, Local: make([]byte, 8)}}, 0, 1)
	h, err := decodeHeader(frame)
	if err != nil {
		t.Fatal(err)
	}
	add := func() error {
		s.out = s.out[:0]
		return s.list(&h, frame)
	}
	word := func() uint64 {
		var b [8]byte
		if err := space.Read(verbs.RegionData, 0, b[:]); err != nil {
			t.Error(err)
		}
		return binary.NativeEndian.Uint64(b[:])
	}
	checks := checking{all: map[*session]struct{}{s: {}}}
	settle := func() error { return checks.Settle(time.Minute) }
	f, err := j.Feed(settle, nil)
	if err != nil {
		t.Fatal(err)
	}
	// A list and a change of the mode wait for the order, and either gets it first.
	for range 200 {
		if err := j.Begin(nil, 0); err != nil {
			t.Fatal(err)
		}
		halted, listed := make(chan uint64, 1), make(chan error, 1)
		go func() { listed <- add() }()
		go func() {
			j.Halt(true)
			if err := settle(); err != nil {
				t.Error(err)
			}
			halted <- word()
		}()
		for range 20 {
			runtime.Gosched()
		}
		j.Done()
		then, err := <-halted, <-listed
		if err != nil && !errors.Is(err, verbs.ErrHalted) {
			t.Fatal(err)
		}
		if now := word(); now != then {
			t.Fatalf("a word is %d once no list is executed any more, and %d later", then, now)
		}
		j.Halt(false)
	}
	f.Drop()
	j.Halt(true)
	if err := add(); !errors.Is(err, verbs.ErrHalted) {
		t.Errorf("a server that is halted: %v", err)
	}
	j.Halt(false)
	if err := add(); err != nil {
		t.Error(err)
	}
}
