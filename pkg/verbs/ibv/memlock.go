package ibv

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrMemlock is returned when the process may not lock as much memory as is to be registered.
var ErrMemlock = errors.New("not enough memory may be locked")

// lockRights is what decides whether memory may be registered with a NIC: the pages are pinned.
type lockRights struct {
	limit      uint64 // RLIMIT_MEMLOCK, bytes
	pinned     uint64 // bytes that are pinned already
	privileged bool   // CAP_IPC_LOCK: the limit does not count
}

// allow reports whether need more bytes may be registered for what.
func (r *lockRights) allow(what string, need uint64) error {
	if r.privileged || r.pinned+need >= need && r.pinned+need <= r.limit {
		return nil
	}
	return fmt.Errorf("%w: %s needs %d bytes, %d are locked and the limit (RLIMIT_MEMLOCK) is %d; give the process the capability IPC_LOCK, or raise the limit (ulimit -l unlimited, LimitMEMLOCK=infinity)",
		ErrMemlock, what, need, r.pinned, r.limit)
}

// capIPCLock is the number of CAP_IPC_LOCK.
const capIPCLock = 14

// parseStatus reads what /proc/self/status says of r.
func (r *lockRights) parseStatus(text string) error {
	found := 0
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		fields := strings.Fields(value)
		if len(fields) == 0 {
			continue
		}
		switch name {
		case "VmPin":
			kib, err := strconv.ParseUint(fields[0], 10, 54)
			if err != nil {
				return fmt.Errorf("VmPin: %w", err)
			}
			r.pinned = kib << 10
			found++
		case "CapEff":
			bits, err := strconv.ParseUint(fields[0], 16, 64)
			if err != nil {
				return fmt.Errorf("CapEff: %w", err)
			}
			r.privileged = bits>>capIPCLock&1 != 0
			found++
		}
	}
	if found != 2 {
		return errors.New("VmPin or CapEff is missing")
	}
	return nil
}

// mayLock asks the kernel whether need more bytes may be registered for what.
func mayLock(what string, need uint64) error {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return fmt.Errorf("what may be locked: %w", err)
	}
	var r lockRights
	if err := r.parseStatus(string(text)); err != nil {
		return fmt.Errorf("what may be locked: /proc/self/status: %w", err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return fmt.Errorf("what may be locked: %w", err)
	}
	r.limit = limit.Cur
	return r.allow(what, need)
}
