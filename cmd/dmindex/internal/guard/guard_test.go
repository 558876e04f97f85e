package guard

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const childEnv = "DMINDEX_GUARD_TEST"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		g, err := Take(dir, 0)
		if err != nil || g.Useless() != nil || g.Note("index", 7) != nil {
			os.Exit(1)
		}
		os.Stdout.WriteString("locked\n")
		os.Stdin.Read(make([]byte, 1)) // until it is killed
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// inMemory is a new directory on a file system whose locks this kernel keeps.
func inMemory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "dmindex-guard")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// take locks a directory for a test, which gives it back as the end of its process would.
func take(t *testing.T, dir string) *Guard {
	t.Helper()
	before := len(held)
	g, err := Take(dir, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { release(before) })
	return g
}

func release(before int) {
	for _, f := range held[min(before, len(held)):] {
		f.Close()
	}
	held = held[:min(before, len(held))]
}

// TestTake: while a process lives, stopped or not, nobody else gets its lock; when it is killed,
// the next one has it at once, and its clients are confirmed dead.
func TestTake(t *testing.T) {
	dir := inMemory(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	if n, err := out.Read(make([]byte, 16)); n == 0 {
		t.Fatalf("the child has no lock: %v", err)
	}
	if _, err := Take(dir, 50*time.Millisecond); !errors.Is(err, ErrInUse) {
		t.Errorf("while the child lives: %v", err)
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := Take(dir, 50*time.Millisecond); !errors.Is(err, ErrInUse) {
		t.Errorf("while the child stands still: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	g := take(t, dir)
	_ = cmd.Wait() // it was killed
	if g.Useless() != nil || !g.Confirms("index", 7) {
		t.Errorf("the client of the process that was killed is not confirmed dead: %v", g.Useless())
	}
	if g.Confirms("index", 8) || g.Confirms("other", 7) {
		t.Error("clients are confirmed dead that no process noted")
	}
}

// TestProof: only what was noted in this directory and under this kernel proves anything.
func TestProof(t *testing.T) {
	dir := inMemory(t)
	kernel := func(id string) {
		bootID = filepath.Join(t.TempDir(), "boot_id")
		if err := os.WriteFile(bootID, []byte(id+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	defer func(before string) { bootID = before }(bootID)
	next := func(do func(g *Guard)) {
		t.Helper()
		before := len(held)
		g, err := Take(dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		do(g)
		release(before)
	}
	kernel("one")
	next(func(g *Guard) {
		for _, n := range []uint32{1, 2} {
			if err := g.Note("index", n); err != nil {
				t.Fatal(err)
			}
		}
	})
	next(func(g *Guard) {
		if !g.Confirms("index", 1) || !g.Confirms("index", 2) || g.Confirms("index", 3) {
			t.Error("what the process before it noted is not what is confirmed")
		}
	})
	kernel("two")
	next(func(g *Guard) {
		if g.Confirms("index", 1) {
			t.Error("a client is confirmed dead that another kernel may still run")
		}
		if err := g.Note("index", 3); err != nil {
			t.Fatal(err)
		}
	})
	name := filepath.Join(dir, record)
	whole, err := os.ReadFile(name)
	if err == nil {
		// of 65 and "index", when its process died
		err = os.WriteFile(name, append(whole, "two 65"...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	next(func(g *Guard) {
		if !g.Confirms("index", 3) || g.Confirms("index", 65) || g.Confirms("index", 1) {
			t.Error("a line that was cut short, or one of another kernel, is believed, or hides others")
		}
		if err := g.Note("index", 4); err != nil {
			t.Fatal(err)
		}
	})
	next(func(g *Guard) {
		if !g.Confirms("index", 4) || g.Confirms("index", 65) {
			t.Error("what is noted behind a line that was cut short is lost")
		}
	})
	if err := os.WriteFile(name, []byte(strings.Repeat("one 9 index\n", 4000)), 0o600); err != nil {
		t.Fatal(err)
	}
	next(func(g *Guard) { _ = g.Note("index", 5) })
	if info, err := os.Stat(name); err != nil || info.Size() > mostOld {
		t.Errorf("the record grows without bound: %v, %v", info.Size(), err)
	}
	bootID = filepath.Join(t.TempDir(), "missing")
	next(func(g *Guard) {
		if g.Useless() == nil {
			t.Error("a kernel without a boot ID proves something")
		}
	})
}

// TestSharedFileSystems: locks on a file system that other kernels may have, too, prove nothing.
func TestSharedFileSystems(t *testing.T) {
	const fuse, nfs, p9, overlay, tmpfs = 0x65735546, 0x6969, 0x01021997, 0x794C7630, 0x01021994
	for _, kind := range []int64{fuse, nfs, p9, overlay} {
		if kernelsOwn(kind) {
			t.Errorf("type %#x is taken for this kernel's own", kind)
		}
	}
	if !kernelsOwn(tmpfs) {
		t.Error("tmpfs is not taken for this kernel's own")
	}
	if g := take(t, "/proc/self"); g.Useless() == nil { // neither of them is meant for that
		t.Error("a directory of /proc proves something")
	}
}

// TestTakeNothing: what cannot be locked is said.
func TestTakeNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, file + "/more", filepath.Join(t.TempDir(), "missing")} {
		if _, err := Take(path, 0); err == nil {
			t.Errorf("%s is locked", path)
		}
	}
}
