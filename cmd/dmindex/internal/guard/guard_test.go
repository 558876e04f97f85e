package guard

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

const childEnv = "DMINDEX_GUARD_TEST"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if err := Take(dir, 0); err != nil {
			os.Exit(1)
		}
		os.Stdout.WriteString("locked\n")
		os.Stdin.Read(make([]byte, 1)) // until it is killed
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestTake: while a process lives, stopped or not, nobody else gets its lock; when it is killed, the next one has it at once.
func TestTake(t *testing.T) {
	dir := t.TempDir()
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
	if err := Take(dir, 50*time.Millisecond); !errors.Is(err, ErrInUse) {
		t.Errorf("while the child lives: %v", err)
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := Take(dir, 50*time.Millisecond); !errors.Is(err, ErrInUse) {
		t.Errorf("while the child stands still: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := Take(dir, 10*time.Second); err != nil {
		t.Errorf("the child is killed: %v", err)
	}
	_ = cmd.Wait() // it was killed
}

// TestTakeNothing: what cannot be locked is said.
func TestTakeNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, file + "/more", filepath.Join(t.TempDir(), "missing")} {
		if err := Take(path, 0); err == nil {
			t.Errorf("%s is locked", path)
		}
	}
}
