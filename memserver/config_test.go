package memserver

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestConfig(t *testing.T) {
	f := func(change func(*Config), want ...string) {
		t.Helper()
		c := localConfig(t)
		change(&c)
		s, err := New(c)
		if len(want) == 0 {
			if err != nil {
				t.Error(err)
				return
			}
			s.Close()
			return
		}
		for _, part := range want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("error %v does not say %q", err, part)
			}
		}
	}
	f(func(*Config) {})
	f(func(c *Config) { c.MemoryBytes, c.ChunkBytes = 16<<20, 0 })
	f(func(c *Config) { c.MemoryBytes += 4097 })
	f(func(c *Config) { c.Reserve = true })
	f(func(c *Config) { c.Control, c.Metrics = "localhost:0", "[::1]:0" })
	f(func(c *Config) { c.Fabric, c.Metrics = "", "" })
	f(func(c *Config) { c.Shm = "" })
	f(func(c *Config) { c.Shm, c.Fabric = "", "" }, "neither Fabric nor Shm nor RDMA")
	f(func(c *Config) { c.Shm, c.Fabric, c.RDMA, c.RDMADevice = "", "", "127.0.0.1:0", "no_such_device" }, "ibv")
	f(func(c *Config) { c.Shm, c.RDMA = "", "127.0.0.1:0" }, "RDMA alone")
	f(func(c *Config) { c.Fabric, c.Shm, c.RDMA = "", "/run/s", "127.0.0.1:0" }, "RDMA alone")
	f(func(c *Config) { c.Mirror = "127.0.0.1:0" }, "Mirror is set", "Fabric alone")
	f(func(c *Config) { c.Pod = strings.Repeat("p", 254) }, "Pod has 254 bytes")
	f(func(c *Config) { c.RDMADevice = "mlx5_0" }, "RDMADevice is set without RDMA")
	f(func(c *Config) { c.Shm, c.Fabric, c.RDMA = "", "", "0.0.0.0:0" }, "RDMA", "loopback")
	f(func(c *Config) { c.MemoryBytes = 0; c.ChunkBytes = 3 << 20 }, "ChunkBytes is 3145728", "1048576", "1073741824")
	f(func(c *Config) { c.MemoryBytes = 1 << 20 }, "MemoryBytes is 1048576", "from 9 chunks (9437184)",
		"the first 8 of them for header, superblocks, and repair records and intent slots of 131072 locks")
	f(func(c *Config) { c.MemoryBytes, c.LockTableBytes = 2<<20, 27<<10 })
	f(func(c *Config) { c.MemoryBytes, c.LockTableBytes = 2<<20, 28<<10 }, "from 3 chunks (3145728)", "the first 2 of them", "14336 locks")
	f(func(c *Config) { c.MemoryBytes, c.LockTableBytes = 64<<20, 1<<30 }, "repair records and intent slots of 536870912 locks")
	f(func(c *Config) { c.Lease = 99 * time.Millisecond }, "Lease is 99ms", "100ms to 1h0m0s")
	f(func(c *Config) { c.Lease = time.Second + 1 }, "whole milliseconds")
	f(func(c *Config) { c.Lease = time.Hour })
	f(func(c *Config) { c.LockTableBytes = 12 }, "multiples of 8")
	f(func(c *Config) { c.CallThreads = -1 }, "CallThreads is -1", "0 to 1024")
	f(func(c *Config) { c.LedgerBytes = 1 << 20 }, "LedgerBytes is 1048576", "16777216")
	f(func(c *Config) { c.LedgerBytes = 31 << 20 })
	f(func(c *Config) { c.ID = 1 << 15 }, "32768")
	f(func(c *Config) { c.Control = "" }, "Control is empty")
	f(func(c *Config) { c.StateDir = "/x" }, "StateDir is set without DataDir")
	f(func(c *Config) { c.Control = ":0" }, `Control is ":0"`, "loopback")
	f(func(c *Config) { c.Fabric = "0.0.0.0:0" }, "Fabric", "loopback")
	f(func(c *Config) { c.Metrics = "10.0.0.1:0" }, "Metrics", "loopback")
	f(func(c *Config) { c.Insecure = false }, "TLSDir is empty")
	f(func(c *Config) { c.TLSDir = "/x" }, "both Insecure and TLSDir")
	f(func(c *Config) { c.Insecure, c.TLSDir = false, t.TempDir() }, "TLS directory", "tls.crt")
	f(func(c *Config) { c.Shm = filepath.Join(t.TempDir(), strings.Repeat("x", 200)) }, "listen")
	f(func(c *Config) { c.DataDir = os.DevNull }, "data directory")

	l := must(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	f(func(c *Config) { c.Control = l.Addr().String() }, "address already in use")
	f(func(c *Config) { c.Metrics = l.Addr().String() }, "address already in use")
}

// TestStaleSocket: the socket of a process that was killed is no obstacle, one that is in use is.
func TestStaleSocket(t *testing.T) {
	c := localConfig(t)
	l := must(net.Listen("unix", c.Shm))
	if _, err := New(c); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a socket in use: %v", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	must(New(c)).Close()

	busy := must(syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0))
	defer syscall.Close(busy)
	if err := errors.Join(syscall.Bind(busy, &syscall.SockaddrUnix{Name: c.Shm}), syscall.Listen(busy, 0)); err != nil {
		t.Fatal(err)
	}
	defer must(net.Dial("unix", c.Shm)).Close() // more do not fit
	if _, err := New(c); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a socket in use, of somebody who accepts nobody: %v", err)
	}
	if err := os.Remove(c.Shm); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.Shm, []byte("a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(c); err == nil {
		t.Error("a file that is no socket was replaced")
	}
}
