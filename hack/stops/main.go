// Command stops runs a package's tests on a machine that stands still again and again: it builds
// the package's test binary, runs copies of it side by side, and stops each copy with all of its
// children (SIGSTOP) at random moments, for 0.05 to 2.2 s.
//
//	stops [-seed N] [-copies N] [-for DURATION] [-run REGEXP] [-tags TAGS] PACKAGE
//
// A test that fails under it relies on a machine that never stands still, or a product does. The
// seed of a failure replays the moments of the stops, not what the processes do in between. A
// process that stands still by itself, or because a test stopped it, is left alone.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Bounds of a stop, and of the time between two.
const (
	shortest, longest = 50 * time.Millisecond, 2200 * time.Millisecond
	between           = 1500 * time.Millisecond
)

func main() {
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano())%1_000_000, "of the moments of the stops")
	copies := flag.Int("copies", 2, "how many run side by side")
	limit := flag.Duration("for", 10*time.Minute, "how long a copy may take, its stops included")
	run := flag.String("run", "", "tests to run, as in go test; empty = all")
	tags := flag.String("tags", "invariants", "build tags")
	flag.Parse()
	if flag.NArg() != 1 || *copies < 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := stops(flag.Arg(0), *tags, *run, *seed, *copies, *limit); err != nil {
		fmt.Fprintln(os.Stderr, "stops:", err)
		fmt.Fprintf(os.Stderr, "replay with: go run ./hack/stops -seed %d -copies %d -tags %q -run %q %s\n", *seed, *copies, *tags, *run, flag.Arg(0))
		os.Exit(1)
	}
}

func stops(pkg, tags, run string, seed uint64, copies int, limit time.Duration) error {
	folder, err := os.MkdirTemp("", "stops")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	binary := filepath.Join(folder, "test")
	build := exec.Command("go", "test", "-c", "-tags", tags, "-o", binary, pkg)
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build the tests of %s: %w", pkg, err)
	}
	dir, err := exec.Command("go", "list", "-tags", tags, "-f", "{{.Dir}}", pkg).Output()
	if err != nil {
		return fmt.Errorf("find %s: %w", pkg, err)
	}
	fmt.Printf("%s: %d copies, seed %d\n", pkg, copies, seed)
	var group sync.WaitGroup
	failed := make([]error, copies)
	for n := range copies {
		group.Go(func() {
			cmd := exec.Command(binary, "-test.count=1", "-test.timeout=0", "-test.run="+run, "-test.short")
			cmd.Dir = strings.TrimSpace(string(dir))
			t, out, err := underStops(cmd, seed, n, limit)
			fmt.Printf("copy %d: %v in %v, %d stops, %v of them standing still\n", n, verdict(err), t.took.Round(time.Second), t.stops, t.still.Round(time.Second))
			if err != nil {
				fmt.Printf("%s\n", tail(out, 6000))
				failed[n] = err
			}
		})
	}
	group.Wait()
	for n, err := range failed {
		if err != nil {
			return fmt.Errorf("copy %d of the tests of %s: %w", n, pkg, err)
		}
	}
	return nil
}

func verdict(err error) string {
	if err != nil {
		return "failed"
	}
	return "passed"
}

func tail(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

// tally is what was done to a process.
type tally struct {
	took, still time.Duration
	stops       int
}

// underStops runs a command in a process group of its own, and stops the group by the schedule of a
// seed and a copy's number.
func underStops(cmd *exec.Cmd, seed uint64, copy int, limit time.Duration) (t tally, out []byte, err error) {
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 5 * time.Second // of children that outlive it and hold its output
	if err := cmd.Start(); err != nil {
		return t, nil, err
	}
	group := cmd.Process.Pid
	defer syscall.Kill(-group, syscall.SIGKILL) // what is left of it
	over := make(chan error, 1)
	go func() { over <- cmd.Wait() }()
	next := schedule(seed, copy)
	begun := time.Now()
	for {
		gap, stop := next()
		select {
		case err := <-over:
			t.took = time.Since(begun)
			return t, b.Bytes(), err
		case <-time.After(gap):
		}
		if time.Since(begun) > limit {
			_ = syscall.Kill(group, syscall.SIGQUIT) // Go prints where its goroutines are
			select {
			case <-over:
			case <-time.After(10 * time.Second):
				_ = syscall.Kill(-group, syscall.SIGKILL)
				<-over
			}
			t.took = time.Since(begun)
			return t, b.Bytes(), fmt.Errorf("it did not end within %v", limit)
		}
		stopped := stopGroup(group)
		time.Sleep(stop)
		for _, pid := range stopped {
			_ = syscall.Kill(pid, syscall.SIGCONT) // it may be dead
		}
		t.stops++
		t.still += stop
	}
}

// schedule are the times between stops and of stops, a function of the seed and the copy.
func schedule(seed uint64, copy int) func() (gap, stop time.Duration) {
	r := rand.New(rand.NewPCG(seed, uint64(copy)))
	return func() (gap, stop time.Duration) {
		return time.Duration(r.Int64N(int64(between))), shortest + time.Duration(r.Int64N(int64(longest-shortest)))
	}
}

// stopGroup stops the processes of a group that run, and returns them: parents before children, and
// one generation stands still before the next is looked at. Else a test could stop a child that
// this has stopped already, and which would go on again against the test's will.
func stopGroup(group int) (stopped []int) {
	for range 100 {
		alive := running(group, stopped)
		if len(alive) == 0 {
			break
		}
		for pid, parent := range alive {
			if _, ok := alive[parent]; !ok && !slices.Contains(stopped, pid) && syscall.Kill(pid, syscall.SIGSTOP) == nil {
				stopped = append(stopped, pid)
			}
		}
		time.Sleep(time.Millisecond) // a stop takes effect when its process is next in the kernel
	}
	return stopped
}

// running are the processes of a group that do not stand still yet, and their parents. A process
// that somebody else than ours has sent SIGSTOP is not among them.
func running(group int, ours []int) map[int]int {
	alive := map[int]int{}
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range all {
		pid, err := strconv.Atoi(filepath.Base(folder))
		text, failed := os.ReadFile(folder + "/stat")
		if err != nil || failed != nil {
			continue // it ended
		}
		// pid (name) state parent group ...
		part := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(part) < 3 || part[2] != strconv.Itoa(group) || strings.ContainsAny(part[0], "TtZX") ||
			!slices.Contains(ours, pid) && stopPends(folder) {
			continue
		}
		parent, _ := strconv.Atoi(part[1])
		alive[pid] = parent
	}
	return alive
}

// stopPends reports whether a process was sent SIGSTOP and has not taken it yet.
func stopPends(folder string) bool {
	status, err := os.ReadFile(folder + "/status")
	if err != nil {
		return true // it ended
	}
	for line := range strings.Lines(string(status)) {
		if mask, ok := strings.CutPrefix(line, "ShdPnd:"); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			return err == nil && set>>(uint(syscall.SIGSTOP)-1)&1 == 1
		}
	}
	return false
}
