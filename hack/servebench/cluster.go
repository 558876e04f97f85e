package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/memserver/control"
	"github.com/dmindex/dmindex/pkg/partition"
)

// machine is what runs during a benchmark.
type machine struct {
	ctx     context.Context
	o       *options
	dir     string
	targets map[string]*target
	cgroups []string // folders, to be removed
	ports   int      // where the next free port is looked for
}

// target is something that can be asked: an index or a redis-server.
type target struct {
	name    string
	resp    []string // host:port; the first one is asked by tools that know one address
	rpc     []string
	metrics []string // of compute servers, then of memory servers
	compute []int    // pids
	memory  []int    // of memory servers
	servers []int    // pids of all servers
	replica bool     // changes are confirmed by WAIT 1
	// where the ranges of an index begin, which go to its compute servers in turn
	boundaries []string
	loaded     map[string]bool // what was loaded before reads

	processes []*exec.Cmd
	keepers   []func() // end what keeps memory twice
}

const startLimit = 30 * time.Second

// target is the one of a name, started when it is first asked for.
func (m *machine) target(name string) (*target, error) {
	if t := m.targets[name]; t != nil {
		return t, nil
	}
	if m.targets == nil {
		m.targets = map[string]*target{}
	}
	t := &target{name: name, loaded: map[string]bool{}}
	m.targets[name] = t // also if it fails: close ends what was started
	switch name {
	case "redis":
		return t, m.startRedis(t, false)
	case "redis-replica":
		return t, m.startRedis(t, true)
	}
	o, ok := indexOf(name)
	if !ok {
		return nil, fmt.Errorf("side %q: write design-transport, such as dex-tcp", name)
	}
	t.boundaries = dividedKeys(m.o.keys)
	if strings.Contains(name, service) {
		t.boundaries = serviceDivided(m.o.keys, o.compute)
	}
	return t, m.startIndex(t, o)
}

// expiring ends the name of a side whose pairs may expire and be hashes.
const expiring = "-expiry"

// indexOf is the index of a side.
func indexOf(side string) (o indexOptions, ok bool) {
	side, o.compute = cutService(side)
	o.copies = 1
	side, o.expires = strings.CutSuffix(side, expiring)
	side, o.sync = cutFiled(side)
	side, twice := strings.CutSuffix(side, copied)
	if twice {
		o.copies = 2
	}
	o.design, o.transport, ok = strings.Cut(side, "-")
	return o, ok && o.compute > 0
}

// close ends all processes.
func (m *machine) close() {
	for _, t := range m.targets {
		t.close()
	}
	for _, dir := range m.cgroups {
		_ = os.Remove(dir) // it is empty
	}
}

func (t *target) close() {
	for _, end := range t.keepers {
		end()
	}
	t.keepers = nil
	for i := len(t.processes) - 1; i >= 0; i-- { // compute servers first
		_ = t.processes[i].Process.Signal(os.Interrupt)
	}
	for _, p := range t.processes {
		done := time.AfterFunc(5*time.Second, func() { _ = p.Process.Kill() })
		_ = p.Wait() // it was told to end
		done.Stop()
	}
	t.processes = nil
}

// launch starts a process of a target, with its output in a file.
func (m *machine) launch(t *target, log string, env []string, name string, args ...string) (int, error) {
	out, err := os.Create(filepath.Join(m.dir, t.name+"-"+log+".log"))
	if err != nil {
		return 0, err
	}
	defer out.Close()
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr, cmd.Env = out, out, append(os.Environ(), env...)
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	t.processes = append(t.processes, cmd)
	t.servers = append(t.servers, cmd.Process.Pid)
	return cmd.Process.Pid, nil
}

// The ports of servers lie below those that the kernel gives to clients: one of these could be in
// use by the time that its server listens.
const firstPort, lastPort = 20000, 29999

// freePort is a port that nobody listens on and that was not given before, until all were.
func (m *machine) freePort() (string, error) {
	for range lastPort - firstPort + 1 {
		address := fmt.Sprintf("127.0.0.1:%d", firstPort+m.ports%(lastPort-firstPort+1))
		m.ports++
		if l, err := net.Listen("tcp", address); err == nil {
			return address, l.Close()
		}
	}
	return "", fmt.Errorf("no port from %d to %d is free", firstPort, lastPort)
}

func (m *machine) freePorts(n int) ([]string, error) {
	ports := make([]string, n)
	for i := range ports {
		var err error
		if ports[i], err = m.freePort(); err != nil {
			return nil, err
		}
	}
	return ports, nil
}

func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

// startRedis starts a redis-server that stores nothing on disk, perhaps with a replica.
func (m *machine) startRedis(t *target, replica bool) error {
	ports, err := m.freePorts(2)
	if err != nil {
		return err
	}
	args := func(port string) []string {
		return []string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", m.dir, "--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"}
	}
	if _, err := m.launch(t, "server", nil, "redis-server", args(portOf(ports[0]))...); err != nil {
		return err
	}
	t.resp = ports[:1]
	if replica {
		if _, err := m.launch(t, "replica", nil, "redis-server", append(args(portOf(ports[1])), "--replicaof", "127.0.0.1", portOf(ports[0]))...); err != nil {
			return err
		}
		t.replica = true
	}
	return m.await(t)
}

// indexOptions are those of an index that is started.
type indexOptions struct {
	design, transport string
	compute           int
	copies            int    // of each memory server
	sync              string // when files have a change; empty = there are no files
	expires           bool
	processors        float64 // of each compute server, as its cgroup bounds them; 0 = no bound
}

// startIndex starts two memory servers and the compute servers of an index, and does the operator's
// part.
func (m *machine) startIndex(t *target, o indexOptions) error {
	ix := &config.Index{
		Identity: t.name, Name: t.name, Design: o.design, KeyType: config.KeyBytes, MaxKeyBytes: 64, MaxValueBytes: 2048,
		Durability: "Memory", Routing: config.RoutingAny,
	}
	if o.expires {
		ix.Expiry = config.ExpiryEnabled
	}
	var servers []control.Server
	var metrics []string
	for i := range 2 {
		controls, ports, err := m.startMemory(t, i+1, o)
		if err != nil {
			return err
		}
		metrics = append(metrics, ports...)
		ix.MemoryServers = append(ix.MemoryServers, config.MemoryServer{ID: uint16(i + 1), Control: controls[0], Copies: controls[1:], Pod: podOf(i+1, 0)})
		servers = append(servers, control.Server{ID: uint16(i + 1), Control: controls[0], Copies: controls[1:]})
	}
	c, err := control.New(control.Config{Index: t.name, Servers: servers, Provider: o.transport})
	if err != nil {
		return err
	}
	defer c.Close()
	incarnations, err := m.admit(c)
	if err != nil {
		return fmt.Errorf("admit the index: %w; %s", err, m.logs(t))
	}
	for i, incarnation := range incarnations {
		ix.MemoryServers[i].Incarnation = incarnation
	}
	if err := ix.Validate(); err != nil {
		return err
	}
	if err := m.startCompute(t, ix, c, o); err != nil {
		return err
	}
	t.metrics = append(t.metrics, metrics...)
	return m.await(t)
}

// startMemory starts the processes of a memory server. It returns where these answer calls, and
// have metrics.
func (m *machine) startMemory(t *target, id int, o indexOptions) (controls, metrics []string, err error) {
	for i := range o.copies {
		ports, err := m.freePorts(4)
		if err != nil {
			return nil, nil, err
		}
		args := []string{"memserver", "--id", strconv.Itoa(id), "--memory", "1Gi", "--control", ports[0], "--metrics", ports[1], "--insecure", "--pprof"}
		if o.transport == "shm" {
			args = append(args, "--fabric", "", "--shm", filepath.Join(m.dir, fmt.Sprintf("%s-%d", t.name, id)))
		} else {
			args = append(args, "--fabric", ports[2])
		}
		if o.sync != "" {
			args = append(args, "--persist", filepath.Join(m.dir, fmt.Sprintf("%s-%d-%d", t.name, id, i)), "--persist-sync", o.sync)
		}
		name := fmt.Sprint("memory-", id)
		if o.copies > 1 {
			name = podOf(id, i)
			args = append(args, "--pod", name, "--mirror", ports[3])
		}
		pid, err := m.launch(t, name, nil, m.o.binary, args...)
		if err != nil {
			return nil, nil, err
		}
		t.memory = append(t.memory, pid)
		controls, metrics = append(controls, ports[0]), append(metrics, ports[1])
	}
	if o.copies > 1 {
		err = m.keepTwice(t, id, controls)
	}
	return controls, metrics, err
}

// admit asks the memory servers, which are being started, to admit the index.
func (m *machine) admit(c *control.Client) (incarnations []uint64, err error) {
	for end := time.Now().Add(startLimit); ; {
		// 1 GiB in chunks of 8 MiB, less what the server needs; half of the default lock table
		if incarnations, err = c.Admit(96, 64<<10, time.Second); err == nil || time.Now().After(end) || m.ctx.Err() != nil {
			return incarnations, errors.Join(err, m.ctx.Err())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// startCompute swaps in the partition map and starts the compute servers.
func (m *machine) startCompute(t *target, ix *config.Index, c *control.Client, o indexOptions) error {
	text, err := json.Marshal(ix)
	if err != nil {
		return err
	}
	file := filepath.Join(m.dir, t.name+".json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	var members []partition.Server
	for i := range o.compute {
		ports, err := m.freePorts(3)
		if err != nil {
			return err
		}
		t.resp, t.rpc, t.metrics = append(t.resp, ports[0]), append(t.rpc, ports[1]), append(t.metrics, ports[2])
		members = append(members, partition.Server{ID: uint32(i + 1), Name: fmt.Sprint("compute-", i+1), RPC: ports[1], RESP: ports[0]})
	}
	var boundaries [][]byte
	for _, b := range t.boundaries {
		boundaries = append(boundaries, []byte(b))
	}
	first, err := partition.ByBoundaries(t.name, members, boundaries)
	if err != nil {
		return err
	}
	encoded, err := first.Marshal(nil)
	if err != nil {
		return err
	}
	if err := c.SwapMap(0, first.Generation, encoded, startLimit); err != nil {
		return fmt.Errorf("give the index its partition map: %w", err)
	}
	for i := range o.compute {
		pid, err := m.launch(t, fmt.Sprint("compute-", i+1), nil, m.o.binary, "computeserver", "--id", strconv.Itoa(i+1), "--name", fmt.Sprint("compute-", i+1), "--index-config", file,
			"--transport", o.transport, "--insecure", "--no-password", "--resp", t.resp[i], "--rpc", t.rpc[i], "--metrics", t.metrics[i], "--pprof")
		if err != nil {
			return err
		}
		t.compute = append(t.compute, pid)
		if o.processors > 0 {
			if err := m.limit(t, i, pid, o.processors); err != nil {
				return err
			}
		}
	}
	return nil
}

// await waits until every server answers a read and a change of each of its ranges.
func (m *machine) await(t *target) error {
	end := time.Now().Add(startLimit)
	for _, address := range t.resp {
		for _, key := range append([]string{"0"}, t.boundaries...) {
			for {
				err := askOnce(address, "SET", key, "x")
				if err == nil {
					break
				}
				if m.ctx.Err() != nil || time.Now().After(end) {
					return fmt.Errorf("%s does not serve %q: %w; %s", t.name, key, err, m.logs(t))
				}
				time.Sleep(20 * time.Millisecond)
			}
		}
	}
	return nil
}

// logs are the ends of what the servers of a target wrote.
func (m *machine) logs(t *target) string {
	files, _ := filepath.Glob(filepath.Join(m.dir, t.name+"-*.log"))
	text := ""
	for _, file := range files {
		b, _ := os.ReadFile(file)
		text += fmt.Sprintf("\n%s: %s", filepath.Base(file), b[max(0, len(b)-500):])
	}
	return text
}
