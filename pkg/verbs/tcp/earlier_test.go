package tcp

import (
	"encoding/binary"
	"errors"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// holding is a path to a server on which the requests of the first connection can be held back, as
// a network may.
type holding struct {
	net.Listener
	to      string
	hold    atomic.Bool
	late    bool // they are held back, and nothing breaks
	release chan struct{}
	// what the server did with the requests that were held back: it answered, or it had ended the
	// connection
	came chan bool
}

func hold(t *testing.T, to string) *holding {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &holding{Listener: l, to: to, release: make(chan struct{}), came: make(chan bool, 1)}
	t.Cleanup(func() { l.Close() })
	go func() {
		for first := true; ; first = false {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close(); s.Close() })
			go h.requests(c, s, first)
			go h.answers(c, s, first)
		}
	}()
	return h
}

func (h *holding) requests(c, s net.Conn, first bool) {
	b := make([]byte, 64<<10)
	for {
		n, err := c.Read(b)
		if first && h.hold.Load() {
			if !h.late {
				c.Close() // the client's end breaks
			}
			<-h.release
		}
		s.Write(b[:n])
		if err != nil {
			return
		}
	}
}

func (h *holding) answers(c, s net.Conn, first bool) {
	b := make([]byte, 64<<10)
	for {
		n, err := s.Read(b)
		if first && h.hold.Load() && !h.late {
			h.came <- n > 0
			return
		}
		c.Write(b[:n])
		if err != nil {
			return
		}
	}
}

// TestEarlierIsQuiet: what a client's broken connection left in the network takes no effect once a
// new connection of the client is usable (G3), also where another peer of the same device connects
// in between.
func TestEarlierIsQuiet(t *testing.T) {
	for _, between := range []int{0, 1, 3} {
		_, direct, tokens := rawServer(t)
		path, d := hold(t, direct), NewDevice()
		arena, err := d.NewArena(1 << 12)
		if err != nil {
			t.Fatal(err)
		}
		b, err := arena.Alloc(8)
		if err != nil {
			t.Fatal(err)
		}
		open := func(client uint16) (verbs.Conn, verbs.QP) {
			c, err := d.Connect(verbs.Target{Address: path.Addr().String(), Token: tokens.Issue(verbs.Peer{Client: client})}, 20*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			q, err := c.NewQP(arena)
			if err != nil {
				t.Fatal(err)
			}
			return c, q
		}
		first, q := open(5)
		path.hold.Store(true)
		binary.NativeEndian.PutUint64(b, 0xbad)
		if err := verbs.Post(q, []verbs.Request{{Op: verbs.Write, Local: b}}); err == nil {
			t.Fatal("a WRITE that was held back is answered")
		}
		if first.Close() == nil {
			t.Fatal("Close does not say that the last requests may still take effect")
		}
		for i := range between {
			c, _ := open(uint16(6 + i))
			defer c.Close()
		}
		again, q := open(5)
		defer again.Close()
		close(path.release)
		if <-path.came {
			t.Errorf("%d peers between: a connection of an earlier incarnation of the queue pair is served after the new one is usable", between)
		}
		if err := verbs.Post(q, []verbs.Request{{Op: verbs.Read, Local: b}}); err != nil {
			t.Fatal(err)
		}
		if v := binary.NativeEndian.Uint64(b); v != 0 {
			t.Errorf("%d peers between: a WRITE of the earlier connection took effect: %#x", between, v)
		}
	}
}

// TestConnectBesideClose: what a connection that says farewell has under way in the network takes
// no effect once a new connection is usable (G3).
func TestConnectBesideClose(t *testing.T) {
	_, direct, tokens := rawServer(t)
	path, d := hold(t, direct), NewDevice()
	path.late = true
	arena, err := d.NewArena(1 << 12)
	if err != nil {
		t.Fatal(err)
	}
	b, err := arena.Alloc(8)
	if err != nil {
		t.Fatal(err)
	}
	connect := func(limit time.Duration) (verbs.Conn, error) {
		return d.Connect(verbs.Target{Address: path.Addr().String(), Token: tokens.Issue(verbs.Peer{Client: 5})}, limit)
	}
	pair := func(c verbs.Conn) verbs.QP {
		q, err := c.NewQP(arena)
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	first, err := connect(patience)
	if err != nil {
		t.Fatal(err)
	}
	q := pair(first)
	path.hold.Store(true)
	binary.NativeEndian.PutUint64(b, 7)
	if err := q.Start([]verbs.Request{{Op: verbs.Write, Local: b}}); err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- first.Close() }()
	for q.Err() == nil {
		runtime.Gosched()
	}
	if _, err := connect(50 * time.Millisecond); !errors.Is(err, verbs.ErrTimeout) {
		t.Errorf("a client whose queue pairs are dead and not quiet connects: %v", err)
	}
	close(path.release)
	if err := <-closed; err != nil {
		t.Errorf("Close of the first connection: %v", err)
	}
	again, err := connect(patience)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := verbs.Post(pair(again), []verbs.Request{{Op: verbs.Read, Local: b}}); err != nil {
		t.Fatal(err)
	}
	if v := binary.NativeEndian.Uint64(b); v != 7 {
		t.Errorf("a WRITE that was sent before the farewell is not in: %d", v)
	}
}
