package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/attach"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/memory"
	"github.com/dmindex/dmindex/pkg/partition"
)

// childEnv makes the test program the program itself.
const childEnv = "DMINDEX_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestTakeOver kills a compute server with SIGKILL and starts it again, as a kubelet does with a
// container: its keys are back, all of them, long before its lease is over, since the next process
// knows that it is dead.
func TestTakeOver(t *testing.T) {
	const keys, lease = 300, 2 * time.Minute
	servers, err := memory.Start(memory.Config{Servers: 2, Bytes: 64 << 20, ChunkBytes: 1 << 20, Transport: "tcp", Lease: lease})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := servers.Close(); err != nil {
			t.Error(err)
		}
	})
	servers.Run(func(err error) { t.Error(err) })
	ix := &config.Index{
		Identity: "killed", Name: "killed", Design: "dex", KeyType: config.KeyBytes, MaxKeyBytes: 32, MaxValueBytes: 32, Durability: "Memory",
		Routing: config.RoutingOwner, MemoryServers: servers.Members(),
	}
	if err := servers.Admit(t.Context(), ix.Identity); err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	giveMap(t, ix, partition.Server{ID: 1, Name: "compute-1", RPC: address, RESP: address})
	start := computeProcess(t, ix, partition.Server{ID: 1, Name: "compute-1", RPC: address})
	first := start()
	ctx, cancel := context.WithTimeout(t.Context(), 4*lease)
	defer cancel()
	c := reach(ctx, t, address)
	defer c.Close()
	key := func(n int) []byte { return fmt.Appendf(nil, "key %d", n) }
	put := func(n, life int) {
		t.Helper()
		if err := c.Put(ctx, key(n), fmt.Appendf(nil, "value %d of life %d", n, life)); err != nil {
			t.Fatal(err)
		}
	}
	for n := range keys {
		put(n, 1)
	}
	for life := 2; life <= 3; life++ {
		if err := first.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = first.Wait() // it was killed
		killed := time.Now()
		first = start()
		for {
			if _, err := c.Get(ctx, key(0)); err == nil {
				break
			} else if ctx.Err() != nil {
				t.Fatal(err)
			}
		}
		away := time.Since(killed)
		t.Logf("keys were away for %v", away.Round(time.Millisecond))
		if away > lease/2 { // of a lease, at most the time between two renewals is gone
			t.Errorf("keys were away for %v", away)
		}
		for n := range keys {
			if v, err := c.Get(ctx, key(n)); err != nil || string(v) != fmt.Sprintf("value %d of life %d", n, life-1) {
				t.Fatalf("key %d: %q, %v", n, v, err)
			}
			put(n, life)
		}
	}
}

// freeAddress is an address that nobody else will be given while nobody listens there: connections
// and listeners of other tests have other hosts.
func freeAddress(t *testing.T) string {
	t.Helper()
	pid := os.Getpid()
	l, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 64+pid>>16, pid>>8&0xff, pid&0xff))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// giveMap gives one server all keys.
func giveMap(t *testing.T, ix *config.Index, to partition.Server) {
	t.Helper()
	m, err := partition.EqualWidth(ix.Identity, []partition.Server{to}, partition.KeyType(ix.KeyType), ix.MaxKeyBytes)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := m.Marshal(nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := attach.New(ix, "", attach.Fabric{Provider: "tcp"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := a.Control.SwapMap(0, m.Generation, encoded, time.Minute); err != nil {
		t.Fatal(err)
	}
}

// computeProcess is how to start a compute server as a process of its own.
func computeProcess(t *testing.T, ix *config.Index, s partition.Server) (start func() *exec.Cmd) {
	t.Helper()
	text, err := json.Marshal(ix)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "index.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	// where temporary files lie may be an overlay, which proves nothing
	guard, err := os.MkdirTemp("/dev/shm", "dmindex-guard")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(guard) })
	return func() *exec.Cmd {
		cmd := exec.Command(os.Args[0], "computeserver", fmt.Sprint("--id=", s.ID), "--name="+s.Name, "--index-config="+file, "--insecure", "--no-password",
			"--rpc="+s.RPC, "--resp="+s.RESP, "--metrics=", "--cache=1Mi")
		cmd.Env = append(os.Environ(), childEnv+"=yes", config.EnvGuardDir+"="+guard)
		cmd.Stderr = t.Output()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() }) // it may be dead
		return cmd
	}
}

// reach connects once the server is there.
func reach(ctx context.Context, t *testing.T, address string) *client.Client {
	t.Helper()
	for {
		c, err := client.Connect(ctx, client.Options{Endpoints: []string{address}, Insecure: true})
		if err == nil {
			return c
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}
