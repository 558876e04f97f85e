package tcp_test

import (
	"errors"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/tcp"
	"github.com/dmindex/dmindex/pkg/verbs/verbstest"
)

// TestCut: a connection to a server that answers nothing ends at once, with a list under way, also
// while its farewell waits. Its client connects again, and the server is told of the session then.
func TestCut(t *testing.T) {
	for _, leaving := range []bool{false, true} {
		tokens := new(verbstest.Tokens)
		o := verbs.ServerOptions{Memory: verbstest.Memory(t, 4<<20, 4096), Admission: tokens}
		address, s, err := start("", o)
		if err != nil {
			t.Fatal(err)
		}
		n := verbstest.NewNetwork(t, address)
		d := tcp.NewDevice()
		arena, err := d.NewArena(4096)
		if err != nil {
			t.Fatal(err)
		}
		local, err := arena.Alloc(8)
		if err != nil {
			t.Fatal(err)
		}
		open := func() (verbs.Conn, verbs.QP, verbs.Token) {
			token := tokens.Issue(verbs.Peer{Client: 1})
			c, err := d.Connect(verbs.Target{Address: n.Address(), Token: token}, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			q, err := c.NewQP(arena)
			if err != nil {
				t.Fatal(err)
			}
			return c, q, token
		}
		c, q, token := open()
		list := []verbs.Request{{Op: verbs.FetchAdd, Local: local, Add: 1}}
		if err := verbs.Post(q, list); err != nil {
			t.Fatal(err)
		}
		n.Hold(c, token)
		if err := q.Start(list); err != nil {
			t.Fatal(err)
		}
		closed := make(chan error, 1)
		if leaving {
			go func() { closed <- c.Close() }()
			for q.Err() == nil {
				<-time.After(time.Millisecond)
			}
		}
		begun := time.Now()
		why := errors.New("another copy answers")
		c.(verbs.Cutter).Cut(why)
		if err := q.Wait(); err == nil || !leaving && !errors.Is(err, why) {
			t.Errorf("the list under way ended with %v", err)
		}
		if !leaving {
			closed <- c.Close()
		}
		if err := <-closed; !errors.Is(err, verbs.ErrDisconnected) {
			t.Errorf("Close: %v", err)
		}
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("leaving %v: it took %v", leaving, took)
		}
		c, q, _ = open()
		if err := verbs.Post(q, list); err != nil {
			t.Error(err)
		}
		if err := errors.Join(c.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	}
}
