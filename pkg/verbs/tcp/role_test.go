package tcp

import (
	"errors"
	"io"
	"math"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// until polls, since what it waits for happens in other goroutines; it fails the test if that takes
// long.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// still keeps the watch of q's connection from looking, which takes the role of the reader for a
// moment, until goOn is called: it is about to end q, whose time seems to be over, and somebody
// else ends q already.
func still(t *testing.T, q *qp) (goOn func()) {
	t.Helper()
	k := &q.conn.clock
	q.dying.Lock()
	q.deadline.Store(0)
	q.state.Or(parked)
	k.see(-1)
	until(t, "the watch stands still", func() bool { return len(k.kick) == 0 && k.next.Load() == math.MaxInt64 })
	return func() {
		q.state.And(^uint64(parked))
		q.dying.Unlock()
	}
}

// TestRoleOfTheReader: the first to wait reads; when it has its answer, another one reads for those
// that still wait; when none waits, none reads.
func TestRoleOfTheReader(t *testing.T) {
	answer := make(chan uint16)
	address := fakeServer(t, fakeAnswer, func(s net.Conn) {
		in := make([]byte, 2*32)
		if _, err := io.ReadFull(s, in); err != nil {
			return
		}
		for qp := range answer {
			h := header{size: headerSize + 8, qp: qp, kind: frameList, count: 1}
			s.Write(append(h.append(nil), 1, 2, 3, 4, 5, 6, 7, 8))
		}
	})
	d := NewDevice()
	vc, err := d.Connect(verbs.Target{Address: address}, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer vc.Close()
	a, err := d.NewArena(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	c := vc.(*conn)
	post := func(id uint16) <-chan error {
		q, err := c.NewQP(a)
		if err != nil {
			t.Fatal(err)
		}
		if q.(*qp).id != id {
			t.Fatalf("queue pair %d is the first of its kind, not %d", q.(*qp).id, id)
		}
		b, _ := a.Alloc(8)
		ended := make(chan error, 1)
		go func() { ended <- verbs.Post(q, []verbs.Request{{Op: verbs.Read, Local: b}}) }()
		return ended
	}
	idle, err := c.NewQP(a)
	if err != nil {
		t.Fatal(err)
	}
	goOn := still(t, idle.(*qp))
	first := post(1)
	until(t, "the first reads itself", func() bool { return c.table[1].Load().state.Load()&leading != 0 })
	second := post(2)
	until(t, "the second sleeps", func() bool { return c.table[2].Load().state.Load()&parked != 0 })
	if n := c.waiting.Load(); n != 1 {
		t.Errorf("%d wait for somebody else to read, want 1", n)
	}
	answer <- 1
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	if !c.role.Load() {
		t.Error("nobody reads for the second")
	}
	answer <- 2
	if err := <-second; err != nil {
		t.Fatal(err)
	}
	until(t, "nobody reads where nobody waits", func() bool { return !c.role.Load() })
	if n := c.waiting.Load(); n != 0 {
		t.Errorf("%d wait, want 0", n)
	}
	goOn()
	close(answer)
	until(t, "the end of an idle connection is noticed", func() bool { return idle.Err() != nil })
	if err := idle.Err(); !errors.Is(err, verbs.ErrDisconnected) {
		t.Errorf("the idle connection ended with %v", err)
	}
}
