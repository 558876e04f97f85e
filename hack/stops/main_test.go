package main

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestSchedule: the moments are a function of the seed and the copy, within their bounds.
func TestSchedule(t *testing.T) {
	one, same, other := schedule(7, 1), schedule(7, 1), schedule(7, 2)
	differ := false
	for range 100 {
		gap, stop := one()
		if g, s := same(); g != gap || s != stop {
			t.Fatal("the same seed has other stops")
		}
		g, s := other()
		differ = differ || g != gap || s != stop
		if stop < shortest || stop > longest || gap < 0 || gap > between {
			t.Errorf("a stop of %v after %v", stop, gap)
		}
	}
	if !differ {
		t.Error("two copies are stopped at the same moments")
	}
}

func state(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(text)[strings.LastIndexByte(string(text), ')')+1:])[0]
}

// await waits until a process stands still, or no longer.
func await(t *testing.T, pid int, still bool) {
	t.Helper()
	begun := time.Now()
	for range time.Tick(time.Millisecond) {
		if (state(t, pid) == "T") == still {
			return
		}
		if time.Since(begun) > time.Minute {
			t.Fatalf("process %d is %q after a minute", pid, state(t, pid))
		}
	}
}

// TestStopGroup: all processes of a group are stopped, and none that stood still before is among
// those that go on again.
func TestStopGroup(t *testing.T) {
	leader := exec.Command("sleep", "600")
	leader.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := leader.Start(); err != nil {
		t.Fatal(err)
	}
	defer leader.Process.Kill()
	child := exec.Command("sleep", "600")
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: leader.Process.Pid}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Process.Kill()
	if err := child.Process.Signal(syscall.SIGSTOP); err != nil { // a test did that
		t.Fatal(err)
	}
	await(t, child.Process.Pid, true)
	stopped := stopGroup(leader.Process.Pid)
	if len(stopped) != 1 || stopped[0] != leader.Process.Pid {
		t.Errorf("stopped %v of %d and %d, of which the latter stood still", stopped, leader.Process.Pid, child.Process.Pid)
	}
	await(t, leader.Process.Pid, true)
	if err := child.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	await(t, child.Process.Pid, false)
	if stopped := stopGroup(leader.Process.Pid); len(stopped) != 1 || stopped[0] != child.Process.Pid {
		t.Errorf("stopped %v, when only %d runs", stopped, child.Process.Pid)
	}
}

// TestUnderStops: the verdict is that of the command, and one that does not end is ended.
func TestUnderStops(t *testing.T) {
	if _, out, err := underStops(exec.Command("sh", "-c", "echo here; exit 3"), 1, 0, time.Minute); err == nil || string(out) != "here\n" {
		t.Errorf("a command that fails: %v, %q", err, out)
	}
	tally, _, err := underStops(exec.Command("sleep", "600"), 1, 0, 0)
	if err == nil || tally.stops != 0 {
		t.Errorf("a command that does not end: %v, %d stops", err, tally.stops)
	}
}
