package memory

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"github.com/dmindex/dmindex/memserver/keeper"
)

// processes are those of one memory server. Each is a pod of its own to the keeper: it has no
// directory, so nothing of it is left when it ends.
type processes struct {
	server *twice

	mu struct {
		sync.Mutex
		all  []*process
		made int // ever
		lost int // that ended, or did not start, since the content was last there twice
		over bool
	}
	running sync.WaitGroup
}

type process struct {
	pod  keeper.Pod
	cmd  *exec.Cmd
	said *tail
}

// mostLost is how many processes may end before the content is there twice again.
const mostLost = 5

func newProcesses(s *twice) *processes { return &processes{server: s} }

// pods are those that run.
func (p *processes) pods() []keeper.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	pods := make([]keeper.Pod, len(p.mu.all))
	for i, r := range p.mu.all {
		pods[i] = r.pod
	}
	return pods
}

// pid is the number of a pod's process; 0 = it has ended.
func (p *processes) pid(pod string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.mu.all {
		if r.pod.Name == pod {
			return r.cmd.Process.Pid
		}
	}
	return 0
}

// nameProcesses is a message with processes in place of pods.
func (p *processes) nameProcesses(message string) string {
	for _, pod := range p.pods() {
		message = strings.ReplaceAll(message, "pod "+pod.Name+" ", fmt.Sprintf("process %d ", p.pid(pod.Name)))
	}
	return message
}

// make starts a process. It ends with this one, however that ends: the kernel kills it.
func (p *processes) make() error {
	ports, err := freePorts(2)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	c := &p.server.all.config
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.over {
		return nil
	}
	if p.mu.lost >= mostLost {
		return fmt.Errorf("%d processes ended before one of them had a copy", p.mu.lost)
	}
	p.mu.made++
	r := &process{pod: keeper.Pod{Name: fmt.Sprintf("memory-%d-%d", p.server.id, p.mu.made), Control: ports[0]}, said: &tail{}}
	args := []string{"memserver", "--id", fmt.Sprint(p.server.id), "--pod", r.pod.Name, "--memory", fmt.Sprint(c.Bytes), "--insecure", "--metrics", "",
		"--control", ports[0], "--fabric", "127.0.0.1:0", "--mirror", ports[1]}
	if c.ChunkBytes > 0 {
		args = append(args, "--chunk-size", fmt.Sprint(c.ChunkBytes))
	}
	if c.Lease > 0 {
		args = append(args, "--lease", c.Lease.String())
	}
	r.cmd = exec.Command(program, args...)
	r.cmd.Stderr = r.said
	if c.Stderr != nil {
		r.cmd.Stderr = io.MultiWriter(r.said, c.Stderr)
	}
	// an interrupt from the terminal is for the process that runs compute servers: they end first
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := r.cmd.Start(); err != nil {
		p.mu.lost++
		return err
	}
	p.mu.all = append(p.mu.all, r)
	p.running.Go(func() { p.follow(r) })
	return nil
}

// follow waits until a process has ended, which takes its pod away.
func (p *processes) follow(r *process) {
	err := r.cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, other := range p.mu.all {
		if other == r {
			p.mu.all = append(p.mu.all[:i], p.mu.all[i+1:]...)
			break
		}
	}
	if p.mu.lost++; p.mu.lost >= mostLost && !p.mu.over {
		p.server.all.fail(fmt.Errorf("memory server %d: %d processes ended before one of them had a copy, the last one with %v: %s; look why they end, and start anew",
			p.server.id, p.mu.lost, err, r.said))
	}
}

// settled says that the content is there twice.
func (p *processes) settled() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.lost = 0
}

// kill ends the process of a pod.
func (p *processes) kill(pod string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.mu.all {
		if r.pod.Name == pod {
			_ = r.cmd.Process.Kill() // it may have ended
		}
	}
}

// close ends all processes and waits for that.
func (p *processes) close() {
	p.mu.Lock()
	p.mu.over = true
	for _, r := range p.mu.all {
		_ = r.cmd.Process.Kill() // it may have ended
	}
	p.mu.Unlock()
	p.running.Wait()
}

// freePorts are addresses that nobody listens on. Where somebody does by the time that the process
// does, it ends, and the next one gets others.
func freePorts(n int) (addresses []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}

// tail keeps the end of what a process says.
type tail struct {
	mu  sync.Mutex
	end []byte
}

const tailBytes = 1000

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, b...)
	t.end = append(t.end[:0], t.end[max(0, len(t.end)-tailBytes):]...)
	return len(b), nil
}

// String is what is kept.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.end))
}
