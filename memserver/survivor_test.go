package memserver

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// counterEnv makes the test program a client that connects with the grant (JSON) in it and adds 1
// to a word until it is refused.
const counterEnv = "DMINDEX_TEST_COUNTER"

// counterLock is the first of the four locks whose word it counts in, as a client that works.
const counterLock = 8

func counterMain(text string) {
	var grant pool.Grant
	if err := json.Unmarshal([]byte(text), &grant); err != nil {
		panic(err)
	}
	device := deviceOf(grant.Provider)
	conn := must(device.Connect(grant.Target, limit))
	arena := must(device.NewArena(1 << 16))
	qp := must(conn.NewQP(arena))
	old := must(arena.Alloc(8))
	for err := error(nil); err == nil; {
		err = verbs.Post(qp, []verbs.Request{{Op: verbs.FetchAdd, Region: verbs.RegionLocks, Remote: grant.LockOffset + 2*counterLock, Local: old, Add: 1 << 32}})
	}
	fmt.Println("refused")
	io.Copy(io.Discard, os.Stdin)
}

// counter starts a process that counts, and stops it in the middle.
func counter(t *testing.T, grant pool.Grant, look *holder) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), counterEnv+"="+string(must(json.Marshal(grant))))
	cmd.Stderr = t.Output()
	must(cmd.StdinPipe())
	out := bufio.NewReader(must(cmd.StdoutPipe()))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	for must(look.add(counterLock, 0))>>32 < 100 {
		if out.Buffered() > 0 {
			t.Fatal("the client was refused")
		}
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("the client does not stop: %v, %v", err, status)
	}
	return cmd
}

// TestFenceOfASurvivor: a client of shm maps the memory, so one that stands still outlives its
// memory server as a danger. The next server knows that: it refuses the client and leaves its locks
// alone until its process is dead; then it finishes the fence by itself.
func TestFenceOfASurvivor(t *testing.T) {
	dir := t.TempDir()
	process, addresses, err := child(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	c := client(t, addresses.Control, "a", "shm", nil)
	must(c.Admit(1, 64, limit))
	watch := newHolder(t, c, 2)
	frozen := counter(t, must(c.Connect(7, 1, limit)), watch)
	chunk := must(c.AllocateChunk(7, 1, 256, false, limit))
	must(watch.add(4, locks(1, 2, 0, 0)))
	if err := process.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	process.Wait()

	s, stop := start(t, dirConfig(dir))
	m := admin(t, s.Addresses().Control, nil)
	c = client(t, s.Addresses().Control, "a", "shm", nil)
	fence := func() error {
		return c.Fence(7, []uint32{1, 3}, limit)
	}
	loud := func(err error) {
		t.Helper()
		if !errors.Is(err, verbs.ErrTimeout) || !strings.Contains(err.Error(), "client 1 of index a") || strings.Contains(err.Error(), "client 3 of index a") {
			t.Errorf("the client stands still: %v", err)
		}
		if got := must(watch.add(4, 0)); got != locks(1, 2, 0, 0) {
			t.Errorf("its locks are %#x", got)
		}
		if r := must(c.Renew(7, 2, pool.Epochs{Passed: 1, Wanted: 3}, limit)); r.Epoch != 1 || r.Safe != 0 {
			t.Errorf("it counts no more: %+v", r)
		}
		if got, err := c.AllocateChunk(7, 2, 256, true, limit); !errors.Is(err, pool.ErrPoolFull) {
			t.Errorf("its chunk %#x is adopted: %v", got, err)
		}
		if _, err := c.Connect(7, 1, limit); !errors.Is(err, pool.ErrFenced) {
			t.Errorf("it connects: %v", err)
		}
	}
	watch = newHolder(t, c, 2)
	loud(fence())
	loud(fence())
	_, err = m.Renew(t.Context(), &rpcv1.RenewRequest{Index: "a", Client: 1})
	wantCode(t, "renew", err, codes.Aborted)

	stop() // and once more, now with a fence that was stored and not finished
	s, _ = start(t, dirConfig(dir))
	c = client(t, s.Addresses().Control, "a", "shm", nil)
	watch = newHolder(t, c, 2)
	loud(fence())
	frozen.Process.Kill()
	frozen.Wait()
	// nobody asks: the lease loop does it
	for must(watch.add(4, 0)) != locks(pool.Repair, 2, 0, 0) {
		must(c.Renew(7, 2, pool.Epochs{}, limit))
	}
	// that is noted after its locks are turned
	for left := []uint32{1}; len(left) != 0; must(c.Renew(7, 2, pool.Epochs{}, limit)) {
		s.control.Accounts.Read(func(l *ledger.Ledger) { left = l.Unfinished("a") })
	}
	if err := fence(); err != nil {
		t.Errorf("fence of the dead: %v", err)
	}
	if r := must(c.Renew(7, 2, pool.Epochs{Passed: 1, Wanted: 3}, limit)); r.Epoch != 2 || r.Safe != 1 {
		t.Errorf("it still counts: %+v", r)
	}
	if got := must(c.AllocateChunk(7, 2, 256, true, limit)); got != chunk {
		t.Errorf("chunk %#x is adopted, want %#x", got, chunk)
	}
}

// TestFenceOverTCPOfAFrozenClient: the server executes the requests of tcp, so who stands still is
// fenced at once and does no harm when it goes on.
func TestFenceOverTCPOfAFrozenClient(t *testing.T) {
	s, _ := start(t, localConfig(t))
	c := client(t, s.Addresses().Control, "a", "tcp", nil)
	must(c.Admit(1, 64, limit))
	watch := newHolder(t, c, 2)
	frozen := counter(t, must(c.Connect(7, 1, limit)), watch)
	must(watch.add(4, locks(1, 2, 0, 0)))
	if err := c.Fence(7, []uint32{1}, limit); err != nil {
		t.Fatal(err)
	}
	if got := must(watch.add(4, 0)); got != locks(pool.Repair, 2, 0, 0) {
		t.Errorf("its locks are %#x", got)
	}
	before := must(watch.add(counterLock, 0))
	if err := frozen.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for range 2000 {
		if got := must(watch.add(counterLock, 0)); got != before {
			t.Fatalf("thawed, it changes memory: %#x became %#x", before, got)
		}
	}
}
