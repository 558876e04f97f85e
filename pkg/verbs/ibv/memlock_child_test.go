//go:build ibv

package ibv_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/ibv"
	"github.com/dmindex/dmindex/pkg/verbs/verbstest"
)

// memlockVariable makes the test program a process that may lock little.
const memlockVariable = "IBV_MEMLOCK_CHILD"

// TestMemoryLimit: a process without rights hears what is missing, before the NIC is asked, on both
// sides.
func TestMemoryLimit(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), memlockVariable+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// memlockChild is that process: not root, and with a limit that is enough for queue pairs only.
func memlockChild() error {
	const limit = 1 << 20
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
		return err
	}
	if err := syscall.Setuid(65534); err != nil {
		return err
	}
	d, err := ibv.NewDevice(options)
	if err != nil {
		return fmt.Errorf("a device within the limit: %w", err)
	}
	_, err = d.NewArena(4 << 20)
	if err := saysHow(err); err != nil {
		return fmt.Errorf("arena: %w", err)
	}
	a, err := d.NewArena(4096)
	if err != nil {
		return fmt.Errorf("an arena within the limit: %w", err)
	}
	memory, release, err := verbstest.NewMemory(4<<20, 4096)
	if err != nil {
		return err
	}
	defer release()
	_, err = ibv.NewServer(options, verbs.ServerOptions{Memory: memory, Admission: new(verbstest.Tokens)})
	if err := saysHow(err); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	return errors.Join(a.Close(), d.Close())
}

func saysHow(err error) error {
	if !errors.Is(err, ibv.ErrMemlock) {
		return fmt.Errorf("%v, want %v", err, ibv.ErrMemlock)
	}
	for _, word := range []string{"IPC_LOCK", "ulimit -l", fmt.Sprint(4 << 20), fmt.Sprint(1 << 20)} {
		if !strings.Contains(err.Error(), word) {
			return fmt.Errorf("%w does not say %q", err, word)
		}
	}
	return nil
}
