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
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// counts are what the servers of a target did for an operation, all of them together: compute and
// memory servers, or redis-server.
type counts struct {
	Processor   float64 `json:"processorMicroseconds"`
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
	ticks   float64
	metrics map[string]float64
}

// userHertz is the unit of processor time in /proc, on every Linux.
const userHertz = 100

func startCounting(m *machine, t *target) (*counter, error) {
	c := &counter{t: t, file: filepath.Join(m.dir, "perf")}
	var err error
	if c.metrics, err = t.scrape(); err != nil {
		return nil, err
	}
	c.ticks = t.ticks()
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
	return c, nil
}

// end returns the counts for each of so many operations.
func (c *counter) end(operations int) (*counts, error) {
	n := float64(operations)
	result := &counts{Processor: (c.t.ticks() - c.ticks) / userHertz * 1e6 / n}
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

// ticks is the processor time of all servers.
func (t *target) ticks() (sum float64) {
	for _, pid := range t.servers {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // it has ended, and the run fails
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		for _, i := range []int{11, 12} { // utime and stime
			n, _ := strconv.ParseFloat(fields[i], 64)
			sum += n
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
