package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// A row of scale has so many compute servers, each with a fifth of a processor, over two memory
// servers without a bound; its anchor is one such server, times their number. Connections go to the
// owners of the keys that they ask for, so nothing is forwarded. With four servers the clients and
// the memory servers have what is left of two processors.
const scaleShare = 0.2

func scaleRows() []row {
	var rows []row
	for _, servers := range []int{2, 4} {
		for _, get := range []bool{false, true} {
			r := row{name: fmt.Sprintf("scale-%d-set", servers), sides: []string{"dex-tcp"}, goal: map[string]float64{"dex-tcp": 0.9}, operations: 60_000, cgroups: true}
			reads := 0.0
			if get { // a run lasts as long, some hundred periods of the limit
				r.name, r.operations, reads = fmt.Sprintf("scale-%d-get", servers), 600_000, 1
			}
			r.what = fmt.Sprintf("%d compute servers with %g processors each, pipelines of 32 to the owners of the keys; anchor: %d times one such server", servers, scaleShare, servers)
			r.run, r.base = scaled(servers, 1, reads), scaled(1, servers, reads)
			rows = append(rows, r)
		}
	}
	return rows
}

// scaled is a run against an index with so many bounded compute servers. It lasts as long as if
// there were times as many.
func scaled(servers, times int, reads float64) func(*machine, *target, int) (time.Duration, error) {
	return func(m *machine, t *target, operations int) (time.Duration, error) {
		name := fmt.Sprintf("%s-of-%d", t.name, servers)
		s := m.targets[name]
		if s == nil {
			o, _ := indexOf(t.name)
			o.compute, o.processors = servers, scaleShare
			s = &target{name: name, loaded: map[string]bool{}}
			m.targets[name] = s
			for i := 1; i < servers; i++ {
				s.boundaries = append(s.boundaries, scalePrefix(i))
			}
			if err := m.startIndex(s, o); err != nil {
				return 0, err
			}
			for i, server := range s.resp {
				if err := fill([]string{server}, scalePrefix(i), m.o.keys/servers, set); err != nil {
					return 0, err
				}
			}
		}
		return ask(s.resp, 16, operations/times, reads, func(i int) *picker { return newPicker(scalePrefix(i%servers), m.o.keys/servers, i) })
	}
}

// ask sends pipelines of 32 commands, a share of them GETs and the others SETs, on connections that
// are spread over servers. Each has a picker of its own.
func ask(servers []string, connections, operations int, reads float64, pick func(connection int) *picker) (time.Duration, error) {
	const depth = 32
	pickers := make([]*picker, connections)
	for i := range pickers {
		pickers[i] = pick(i)
	}
	get, set, value := []byte("GET"), []byte("SET"), []byte("xxx")
	began := time.Now()
	err := crowd(servers, connections, operations, func(c *client, of int) (int, error) {
		for range depth {
			if reads > 0 {
				c.begin(2)
				c.arg(get)
				c.arg(pickers[of].next())
				continue
			}
			c.begin(3)
			c.arg(set)
			c.arg(pickers[of].next())
			c.arg(value)
		}
		return depth, c.send(depth)
	})
	return time.Since(began), err
}

// scalePrefix is the prefix of the keys of compute server i.
func scalePrefix(i int) string { return fmt.Sprintf("s%d:", i) }

// cgroup is where processor limits are set, by version 1 of the kernel's control groups.
const cgroup = "/sys/fs/cgroup/cpu"

// canLimit is why processors cannot be limited here; empty if they can.
func canLimit() string {
	dir := filepath.Join(cgroup, fmt.Sprintf("servebench-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "processors cannot be limited here: " + err.Error()
	}
	_ = os.Remove(dir) // it is empty
	return ""
}

// limit bounds the processors of a server's process.
func (m *machine) limit(t *target, i, pid int, processors float64) error {
	dir := filepath.Join(cgroup, fmt.Sprintf("servebench-%d-%s-%d", os.Getpid(), t.name, i))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	m.cgroups = append(m.cgroups, dir)
	const period = 10 * time.Millisecond
	var errs []error
	for _, w := range []struct {
		file  string
		value int
	}{{"cpu.cfs_period_us", int(period.Microseconds())}, {"cpu.cfs_quota_us", int(float64(period.Microseconds()) * processors)}, {"cgroup.procs", pid}} {
		errs = append(errs, os.WriteFile(filepath.Join(dir, w.file), []byte(fmt.Sprint(w.value)), 0o644))
	}
	return errors.Join(errs...)
}
