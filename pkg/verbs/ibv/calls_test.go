//go:build ibv

package ibv_test

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/ibv"
)

// echo answers with the request.
type echo struct{}

func (echo) Call(_ verbs.Peer, _ verbs.Near, request, answer []byte) (int, error) {
	return copy(answer, request), nil
}

// callOn makes a call of a word and returns what became of it.
func callOn(t *testing.T, q verbs.QP, b []byte, word uint64) error {
	t.Helper()
	binary.LittleEndian.PutUint64(b, word)
	list := []verbs.Request{{Op: verbs.Call, Local: b[:verbs.CallBytes(8)], Args: 8}}
	if err := verbs.Post(q, list); err != nil {
		return err
	}
	got, err := list[0].Answer()
	if err == nil && (len(got) != 8 || binary.LittleEndian.Uint64(got) != word) {
		t.Errorf("the echo of %d is %v", word, got)
	}
	return err
}

// TestCallersAreBounded: the server gives so many queue pairs memory for calls; another one does
// its work with one-sided requests, until one of those is closed. Those of a client that goes
// without a word give theirs back, too.
func TestCallersAreBounded(t *testing.T) {
	defer ibv.SetCallers(ibv.SetCallers(2))
	w := newWorldWith(t, options, echo{})
	c := w.connect(1)
	var qps []verbs.QP
	_, b := w.qp(c)
	for i := range 3 {
		q, _ := w.qp(c)
		qps = append(qps, q)
		if err := callOn(t, q, b, uint64(i)); i < 2 && err != nil || i == 2 && !errors.Is(err, verbs.ErrBusy) {
			t.Errorf("call of queue pair %d: %v", i, err)
		}
	}
	if err := verbs.Post(qps[2], []verbs.Request{{Op: verbs.Read, Local: b[:8]}}); err != nil {
		t.Errorf("a READ of a queue pair that takes no calls: %v", err)
	}
	if n := ibv.CallersOf(w.server); n != 2 {
		t.Errorf("%d queue pairs take calls", n)
	}
	if err := callOn(t, qps[0], b, 77); err != nil {
		t.Errorf("beside it: %v", err)
	}
	qps[0].Close()
	for i := range 20 { // each takes the place of the one before
		q, _ := w.qp(c)
		if err := callOn(t, q, b, uint64(i)); err != nil {
			t.Fatalf("queue pair %d in a closed one's place: %v", i, err)
		}
		q.Close()
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if n := ibv.CallersOf(w.server); n != 0 {
		t.Errorf("%d queue pairs take calls behind the client", n)
	}
	if err := w.server.Fence(func(verbs.Peer) bool { return true }, soon); err != nil {
		t.Fatal(err)
	}
}

// TestCallsAndListsTakeTurns: calls and lists of one queue pair, and calls that follow each other
// at once.
func TestCallsAndListsTakeTurns(t *testing.T) {
	w := newWorldWith(t, options, echo{})
	q, b := w.qp(w.connect(1))
	for i := range uint64(300) {
		if err := callOn(t, q, b, i); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
		if i%3 == 0 {
			continue
		}
		binary.LittleEndian.PutUint64(b[64:], i)
		if err := verbs.Post(q, []verbs.Request{{Op: verbs.Write, Remote: 8, Local: b[64:72]}, {Op: verbs.Read, Remote: 8, Local: b[128:136]}}); err != nil {
			t.Fatal(err)
		}
		if got := binary.LittleEndian.Uint64(b[128:]); got != i {
			t.Fatalf("read %d, written was %d", got, i)
		}
	}
}

// TestCallLimit: a call that takes longer than its limit ends its queue pair, and a new one of the
// connection works.
func TestCallLimit(t *testing.T) {
	stuck := newSlow()
	w := newWorldWith(t, options, stuck)
	c := w.connect(1)
	q, b := w.qp(c)
	q.SetLimit(50 * time.Millisecond)
	err := callOn(t, q, b, 1)
	close(stuck.end)
	if !errors.Is(err, verbs.ErrTimeout) {
		t.Errorf("a call that is not answered: %v", err)
	}
	q.Close()
	again, b := w.qp(c)
	if err := callOn(t, again, b, 2); err != nil {
		t.Errorf("a call of the next queue pair: %v", err)
	}
}

// slow is an echo that waits until its end is closed.
type slow struct{ began, end chan struct{} }

func newSlow() slow { return slow{make(chan struct{}, 16), make(chan struct{})} }

func (s slow) Call(_ verbs.Peer, _ verbs.Near, request, answer []byte) (int, error) {
	s.began <- struct{}{}
	<-s.end
	return copy(answer, request), nil
}

// TestFenceWaitsForACall: a client is not fenced before its call has ended, which has the memory of
// its queue pair until then.
func TestFenceWaitsForACall(t *testing.T) {
	stuck := newSlow()
	w := newWorldWith(t, options, stuck)
	q, b := w.qp(w.connect(1))
	ended := make(chan error)
	go func() { ended <- callOn(t, q, b, 1) }()
	<-stuck.began
	all := func(verbs.Peer) bool { return true }
	if err := w.server.Fence(all, 300*time.Millisecond); !errors.Is(err, verbs.ErrTimeout) {
		t.Errorf("a client is fenced during its call: %v", err)
	}
	if err := <-ended; !errors.Is(err, verbs.ErrDisconnected) {
		t.Errorf("its call: %v", err)
	}
	close(stuck.end)
	if err := w.server.Fence(all, soon); err != nil {
		t.Error(err)
	}
	if n := ibv.CallersOf(w.server); n != 0 {
		t.Errorf("%d queue pairs take calls", n)
	}
}

// TestCallsAllocateNothing, on either side.
func TestCallsAllocateNothing(t *testing.T) {
	w := newWorldWith(t, options, echo{})
	q, b := w.qp(w.connect(1))
	list := []verbs.Request{{Op: verbs.Call, Local: b[:256], Args: 64}}
	if err := verbs.Post(q, list); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(300, func() {
		if err := verbs.Post(q, list); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a call", n)
	}
}
