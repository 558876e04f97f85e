package verbs

import (
	"errors"
	"testing"
)

// waiting is an executor whose calls end when they are told to.
type waiting struct{ began, end chan struct{} }

func (w waiting) Call(Peer, Near, []byte, []byte) (int, error) {
	w.began <- struct{}{}
	<-w.end
	return 3, nil
}

// TestCallersAreFew: a call more than there are threads is refused at once, and nothing of it is
// executed.
func TestCallersAreFew(t *testing.T) {
	w := waiting{make(chan struct{}), make(chan struct{})}
	c := NewCallers(ServerOptions{Executor: w, CallThreads: 2})
	got := make(chan CallStatus)
	for range 2 {
		go func() {
			status, _ := c.Call(Peer{}, nil, nil, make([]byte, 8))
			got <- status
		}()
		<-w.began
	}
	for range 3 {
		if status, n := c.Call(Peer{}, nil, nil, make([]byte, 8)); status != CallBusy || n != 0 {
			t.Fatalf("a third call at once: status %d, %d bytes", status, n)
		}
	}
	for range 2 {
		w.end <- struct{}{}
		if status := <-got; status != CallDone {
			t.Fatalf("status %d of a call that had a thread", status)
		}
	}
	go func() { <-w.began; w.end <- struct{}{} }()
	if status, n := c.Call(Peer{}, nil, nil, make([]byte, 8)); status != CallDone || n != 3 {
		t.Fatalf("a call after the others have ended: status %d, %d bytes", status, n)
	}
	if NewCallers(ServerOptions{}).Any() {
		t.Fatal("calls without an executor")
	}
}

func TestAnswer(t *testing.T) {
	r := Request{Op: Call, Local: make([]byte, CallBytes(5))}
	copy(r.AnswerRoom(), "abcde")
	for _, c := range []struct {
		status CallStatus
		n      int
		want   string
		err    error
	}{
		{CallDone, 5, "abcde", nil}, {CallDone, 0, "", nil}, {CallBusy, 0, "", ErrBusy}, {CallFailed, 0, "", ErrCall},
		{CallDone, 6, "", ErrCall}, {CallDone, 1<<32 - 1, "", ErrCall}, {CallStatus(77), 2, "", ErrCall},
	} {
		r.SetAnswer(c.status, c.n)
		if got, err := r.Answer(); string(got) != c.want || !errors.Is(err, c.err) {
			t.Errorf("status %d with %d bytes: %q, %v; want %q, %v", c.status, c.n, got, err, c.want, c.err)
		}
	}
}
