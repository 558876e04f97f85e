package verbstest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// childVariable makes a test program play a role in another one's test instead of running its own.
const childVariable = "VERBSTEST_CHILD"

// childSpec is what a child is told.
type childSpec struct {
	Role   string
	Target verbs.Target  // of those that connect
	Tokens []verbs.Token // of the one that serves: all from client 1
	Times  int           // how often to do what the role does
}

// The roles of children.
var roles = map[string]func(h Harness, s *childSpec) error{
	"add": childAdds, "write": childWrites, "serve": childServes, "count": childCounts,
}

// Main runs the tests of a provider whose harness says Processes; TestMain calls it.
func Main(m *testing.M, h Harness) {
	spec := os.Getenv(childVariable)
	if spec == "" {
		os.Exit(m.Run())
	}
	var s childSpec
	err := json.Unmarshal([]byte(spec), &s)
	if err == nil {
		err = roles[s.Role](h, &s)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "child %s: %v\n", s.Role, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// child is a process of the test program in a role.
type child struct {
	cmd   *exec.Cmd
	lines *bufio.Reader
	ended bool
}

// child starts a process. It is killed with the test, and ends by itself when the test program
// does: its input ends then.
func (f *fixture) child(s childSpec) *child {
	f.Helper()
	spec, err := json.Marshal(s)
	if err != nil {
		f.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		f.Fatal(err)
	}
	c := &child{cmd: exec.Command(program)}
	c.cmd.Env = append(os.Environ(), childVariable+"="+string(spec))
	c.cmd.Stderr = os.Stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		f.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		f.Fatal(err)
	}
	c.lines = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		f.Fatalf("start a child: %v", err)
	}
	f.Cleanup(func() {
		c.kill()
		in.Close()
	})
	return c
}

// says is the next line that the child prints.
func (f *fixture) says(c *child) string {
	f.Helper()
	line, err := c.lines.ReadString('\n')
	if err != nil {
		f.Fatalf("a child ended before it said what it should: %v", err)
	}
	return line[:len(line)-1]
}

// kill ends the child at once and waits until it is gone.
func (c *child) kill() {
	if !c.ended {
		c.ended = true
		c.cmd.Process.Kill()
		c.cmd.Wait()
	}
}

// wait waits for the child to end by itself.
func (f *fixture) wait(c *child) {
	f.Helper()
	c.ended = true
	if err := c.cmd.Wait(); err != nil {
		f.Errorf("a child failed: %v", err)
	}
}

// childClient connects as the spec says. Nobody closes it: the process ends.
func childClient(h Harness, s *childSpec) (verbs.Conn, verbs.QP, *verbs.Arena, error) {
	d := h.Device()
	a, err := d.NewArena(arenaSize)
	if err != nil {
		return nil, nil, nil, err
	}
	c, err := d.Connect(s.Target, soon)
	if err != nil {
		return nil, nil, nil, err
	}
	q, err := c.NewQP(a)
	return c, q, a, err
}

// childAdds adds 1 to the word at 8 and swaps the upper half of the word at 16 one up, Times times
// each.
func childAdds(h Harness, s *childSpec) error {
	c, q, a, err := childClient(h, s)
	if err != nil {
		return err
	}
	return addAndSwap(c, q, a, s.Times)
}

// childWrites writes blocks of one value each, 1, 2, 3, ..., until it is killed.
func childWrites(h Harness, s *childSpec) error {
	c, q, a, err := childClient(h, s)
	if err != nil {
		return err
	}
	block, err := a.Alloc(blockSize(c))
	if err != nil {
		return err
	}
	for i := uint64(1); ; i++ {
		fill(block, i)
		if err := verbs.Post(q, []verbs.Request{write(0, block)}); err != nil {
			return err
		}
	}
}

// childCounts adds 1 to the word at 0 until it is refused, and says why.
func childCounts(h Harness, s *childSpec) error {
	_, q, a, err := childClient(h, s)
	if err != nil {
		return err
	}
	old, err := a.Alloc(8)
	for err == nil {
		err = verbs.Post(q, []verbs.Request{fetchAdd(0, old, 1)})
	}
	fmt.Println(err)
	return nil
}

// childServes is a memory server. It says its address and serves until its input ends.
func childServes(h Harness, s *childSpec) error {
	mem, _, err := NewMemory(dataSize, locksSize)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "verbstest")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	tokens := &Tokens{valid: map[verbs.Token]verbs.Peer{}}
	for _, t := range s.Tokens {
		tokens.valid[t] = verbs.Peer{Index: "test", Client: 1}
	}
	address, server, err := h.Start(dir, verbs.ServerOptions{Memory: mem, Incarnation: incarnation, Admission: tokens})
	if err != nil {
		return err
	}
	fmt.Println(address)
	io.Copy(io.Discard, os.Stdin)
	return server.Close()
}
