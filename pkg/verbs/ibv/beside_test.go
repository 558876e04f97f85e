//go:build ibv

package ibv

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/internal/hello"
)

// TestConnectBesideClose: nobody connects anew while a connection to the same address says
// farewell, since its queue pairs are dead and not yet quiet (G3).
func TestConnectBesideClose(t *testing.T) {
	socket, far := net.Pipe()
	defer far.Close()
	d := &device{hca: &hca{}}
	const address = "127.0.0.1:1" // where nothing listens
	c := newConn(d, d.hca, socket, &hello.Answer{}, [verbs.RegionLocks + 1]remoteRegion{}, hello.Session{Earlier: &d.earlier, Address: address, ID: 1})
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	if f, err := readFrame(far); err != nil || f.kind != frameBye {
		t.Fatalf("Close says %+v: %v", f, err)
	}
	if _, err := d.connect(verbs.Target{Address: address}, 50*time.Millisecond); !errors.Is(err, verbs.ErrTimeout) {
		t.Errorf("Connect beside Close does not wait: %v", err)
	}
	if _, err := far.Write((&frame{kind: frameBye}).append(nil)); err != nil {
		t.Fatal(err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if _, err := d.connect(verbs.Target{Address: address}, time.Minute); err == nil || errors.Is(err, verbs.ErrTimeout) {
		t.Errorf("Connect after Close: %v", err)
	}
	if named := d.earlier.Broken(address); len(named) != 0 {
		t.Errorf("a connection that said farewell is named: %v", named)
	}
}
