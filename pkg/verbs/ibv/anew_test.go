//go:build ibv

package ibv_test

import (
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/ibv"
	"github.com/dmindex/dmindex/pkg/verbs/verbstest"
)

// TestDeviceAnew: a client whose RDMA device was gone opens it anew with its next connection. The
// arena that it has goes on.
func TestDeviceAnew(t *testing.T) {
	w := newWorld(t, options)
	for round := range uint64(3) {
		c := w.connect(1)
		q, b := w.qp(c)
		if err := verbs.Post(q, []verbs.Request{{Op: verbs.FetchAdd, Region: verbs.RegionLocks, Local: b[:8], Add: 1}}); err != nil {
			t.Fatal(err)
		}
		if found := binary.NativeEndian.Uint64(b); found != round {
			t.Errorf("round %d finds %d", round, found)
		}
		ibv.Lose(w.device)
		err := verbs.Post(q, []verbs.Request{{Op: verbs.Read, Local: b[:8]}})
		if !errors.Is(err, verbs.ErrDisconnected) || !strings.Contains(err.Error(), "is gone (DEVICE_FATAL)") {
			t.Errorf("a list on a device that is gone: %v", err)
		}
		if round > 0 { // else it is closed at the end
			c.Close()
		}
	}
}

// TestServerThatLostItsDevice ends: Serve returns, its clients hear of it, and Close gives
// everything back.
func TestServerThatLostItsDevice(t *testing.T) {
	tokens := new(verbstest.Tokens)
	s, err := ibv.NewServer(options, verbs.ServerOptions{Memory: verbstest.Memory(t, 1<<20, 4096), Incarnation: 7, Admission: tokens})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	device := newDevice()
	defer device.Close()
	arena, err := device.NewArena(1 << 16)
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	c, err := device.Connect(verbs.Target{Address: l.Addr().String(), Token: tokens.Issue(verbs.Peer{Index: "test", Client: 1})}, soon)
	if err != nil {
		t.Fatal(err)
	}
	q, err := c.NewQP(arena)
	if err != nil {
		t.Fatal(err)
	}
	b, err := arena.Alloc(8)
	if err != nil {
		t.Fatal(err)
	}
	ibv.Lose(s)
	if err := <-served; !errors.Is(err, verbs.ErrDisconnected) || !strings.Contains(err.Error(), "is gone (DEVICE_FATAL)") {
		t.Errorf("Serve on a device that is gone: %v", err)
	}
	if err := s.Fence(func(verbs.Peer) bool { return true }, soon); err == nil {
		t.Error("a fence succeeds on a device of which nobody knows what it did")
	}
	if err := verbs.Post(q, []verbs.Request{{Op: verbs.Read, Local: b}}); !errors.Is(err, verbs.ErrDisconnected) {
		t.Errorf("a client of a server without a device: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}
