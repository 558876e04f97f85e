//go:build ibv

package ibv

import (
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/internal/hello"
	"github.com/dmindex/dmindex/pkg/verbs/internal/serve"
)

// The values of enum ibv_event_type that these tests use.
const (
	qpFatal     eventKind = 1
	deviceFatal eventKind = 8
	portErr     eventKind = 10
)

// TestDescriptorOfDeviceThatIsGone: the descriptors of a device that is gone are always ready, and
// each read fails. Whoever reads one does not spin, and everybody on the device hears of it.
func TestDescriptorOfDeviceThatIsGone(t *testing.T) {
	ready, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ready.Close()
	write.Close()
	raw, err := ready.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	h := &hca{name: "mlx5_3", channel: &_Ctype_struct_ibv_comp_channel{fd: -1}}
	var heard error
	h.owns(func(err error) { heard = err })
	h.dispatch(raw, "completion channel", h.completions())
	if !errors.Is(heard, verbs.ErrDisconnected) || !strings.Contains(heard.Error(), "mlx5_3 is gone (completion channel: "+syscall.EBADF.Error()) {
		t.Errorf("who is on the device hears %v", heard)
	}
}

// TestEvents: what ends is what an event names, once, and whoever comes to a device that is gone
// hears of it at once.
func TestEvents(t *testing.T) {
	var reports []string
	h := &hca{name: "mlx5_3", report: func(device, event string, _ bool) { reports = append(reports, device+" "+event) }}
	var first, second, late int
	a := h.owns(func(error) { first++ })
	h.owns(func(error) { second++ })
	h.happened(portErr, 0)
	h.happened(eventKind(99), a)
	if first+second != 0 || h.lost() != nil {
		t.Errorf("a port that is down ends %d owners, and the device: %v", first+second, h.lost())
	}
	h.happened(qpFatal, a)
	h.happened(qpFatal, 0)
	if first != 1 || second != 0 {
		t.Errorf("the end of a queue pair ends its owner %d times, and another one %d times", first, second)
	}
	h.ownsNoMore(a)
	h.happened(qpFatal, a)
	h.happened(deviceFatal, 0)
	h.happened(deviceFatal, 0)
	h.owns(func(error) { late++ })
	if first != 1 || second != 1 || late != 1 {
		t.Errorf("the end of the device is heard %d times by who left before, %d by who is there, %d by who comes later", first, second, late)
	}
	want := []string{"PORT_ERR", "event 99", "QP_FATAL", "QP_FATAL", "QP_FATAL", "DEVICE_FATAL", "DEVICE_FATAL"}
	for i := range want {
		want[i] = "mlx5_3 " + want[i]
	}
	if !slices.Equal(reports, want) {
		t.Errorf("reports %q, want %q", reports, want)
	}
}

// TestConnectionsOfDeviceThatIsGone: an event of a queue pair ends its connection alone, that of
// the device all others.
func TestConnectionsOfDeviceThatIsGone(t *testing.T) {
	h := &hca{name: "mlx5_3"}
	var conns []*conn
	for range 2 {
		socket, far := net.Pipe()
		t.Cleanup(func() { far.Close() })
		c := newConn(&device{hca: h}, h, socket, &hello.Answer{MaxQPs: 1}, [verbs.RegionLocks + 1]remoteRegion{}, hello.Session{Earlier: new(hello.Earlier)})
		t.Cleanup(func() { c.Close() })
		conns = append(conns, c)
	}
	ended := func(c *conn, want string) {
		t.Helper()
		if _, err := c.reserve(); !errors.Is(err, verbs.ErrDisconnected) || !strings.Contains(err.Error(), want) {
			t.Errorf("a queue pair of a connection that has ended: %v, want %q in it", err, want)
		}
		<-c.dead // the server hears of it, too
	}
	h.happened(qpFatal, conns[0].owner)
	ended(conns[0], "mlx5_3 reports QP_FATAL")
	if _, err := conns[1].reserve(); err != nil {
		t.Errorf("the other connection ends, too: %v", err)
	}
	conns[1].making.Done()
	h.happened(deviceFatal, 0)
	ended(conns[1], "mlx5_3 is gone (DEVICE_FATAL)")
}

// TestServerOfDeviceThatIsGone: Serve returns why.
func TestServerOfDeviceThatIsGone(t *testing.T) {
	base, err := serve.New(verbs.ServerOptions{Admission: refuseAll{}}, serve.Provider{})
	if err != nil {
		t.Fatal(err)
	}
	defer base.Close()
	s := &server{Server: base, hca: &hca{name: "mlx5_3"}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	s.hca.happened(deviceFatal, 0)
	if err := <-served; err == nil || !strings.Contains(err.Error(), "mlx5_3 is gone") {
		t.Errorf("Serve on a device that is gone: %v", err)
	}
}

// TestLocksOfDeviceThatIsGone: the lock region in a NIC that is gone is not taken for what it reads
// as, since zero is a lock that is free.
func TestLocksOfDeviceThatIsGone(t *testing.T) {
	s := &server{hca: &hca{name: "mlx5_3"}, memory: []verbs.Memory{{ID: verbs.RegionLocks, Bytes: make([]byte, 8)}}}
	s.hca.happened(deviceFatal, 0)
	if err := s.saveLocks(); err == nil || !strings.Contains(err.Error(), "lock region in the NIC is lost") {
		t.Errorf("save the locks of a device that is gone: %v", err)
	}
}

type refuseAll struct{}

func (refuseAll) Admit(verbs.Token) (verbs.Peer, error) { return verbs.Peer{}, verbs.ErrRefused }
