package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
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

// counts are what the servers of a target did for an operation, all of them together: compute and
// memory servers, or redis-server.
type counts struct {
	Processor float64 `json:"processorMicroseconds"`
	User      float64 `json:"userMicroseconds"`   // of Processor, outside of the kernel
	Memory    float64 `json:"memoryMicroseconds"` // of Processor, of memory servers
	Client    float64 `json:"clientMicroseconds"` // processor time of who asks; not in Processor
	// processors at work during the run, of all processes here
	Busy        float64 `json:"busyCores"`
	SystemCalls float64 `json:"systemCalls"` // 0 where perf is missing
	Switches    float64 `json:"contextSwitches"`
	Allocations float64 `json:"allocations"` // of compute servers
	Trips       float64 `json:"roundTrips"`  // of compute servers' operations to memory servers
	// work requests to memory servers by kind
	Verbs map[string]float64 `json:"verbs,omitempty"`
}

// counter counts from its start on.
type counter struct {
	t       *target
	perf    *exec.Cmd
	file    string
	used    usage
	client  float64
	busy    float64
	began   time.Time
	metrics map[string]float64
}

// usage is processor time in seconds.
type usage struct{ user, kernel, memory float64 }

// userHertz is the unit of processor time in /proc, on every Linux.
const userHertz = 100

func startCounting(m *machine, t *target) (*counter, error) {
	c := &counter{t: t, file: filepath.Join(m.dir, "perf")}
	var err error
	if c.metrics, err = t.scrape(); err != nil {
		return nil, err
	}
	if _, err := exec.LookPath("perf"); err == nil {
		var pids []string
		for _, pid := range t.servers {
			pids = append(pids, fmt.Sprint(pid))
		}
		c.perf = exec.Command("perf", "stat", "-x", ",", "-o", c.file, "-e", "raw_syscalls:sys_enter,context-switches", "-p", strings.Join(pids, ","))
		if err := c.perf.Start(); err != nil {
			return nil, err
		}
	}
	c.used, c.client, c.busy, c.began = t.usage(), clientSeconds(), busySeconds(), time.Now()
	return c, nil
}

// end returns the counts for each of so many operations.
func (c *counter) end(operations int) (*counts, error) {
	n := float64(operations)
	used, elapsed := c.t.usage(), time.Since(c.began).Seconds()
	user, kernel := used.user-c.used.user, used.kernel-c.used.kernel
	result := &counts{
		Processor: (user + kernel) * 1e6 / n, User: user * 1e6 / n, Memory: (used.memory - c.used.memory) * 1e6 / n,
		Client: (clientSeconds() - c.client) * 1e6 / n, Busy: (busySeconds() - c.busy) / elapsed,
	}
	metrics, err := c.t.scrape()
	result.Allocations = (metrics["go_memstats_mallocs_total"] - c.metrics["go_memstats_mallocs_total"]) / n
	result.Trips = (metrics["dmindex_compute_round_trips_total"] - c.metrics["dmindex_compute_round_trips_total"]) / n
	for name, value := range metrics {
		if kind, ok := strings.CutPrefix(name, `dmindex_compute_verbs_total{verb="`); ok && value > c.metrics[name] {
			if result.Verbs == nil {
				result.Verbs = map[string]float64{}
			}
			result.Verbs[strings.TrimSuffix(kind, `"}`)] = (value - c.metrics[name]) / n
		}
	}
	if c.perf != nil {
		_ = c.perf.Process.Signal(syscall.SIGINT)
		_ = c.perf.Wait()              // it ends by the signal
		text, _ := os.ReadFile(c.file) // it may have ended before it had begun to count
		_ = os.Remove(c.file)
		for _, line := range strings.Split(string(text), "\n") {
			fields := strings.Split(line, ",")
			if len(fields) < 3 {
				continue
			}
			value, failed := strconv.ParseFloat(fields[0], 64)
			switch {
			case failed != nil: // the event is not counted here
			case strings.HasPrefix(fields[2], "raw_syscalls"):
				result.SystemCalls = value / n
			case strings.HasPrefix(fields[2], "context-switches"):
				result.Switches = value / n
			}
		}
	}
	return result, err
}

// usage is the processor time of all servers.
func (t *target) usage() (sum usage) {
	for _, pid := range t.servers {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // it has ended, and the run fails
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		user, _ := strconv.ParseFloat(fields[11], 64)
		kernel, _ := strconv.ParseFloat(fields[12], 64)
		sum.user, sum.kernel = sum.user+user/userHertz, sum.kernel+kernel/userHertz
		if slices.Contains(t.memory, pid) {
			sum.memory += (user + kernel) / userHertz
		}
	}
	return sum
}

// clientSeconds is the processor time of this process, and of the tools that have ended.
func clientSeconds() (sum float64) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if syscall.Getrusage(who, &u) == nil {
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
		}
	}
	return sum
}

// busySeconds is the time that the processors of this machine were at work.
func busySeconds() (sum float64) {
	text, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(text), "\n")
	for i, field := range strings.Fields(line)[1:] {
		// 3 and 4 are idle, and waiting for a disk
		if n, err := strconv.ParseFloat(field, 64); err == nil && i != 3 && i != 4 && i < 8 {
			sum += n / userHertz
		}
	}
	return sum
}

// scrape sums the metrics of the compute servers, with their labels and over them.
func (t *target) scrape() (map[string]float64, error) {
	sums := map[string]float64{}
	for i := range t.compute {
		reply, err := http.Get("http://" + t.metrics[i] + "/metrics")
		if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(reply.Body)
		for lines.Scan() {
			name, value, ok := strings.Cut(lines.Text(), " ")
			if !ok || name == "#" {
				continue
			}
			n, err := strconv.ParseFloat(value[strings.LastIndexByte(value, ' ')+1:], 64)
			if err != nil {
				continue
			}
			sums[name] += n
			if bare, _, ok := strings.Cut(name, "{"); ok {
				sums[bare] += n
			}
		}
		if err := errors.Join(lines.Err(), reply.Body.Close()); err != nil {
			return nil, err
		}
	}
	return sums, nil
}

// takeProfiles runs a row again and again while each server's processor profile is taken.
func (m *machine) takeProfiles(r *row, t *target, operations int) error {
	const seconds = 5
	var group sync.WaitGroup
	errs := make([]error, len(t.metrics))
	for i, address := range t.metrics {
		group.Go(func() {
			file := filepath.Join(m.o.profile, fmt.Sprintf("%s-%s-%d.pprof", r.name, t.name, i+1))
			errs[i] = download(fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", address, seconds), file)
		})
	}
	for end := time.Now().Add(seconds * time.Second); time.Now().Before(end); {
		if _, err := m.ask(r, t.name, operations, r.run); err != nil {
			return err
		}
	}
	group.Wait()
	return errors.Join(errs...)
}

func download(url, file string) error {
	reply, err := http.Get(url)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(io.LimitReader(reply.Body, 64<<20))
	if err == nil && reply.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, reply.Status)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(file, body, 0o600)
}
