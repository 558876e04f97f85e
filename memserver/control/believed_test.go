package control

import (
	"errors"
	"fmt"
	"testing"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestLostMemoryIsBelieved: of a server with copies only the copy that the view names may say that
// the memory is lost.
func TestLostMemoryIsBelieved(t *testing.T) {
	a, b := newCopy(t), newCopy(t)
	a.serves = true
	c := clientOf(t, a, b)
	a.incarnation = 8
	err := c.ready(1, soon)
	if !errors.Is(err, verbs.ErrDisconnected) || errors.Is(err, verbs.ErrLostMemory) {
		t.Errorf("one of two copies has another memory, and no view names it: %v", err)
	}
	only := newCopy(t)
	only.serves = true
	c = clientOf(t, only)
	only.incarnation = 8
	if err := c.ready(1, soon); !errors.Is(err, verbs.ErrLostMemory) {
		t.Errorf("a server without copies: %v", err)
	}
	named := newCopy(t)
	decide(3, named)
	c = clientOf(t, named)
	await(t, c, named)
	for c.server(1).called(t.Context()); ; <-time.After(time.Millisecond) {
		s := c.server(1)
		s.mu.Lock()
		heard := s.pod != ""
		s.mu.Unlock()
		if heard {
			break
		}
	}
	named.set(func() { named.incarnation = 8 })
	if err := c.ready(1, soon); !errors.Is(err, verbs.ErrLostMemory) {
		t.Errorf("the copy that the view names: %v", err)
	}
}

// TestEndlessViews: a copy with a new view for each question, of many addresses, is asked at a
// limited rate, and few addresses are taken.
func TestEndlessViews(t *testing.T) {
	a := newCopy(t)
	c := clientOf(t, a)
	many := []*copyServer{a}
	for n := range 100 {
		many = append(many, &copyServer{address: fmt.Sprintf("127.0.0.1:%d", n+1)})
	}
	a.view, a.serves = viewOf(1, many...), true
	a.view.Copies = append(a.view.Copies, &rpcv1.VolumeCopy{Control: "nonsense"})
	await(t, c, a)
	begun, asked := time.Now(), a.asked.Load()
	for n := uint64(2); a.asked.Load() < asked+5; n++ {
		a.set(func() { a.view = viewOf(n, many...) })
	}
	if took := time.Since(begun); took < 3*pauseLeast {
		t.Errorf("asked five times within %v", took)
	}
	s := c.server(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.copies) > 2*maxCopies {
		t.Errorf("%d addresses are known", len(s.copies))
	}
}

// TestApart: the end of a client of the same servers ends its own calls only.
func TestApart(t *testing.T) {
	a := newCopy(t)
	a.serves, a.hold = true, make(chan struct{})
	c := clientOf(t, a)
	apart := c.Apart()
	ended := make(chan error, 2)
	go func() { ended <- apart.ready(1, time.Hour) }()
	for a.called.Load() == 0 {
		<-time.After(time.Millisecond)
	}
	if err := apart.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("a call of the client that was closed: %v", err)
	}
	a.set(func() { a.hold = nil })
	await(t, c, a)
}
