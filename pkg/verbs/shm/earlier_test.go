package shm

import (
	"errors"
	"net"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/verbstest"
)

// TestEarlierIsQuiet: a list that is under way on a connection that was cut is at its end before
// the client has a new connection (G3).
func TestEarlierIsQuiet(t *testing.T) {
	var tokens verbstest.Tokens
	server, err := NewServer(verbs.ServerOptions{Memory: verbstest.Memory(t, 1<<16, 1<<12), Admission: &tokens})
	if err != nil {
		t.Fatal(err)
	}
	address := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", address)
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(l)
	defer server.Close()
	d := NewDevice()
	arena, err := d.NewArena(1 << 12)
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	connect := func(limit time.Duration) (verbs.Conn, error) {
		return d.Connect(verbs.Target{Address: address, Token: tokens.Issue(verbs.Peer{Client: 5})}, limit)
	}
	c, err := connect(20 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	q, err := c.NewQP(arena)
	if err != nil {
		t.Fatal(err)
	}
	atomic.StoreUint32(&q.(*qp).busy, 1) // as while a list executes
	cut := make(chan struct{})
	go func() {
		defer close(cut)
		server.Disconnect(func(verbs.Peer) bool { return true })
	}()
	for q.Err() == nil {
		runtime.Gosched()
	}
	if again, err := connect(100 * time.Millisecond); !errors.Is(err, verbs.ErrTimeout) {
		again.Close()
		t.Errorf("a new connection while a list of the earlier one is under way: %v, want %v", err, verbs.ErrTimeout)
	}
	atomic.StoreUint32(&q.(*qp).busy, 0)
	again, err := connect(20 * time.Second)
	if err != nil {
		t.Fatalf("a new connection when the list is at its end: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	<-cut
}
