package ibv

import (
	"errors"
	"math"
	"os"
	"strings"
	"testing"
)

func TestLockRights(t *testing.T) {
	f := func(limit, pinned uint64, privileged bool, need uint64, want bool) {
		t.Helper()
		r := lockRights{limit, pinned, privileged}
		err := r.allow("the data region", need)
		if (err == nil) != want {
			t.Errorf("%d bytes with %+v: %v", need, r, err)
		}
		if err == nil {
			return
		}
		for _, word := range []string{"the data region", "IPC_LOCK", "ulimit -l", "RLIMIT_MEMLOCK"} {
			if !errors.Is(err, ErrMemlock) || !strings.Contains(err.Error(), word) {
				t.Errorf("%v does not say %q", err, word)
			}
		}
	}
	f(8<<20, 0, false, 8<<20, true)
	f(8<<20, 4096, false, 8<<20, false)
	f(8<<20, 4<<20, false, 4<<20, true)
	f(0, 0, false, 1, false)
	f(0, 0, true, 1<<40, true)
	f(math.MaxUint64, 1<<30, false, 1<<40, true)
	f(math.MaxUint64, 1<<30, false, math.MaxUint64, false)
}

func TestParseStatus(t *testing.T) {
	const text = "Name:\tx\nVmLck:\t       9 kB\nVmPin:\t      12 kB\nCapPrm:\t0000000000000000\nCapEff:\t0000000000004000\n"
	var r lockRights
	if err := r.parseStatus(text); err != nil || r.pinned != 12<<10 || !r.privileged {
		t.Errorf("%+v, %v", r, err)
	}
	if err := r.parseStatus(strings.Replace(text, "4000", "b000", 1)); err != nil || r.privileged {
		t.Errorf("all capabilities but IPC_LOCK: %+v, %v", r, err)
	}
	for _, bad := range []string{"", "VmPin:\t1 kB\n", "VmPin:\tmuch\nCapEff:\t0\n", "VmPin:\t1 kB\nCapEff:\tall\n"} {
		if err := r.parseStatus(bad); err == nil {
			t.Errorf("%q is understood", bad)
		}
	}
	own, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.parseStatus(string(own)); err != nil {
		t.Errorf("this kernel's own words: %v", err)
	}
	if err := mayLock("nothing", 0); err != nil {
		t.Error(err)
	}
}
