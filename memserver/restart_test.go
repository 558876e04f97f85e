package memserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/control"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/memserver/persist"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// childEnv makes the test program a memory server on that data directory.
const childEnv = "DMINDEX_TEST_MEMSERVER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		childMain(dir)
		return
	}
	if grant := os.Getenv(counterEnv); grant != "" {
		counterMain(grant)
		return
	}
	os.Exit(m.Run())
}

// childMain serves until it is killed, or until its input ends.
func childMain(dir string) {
	c := dirConfig(dir)
	if dir, ok := strings.CutPrefix(dir, persistPrefix); ok {
		c = persistConfig(dir, persist.Soon)
	}
	s, err := New(c)
	if err != nil {
		os.Stdout.WriteString("error " + err.Error() + "\n")
		os.Exit(1)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		os.Stdin.Read(make([]byte, 1))
		cancel()
	}()
	text := must(json.Marshal(s.Addresses()))
	os.Stdout.WriteString(string(text) + "\n")
	if err := s.Run(ctx); err != nil {
		os.Exit(1)
	}
}

func dirConfig(dir string) Config {
	return Config{
		DataDir: dir, firstProcess: 1, MemoryBytes: 20 << 20, ChunkBytes: 1 << 20, Control: "127.0.0.1:0", Fabric: "127.0.0.1:0",
		Shm: filepath.Join(dir, "shm"), Insecure: true, Lease: longLease,
	}
}

// child starts a server process and returns its addresses, or what it refused with.
func child(t *testing.T, dir string) (*exec.Cmd, Addresses, error) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	cmd.Stderr = t.Output()
	must(cmd.StdinPipe())
	out := must(cmd.StdoutPipe())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the child says nothing: %v", err)
	}
	if text, isError := strings.CutPrefix(line, "error "); isError {
		return cmd, Addresses{}, errors.New(text)
	}
	var a Addresses
	if err := json.Unmarshal([]byte(line), &a); err != nil {
		t.Fatal(err)
	}
	return cmd, a, nil
}

// TestKilled kills a server with SIGKILL in the middle of its life, again and again: what was
// acknowledged is there.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	var incarnation uint64
	var chunks []uint64
	for life := range 4 {
		cmd, a, err := child(t, dir)
		if err != nil {
			t.Fatal(err)
		}
		c := client(t, a.Control, "a", "tcp", nil)
		if life == 0 {
			incarnation = must(c.Admit(8, 0, limit))[0]
			if err := c.SwapMap(0, 1, []byte("map"), limit); err != nil {
				t.Fatal(err)
			}
		}
		id := must(c.Register(limit))
		if int(id) != life+1 {
			t.Errorf("client id %d in life %d", id, life)
		}
		grant := must(c.Connect(7, id, limit))
		if grant.Target.Incarnation != incarnation {
			t.Fatalf("life %d has incarnation %x, was %x", life, grant.Target.Incarnation, incarnation)
		}
		if g, m, err := c.Map(0, 0, limit); g != 1 || string(m) != "map" || err != nil {
			t.Errorf("map %d %q %v", g, m, err)
		}
		_, qp, arena := open(t, grant)
		buf := must(arena.Alloc(8))
		for i, chunk := range chunks {
			if err := verbs.Post(qp, []verbs.Request{{Op: verbs.Read, Remote: chunk, Local: buf}}); err != nil {
				t.Fatal(err)
			}
			if want := bytes.Repeat([]byte{byte(i + 1)}, 8); !bytes.Equal(buf, want) {
				t.Errorf("life %d reads %v at %#x, want %v", life, buf, chunk, want)
			}
		}
		chunk := must(c.AllocateChunk(7, id, 1024, false, limit))
		for _, other := range chunks {
			if other == chunk {
				t.Errorf("chunk %#x was given twice", chunk)
			}
		}
		chunks = append(chunks, chunk)
		copy(buf, bytes.Repeat([]byte{byte(life + 1)}, 8))
		lock := []verbs.Request{{Op: verbs.Write, Remote: chunk, Local: buf},
			{Op: verbs.FetchAdd, Region: verbs.RegionLocks, Remote: grant.LockOffset, Local: must(arena.Alloc(8)), Add: 1}}
		if err := verbs.Post(qp, lock); err != nil {
			t.Fatal(err)
		}
		if got := lock[1].Local[0]; int(got) != life {
			t.Errorf("life %d finds the lock word %d", life, got)
		}
		if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
	}
	d := must(New(dirConfig(dir)))
	defer d.Close()
	if d.Incarnation() != incarnation {
		t.Error("another incarnation")
	}
	d.control.Accounts.Read(func(l *ledger.Ledger) {
		if got := l.Totals().Used; got != 4 {
			t.Errorf("%d chunks are used", got)
		}
	})
}

// TestTwoProcesses: one data directory, one server.
func TestTwoProcesses(t *testing.T) {
	dir := t.TempDir()
	cmd, _, err := child(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := child(t, dir); err == nil || !strings.Contains(err.Error(), "in use by another memory server") {
		t.Errorf("a second process: %v", err)
	}
	if _, err := New(dirConfig(dir)); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("this process: %v", err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	must(New(dirConfig(dir))).Close()
}

// TestRegisterNeedsAllServers: while one of the servers is away, has lost its content or has not
// admitted the index, who tries to open it uses up no client of it.
func TestRegisterNeedsAllServers(t *testing.T) {
	home, _ := start(t, localConfig(t))
	other := localConfig(t)
	other.ID = 8
	s, stop := start(t, other)
	address := s.Addresses().Control
	register := func(incarnation uint64) (uint32, error) {
		c := must(control.New(control.Config{Index: "a", Name: "x-compute-0", Provider: "tcp", Servers: []control.Server{
			{ID: 7, Control: home.Addresses().Control}, {ID: 8, Control: address, Incarnation: incarnation}}}))
		defer c.Close()
		return c.Register(limit)
	}
	operator := admin(t, home.Addresses().Control, nil)
	refused := func(id uint32, err error, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("client %d, error %v, want %v", id, err, want)
		}
		if known := must(operator.ListClients(t.Context(), &rpcv1.ListClientsRequest{Index: "a"})); len(known.Clients) != 0 {
			t.Errorf("the home server knows %v", known.Clients)
		}
	}
	must(operator.Admit(t.Context(), &rpcv1.AdmitRequest{Index: "a", QuotaChunks: 1}))
	id, err := register(0)
	refused(id, err, verbs.ErrRefused)
	must(admin(t, address, nil).Admit(t.Context(), &rpcv1.AdmitRequest{Index: "a", QuotaChunks: 1}))
	id, err = register(s.Incarnation() + 1)
	refused(id, err, verbs.ErrLostMemory)
	if id, err = register(s.Incarnation()); id != 1 || err != nil {
		t.Errorf("client %d, error %v", id, err)
	}
	must(operator.Fence(t.Context(), &rpcv1.FenceRequest{Index: "a", Clients: []uint32{1}}))
	stop()
	if id, err = register(s.Incarnation()); !errors.Is(err, verbs.ErrDisconnected) {
		t.Errorf("client %d, error %v", id, err)
	}
	if known := must(operator.ListClients(t.Context(), &rpcv1.ListClientsRequest{Index: "a"})); len(known.Clients) != 1 {
		t.Errorf("the home server knows %v", known.Clients)
	}
}
