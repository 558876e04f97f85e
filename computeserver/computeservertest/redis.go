package computeservertest

import (
	"net"
	"os/exec"
	"path/filepath"
	"testing"
)

// NewRedis starts a real redis-server, on a socket in a directory of its own, and returns a
// connection to it.
func NewRedis(t testing.TB, arguments ...string) *Conn {
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
	Await(t, "redis-server answers", func() bool {
		nc, err := net.Dial("unix", socket)
		if err == nil {
			_ = nc.Close() // it answers
		}
		return err == nil
	})
	return Dial(t, "unix", socket)
}
