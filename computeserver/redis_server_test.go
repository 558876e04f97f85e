package computeserver

import (
	"net"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// newRedis starts a real redis-server, on a socket in a directory of its own, and returns a
// connection to it.
func newRedis(t testing.TB, arguments ...string) *raw {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatal("redis-server is not installed; install Debian's package redis-server, which this test compares with")
	}
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	cmd := exec.Command(program, append([]string{"--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no", "--dir", dir}, arguments...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	var nc net.Conn
	awaitTrue(t, "redis-server answers", func() bool {
		nc, err = net.Dial("unix", socket)
		return err == nil
	})
	_ = nc.SetDeadline(time.Now().Add(2 * time.Minute))
	t.Cleanup(func() { _ = nc.Close() })
	return &raw{t, nc}
}

// again is another connection to where r leads.
func (r *raw) again() *raw {
	r.t.Helper()
	_ = r.nc.Close()
	address := r.nc.RemoteAddr()
	nc, err := net.Dial(address.Network(), address.String())
	if err != nil {
		r.t.Fatal(err)
	}
	_ = nc.SetDeadline(time.Now().Add(2 * time.Minute))
	r.t.Cleanup(func() { _ = nc.Close() })
	return &raw{r.t, nc}
}
