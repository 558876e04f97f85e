package control

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// TestStaleAddress: the address of a pod that is gone leads to the new primary for a while, and the
// view is heard there first. When it does not lead there any more the primary is called at its own.
func TestStaleAddress(t *testing.T) {
	a, b := newCopy(t), newCopy(t)
	stale, end := leadsTo(t, b)
	decide(1, a)
	b.set(func() { b.view = viewOf(1, a) })
	c := clientOf(t, a, stale)
	b.incarnation = 7
	await(t, c, a)
	for b.asked.Load() == 0 {
		<-time.After(time.Millisecond)
	}
	told := follows(c, c.server(1).turn.number)
	b.set(func() { b.view, b.serves = viewOf(2, b), true })
	received(t, "at the stale address", told)
	await(t, c, b)
	told = follows(c, c.server(1).turn.number)
	news := make(chan error, 10)
	c.OnNews(func() { news <- nil })
	end()
	received(t, "of the other address", told)
	received(t, "of the news", news)
	await(t, c, b)
	if at := c.server(1).turn.at.address; at != b.address {
		t.Errorf("it is called at %s, its address is %s", at, b.address)
	}
}

// TestDeafAddress: where the view of the new primary was heard at the address of a pod that is
// gone, and calls do not reach it there, they go to its own address. Where that is known already
// and answers, they go there from the beginning.
func TestDeafAddress(t *testing.T) {
	for _, known := range []bool{false, true} {
		a, b, gone := newCopy(t), newCopy(t), newCopy(t)
		b.incarnation, gone.incarnation = 7, 7
		decide(1, a, gone)
		b.set(func() { b.view = viewOf(1, a) })
		c := clientOf(t, a, gone)
		if known {
			c = clientOf(t, a, gone, b)
		}
		await(t, c, a)
		s := c.server(1)
		for answered := !known; !answered; <-time.After(time.Millisecond) {
			s.mu.Lock()
			answered = s.find(b.address).asked
			s.mu.Unlock()
		}
		told := follows(c, s.turn.number)
		b.set(func() { b.serves = true })
		gone.set(func() { gone.view, gone.serves, gone.deaf = viewOf(2, b), true, true })
		received(t, "of the view", told)
		b.set(func() { b.view = viewOf(2, b) })
		await(t, c, b)
		if n := gone.called.Load(); known && n > 0 {
			t.Errorf("%d calls went to the address of the pod that is gone", n)
		}
	}
}

// leadsTo is another address of a copy, which ends with end.
func leadsTo(t *testing.T, to *copyServer) (stale *copyServer, end func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	ended := []func() error{l.Close}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to.address)
			if err != nil {
				in.Close()
				return
			}
			mu.Lock()
			ended = append(ended, in.Close, out.Close)
			mu.Unlock()
			go io.Copy(in, out)
			go io.Copy(out, in)
		}
	}()
	end = sync.OnceFunc(func() {
		mu.Lock()
		defer mu.Unlock()
		for _, f := range ended {
			f()
		}
	})
	t.Cleanup(end)
	return &copyServer{address: l.Addr().String()}, end
}
