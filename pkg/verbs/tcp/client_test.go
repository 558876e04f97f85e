package tcp

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/internal/hello"
)

func newClient(t testing.TB) (verbs.Device, verbs.Conn, *verbs.Arena) {
	t.Helper()
	_, address, tokens := rawServer(t)
	d := NewDevice()
	c, err := d.Connect(verbs.Target{Address: address, Token: tokens.Issue(verbs.Peer{Client: 1})}, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	a, err := d.NewArena(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		a.Close()
	})
	return d, c, a
}

// TestStage: a staged list goes out with the Wait, or with the Start of another queue pair.
func TestStage(t *testing.T) {
	_, c, a := newClient(t)
	b, _ := a.Alloc(8)
	list := []verbs.Request{{Op: verbs.FetchAdd, Local: b, Add: 1}}
	q, err := c.NewQP(a)
	if err != nil {
		t.Fatal(err)
	}
	s := q.(verbs.Stager)
	for range 10 {
		if err := s.Stage(list); err != nil {
			t.Fatal(err)
		}
		if err := q.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	other, err := c.NewQP(a)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stage(list); err != nil {
		t.Fatal(err)
	}
	old, _ := a.Alloc(8)
	if err := verbs.Post(other, []verbs.Request{{Op: verbs.FetchAdd, Local: old}}); err != nil {
		t.Fatal(err)
	}
	if old[0] != 11 { // one after the other, in one stream
		t.Errorf("%d staged lists of 11 took effect before a list that was started later", old[0])
	}
	if err := q.Wait(); err != nil {
		t.Fatal(err)
	}
	s.Flush()
}

// TestNoAllocations counts both sides: the server runs in this process.
func TestNoAllocations(t *testing.T) {
	_, c, a := newClient(t)
	var qps []verbs.QP
	var lists [][]verbs.Request
	for range 16 {
		q, err := c.NewQP(a)
		if err != nil {
			t.Fatal(err)
		}
		out, _ := a.Alloc(300)
		in, _ := a.Alloc(1024)
		old, _ := a.Alloc(8)
		qps = append(qps, q)
		lists = append(lists, []verbs.Request{
			{Op: verbs.Write, Local: out}, {Op: verbs.Read, Local: in}, {Op: verbs.MaskedCompareSwap, Region: verbs.RegionLocks, Local: old},
		})
	}
	args, _ := a.Alloc(verbs.CallBytes(100))
	call := []verbs.Request{{Op: verbs.Call, Local: args, Args: 40}}
	run := func() {
		if err := verbs.Post(qps[0], call); err != nil {
			t.Fatal(err)
		}
		if err := verbs.Post(qps[0], lists[0]); err != nil {
			t.Fatal(err)
		}
		if err := verbs.PostAll(qps, lists); err != nil {
			t.Fatal(err)
		}
	}
	run() // buffers grow to their size
	if n := testing.AllocsPerRun(2000, run); n != 0 {
		t.Errorf("%v allocations a round of 18 lists", n)
	}
}

// fakeServer answers the hello of one client with a, then runs then.
func fakeServer(t *testing.T, a []byte, then func(c net.Conn)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := hello.ReadHello(c); err != nil {
			return
		}
		if _, err := c.Write(a); err == nil && then != nil {
			then(c)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-ended
	})
	return l.Addr().String()
}

var fakeAnswer = (&hello.Answer{MaxQPs: 8, Session: 1, Regions: []verbs.Region{{ID: verbs.RegionData, Size: 4096}}}).Append(nil)

func TestServerOfAnotherVersion(t *testing.T) {
	a := (&hello.Answer{Code: hello.BadVersion}).Append(nil)
	a[8], a[9] = 0x39, 0x05
	_, err := NewDevice().Connect(verbs.Target{Address: fakeServer(t, a, nil)}, 20*time.Second)
	if !errors.Is(err, verbs.ErrVersion) || !strings.Contains(err.Error(), "version 1 ") || !strings.Contains(err.Error(), "version 1337") {
		t.Errorf("connect to a server of version 1337: %v", err)
	}
}

func TestSilentServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := NewDevice().Connect(verbs.Target{Address: l.Addr().String()}, 30*time.Millisecond); !errors.Is(err, verbs.ErrTimeout) {
		t.Errorf("connect to a server that says nothing: %v, want %v", err, verbs.ErrTimeout)
	}
}

// TestBadAnswers: a server that sends nonsense kills the connection, and nothing hangs or panics.
func TestBadAnswers(t *testing.T) {
	sound := header{size: headerSize + 8, kind: frameList, count: 1}
	f := func(what string, change func(h *header), dead bool) {
		t.Helper()
		h := sound
		change(&h)
		d := NewDevice()
		c, err := d.Connect(verbs.Target{Address: fakeServer(t, fakeAnswer, func(s net.Conn) {
			in := make([]byte, 32)
			if _, err := s.Read(in); err != nil {
				return
			}
			s.Write(append(h.append(nil), make([]byte, 1024)...)[:max(headerSize, min(int(h.size), 1024))])
			s.Read(in) // until the client goes
		})}, 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		a, err := d.NewArena(4096)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		defer c.Close()
		q, err := c.NewQP(a)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := a.Alloc(8)
		limit := 20 * time.Second
		if !dead {
			limit = 20 * time.Millisecond // the answer is passed over
		}
		q.SetLimit(limit)
		err = verbs.Post(q, []verbs.Request{{Op: verbs.Read, Local: b}})
		if err == nil || errors.Is(err, verbs.ErrTimeout) == dead {
			t.Errorf("%s: %v", what, err)
		}
	}
	f("an answer that is too short", func(h *header) { h.size = headerSize }, true)
	f("an answer that is too long", func(h *header) { h.size += 8 }, true)
	f("an answer to two requests", func(h *header) { h.count = 2 }, true)
	f("an answer to no request", func(h *header) { h.count, h.size = 0, headerSize }, true)
	f("a frame of 1 GiB", func(h *header) { h.size = 1 << 30 }, true)
	f("an unknown kind", func(h *header) { h.kind = 50 }, true)
	f("a farewell that nobody asked for", func(h *header) { h.kind, h.size = frameBye, headerSize }, true)
	f("an error", func(h *header) { h.kind, h.size, h.code = frameError, headerSize, codeMalformed }, true)
	f("a queue pair beyond all", func(h *header) { h.qp = 60000 }, true)
	f("another queue pair", func(h *header) { h.qp = 5 }, false)
	f("an old sequence", func(h *header) { h.seq = 1<<32 - 1 }, false)
}

// TestBrokenSessionIsNamed: a connection that broke without a farewell is named in the next hello
// to that address, until one succeeds.
func TestBrokenSessionIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	named := make(chan []uint64, 8)
	go func() {
		for session := uint64(100); ; session++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			h, err := hello.ReadHello(c)
			if err != nil {
				c.Close()
				continue
			}
			named <- h.Earlier
			a := hello.Answer{MaxQPs: 1, Session: session}
			if session == 101 {
				a.Code = hello.Refused
			}
			c.Write(a.Append(nil))
			c.Close() // without a farewell
		}
	}()
	d := NewDevice()
	for i, want := range [][]uint64{nil, {100}, {100}, {102}} {
		c, err := d.Connect(verbs.Target{Address: l.Addr().String()}, 20*time.Second)
		if (err != nil) != (i == 1) {
			t.Fatalf("connection %d: %v", i, err)
		}
		if got := <-named; len(got) != len(want) || len(got) > 0 && got[0] != want[0] {
			t.Errorf("hello %d names sessions %v, want %v", i, got, want)
		}
		if err == nil {
			if err := c.Close(); err == nil {
				t.Error("Close says that all is quiet although the server never answered")
			}
		}
	}
}
