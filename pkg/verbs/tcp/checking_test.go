package tcp

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/verbstest"
)

// gated executes calls that wait until the test lets them end.
type gated struct{ began, end chan struct{} }

// Call implements verbs.Executor.
func (g *gated) Call(verbs.Peer, verbs.Near, []byte, []byte) (int, error) {
	g.began <- struct{}{}
	<-g.end
	return 0, nil
}

// TestSettle: Settle waits for what was checked before, and not for a session that is gone.
func TestSettle(t *testing.T) {
	g := &gated{make(chan struct{}), make(chan struct{})}
	chunks, tokens := verbs.NewChunks(0, 1<<20, 4), new(verbstest.Tokens)
	s, err := NewServer(verbs.ServerOptions{Memory: verbstest.Memory(t, 4<<20, 4096), Admission: tokens, Executor: g,
		Reach: func(verbs.Peer) *verbs.Reach { return verbs.NewReach(chunks, 1) }})
	if err != nil {
		t.Fatal(err)
	}
	checked := s.(verbs.Checked)
	if err := checked.Settle(0); err != nil {
		t.Errorf("without sessions: %v", err)
	}
	call := newPoster(t, listen(t, s), tokens)
	done := make(chan error)
	go func() { done <- call(verbs.Request{Op: verbs.Call, Args: 8, Local: make([]byte, 64)}) }()
	<-g.began
	if err := checked.Settle(10 * time.Millisecond); !errors.Is(err, verbs.ErrTimeout) {
		t.Errorf("while a call is executed: %v", err)
	}
	settled := make(chan error)
	go func() { settled <- checked.Settle(time.Minute) }()
	g.end <- struct{}{}
	for _, c := range []chan error{done, settled} {
		if err := <-c; err != nil {
			t.Error(err)
		}
	}
	if err := checked.Settle(time.Minute); err != nil {
		t.Errorf("after the call: %v", err)
	}
}

// postBytes are so many that a WRITE of them takes some time.
const postBytes = 256 << 10

// newPoster connects and returns a function that posts one request of at most postBytes.
func newPoster(t testing.TB, address string, tokens *verbstest.Tokens) func(r verbs.Request) error {
	d := NewDevice()
	c, err := d.Connect(verbs.Target{Address: address, Token: tokens.Issue(verbs.Peer{Client: 1})}, time.Minute)
	if err != nil {
		t.Error(err)
		return func(verbs.Request) error { return err }
	}
	a, err := d.NewArena(postBytes)
	if err != nil {
		t.Error(err)
	}
	t.Cleanup(func() { c.Close(); a.Close(); d.Close() })
	qp, err := c.NewQP(a)
	if err != nil {
		t.Error(err)
	}
	local, err := a.Alloc(postBytes)
	if err != nil {
		t.Error(err)
	}
	return func(r verbs.Request) error {
		r.Local = local[:copy(local, r.Local)]
		return verbs.Post(qp, []verbs.Request{r})
	}
}

// TestNothingAfterSettle takes a chunk away from clients that write to it without end, settles, and
// zeroes it: none of their writes follows.
func TestNothingAfterSettle(t *testing.T) {
	const writers, rounds = 4, 200
	mem := verbstest.Memory(t, 1<<20, 4096)
	chunks, tokens := verbs.NewChunks(0, postBytes, 4), new(verbstest.Tokens)
	s, err := NewServer(verbs.ServerOptions{Memory: mem, Admission: tokens,
		Reach: func(verbs.Peer) *verbs.Reach { return verbs.NewReach(chunks, 1) }})
	if err != nil {
		t.Fatal(err)
	}
	address, checked := listen(t, s), s.(verbs.Checked)
	full := bytes.Repeat([]byte{99}, postBytes)
	var stop atomic.Bool
	var running sync.WaitGroup
	wrote := make(chan struct{}, writers)
	for range writers {
		running.Go(func() {
			for !stop.Load() {
				post := newPoster(t, address, tokens)
				var err error
				for err == nil && !stop.Load() {
					if err = post(verbs.Request{Op: verbs.Write, Local: full}); err == nil {
						select {
						case wrote <- struct{}{}:
						default:
						}
					}
				}
				// the end of the connection can overtake its reason
				if err != nil && !errors.Is(err, verbs.ErrOutOfRange) && !errors.Is(err, verbs.ErrDisconnected) {
					t.Error(err)
					return
				}
			}
		})
	}
	zero, chunk := make([]byte, postBytes), mem[0].Bytes[:postBytes]
	for range rounds {
		for len(wrote) > 0 { // of before
			<-wrote
		}
		chunks.Grant(0, 1)
		<-wrote
		chunks.Grant(0, 0)
		if err := checked.Settle(time.Minute); err != nil {
			t.Fatal(err)
		}
		clear(chunk)
		for range 20 { // some time for whoever would still write
			if err := checked.Settle(time.Minute); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(chunk, zero) {
				t.Fatal("a write took effect after its chunk was taken away and settled")
			}
		}
	}
	chunks.Grant(0, 1)
	stop.Store(true)
	running.Wait()
}
