package indextest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// childEnv is set in further processes: what they shall do, as JSON.
const childEnv = "DMINDEX_TEST_CHILD"

// order is what a child does.
type order struct {
	Design  string
	Control string // socket of the control path
	Options index.Options
	Child   int
	Seed    uint64
	Each    int  // keys
	Writer  bool // it writes until it is killed
}

// Main is TestMain of a design's tests.
func Main(m *testing.M) {
	text := os.Getenv(childEnv)
	if text == "" {
		os.Exit(m.Run())
	}
	var o order
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = o.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// processes runs several processes on one index. Each inserts keys of its own between those of the
// others, changes and deletes some, and reads all of it back; then it waits until the others are
// done, and reads what they left.
func (r *runner) processes(t *testing.T) {
	const children = 3
	random := seeded(t)
	c := r.cluster(t, 32)
	socket := serveControl(t, c)
	o := order{Design: r.Design.Name, Control: socket, Options: index.Options{MaxKeyBytes: 60, MaxValueBytes: 50, InlineBytes: 12}, Seed: random.Uint64(), Each: scale(1500)}
	var wg sync.WaitGroup
	done := sync.WaitGroup{}
	done.Add(children)
	for i := range children {
		o := o
		o.Child = i
		text, err := json.Marshal(o)
		must(t, err)
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), childEnv+"="+string(text))
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		must(t, err)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		wg.Go(func() {
			_, err := bufio.NewReader(out).ReadString('\n') // it is done with its own keys
			done.Done()
			done.Wait()
			in.Close()
			if err = errors.Join(err, cmd.Wait()); err != nil {
				t.Errorf("child %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	x := r.open(t, c.Open(t), o.Options)
	if found := check(t, x); found.Unlinked != 0 || found.Pairs != uint64(children*(o.Each-(o.Each+2)/3)) {
		t.Errorf("after %d processes of %d keys: %+v", children, o.Each, found)
	}
}

func (o *order) key(child, i int) []byte {
	return fmt.Appendf(nil, "%0*d/%d", 10+i%40, i*7919%o.Each, child)
}

func (o *order) run() error {
	design, err := index.Lookup(o.Design)
	if err != nil {
		return err
	}
	client, err := rpc.Dial("unix", o.Control)
	if err != nil {
		return err
	}
	devices, err := pooltest.Devices()
	if err != nil {
		return err
	}
	p, err := pool.Open(pool.Config{Env: env.Real(), Control: remote{client}, Identity: pooltest.Identity, Devices: devices})
	if err != nil {
		return err
	}
	x, err := design.Open(p, o.Options)
	if err != nil {
		return err
	}
	s, err := x.Session()
	if err != nil {
		return err
	}
	if o.Writer {
		return o.writeOn(p, s)
	}
	if err := o.write(s); err != nil {
		return err
	}
	fmt.Println("done")
	bufio.NewReader(os.Stdin).ReadString('\n') // ends when all are done
	for child := range 3 {
		if err := o.read(s, child); err != nil {
			return err
		}
	}
	return errors.Join(s.Close(), x.Close(), p.Close())
}

// write inserts the child's keys, updates every second and deletes every third.
func (o *order) write(s index.Session) error {
	r := rand.New(rand.NewPCG(o.Seed, uint64(o.Child)))
	for _, i := range r.Perm(o.Each) {
		key := o.key(o.Child, i)
		if err := s.Insert(key, []byte("first")); err != nil {
			return fmt.Errorf("insert %s: %w", key, err)
		}
		if i%2 == 0 {
			if err := s.Update(key, fmt.Appendf(nil, "second of %d", i)); err != nil {
				return fmt.Errorf("update %s: %w", key, err)
			}
		}
		if i%3 == 0 {
			if err := s.Delete(key); err != nil {
				return fmt.Errorf("delete %s: %w", key, err)
			}
		}
	}
	return o.read(s, o.Child)
}

// read checks what a child wrote.
func (o *order) read(s index.Session, child int) error {
	for i := range o.Each {
		key, expected := o.key(child, i), "first"
		if i%2 == 0 {
			expected = fmt.Sprintf("second of %d", i)
		}
		v, err := s.Lookup(key, nil)
		switch {
		case i%3 == 0 && err != index.ErrNotFound:
			return fmt.Errorf("lookup of %s, which was deleted: %q, %w", key, v, err)
		case i%3 != 0 && (err != nil || string(v) != expected):
			return fmt.Errorf("lookup of %s: %q, %w, want %q", key, v, err, expected)
		}
	}
	return nil
}

// Far is the control path as net/rpc carries it to children.
type Far struct{ control pool.Control }

// FarCall are the arguments of any call.
type FarCall struct {
	Server    uint16
	Client    uint32
	Offset    uint64
	Clients   []uint32
	Epochs    pool.Epochs
	NodeBytes int
	Adopt     bool
}

// FarAnswer is the answer of any call.
type FarAnswer struct {
	Servers []uint16
	Client  uint32
	Grant   pool.Grant
	Renewal pool.Renewal
	Offset  uint64
}

// serveControl makes the cluster's control path reachable for other processes.
func serveControl(t *testing.T, c *pooltest.Cluster) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "control")
	must(t, err)
	socket = filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	must(t, err)
	t.Cleanup(func() { l.Close(); os.RemoveAll(dir) })
	server := rpc.NewServer()
	must(t, server.Register(&Far{c.Control()}))
	go server.Accept(l)
	return socket
}

const farLimit = 10 * time.Second

// Servers lists the memory servers.
func (f *Far) Servers(_ FarCall, a *FarAnswer) error {
	a.Servers = f.control.Servers()
	return nil
}

// Register makes an incarnation.
func (f *Far) Register(_ FarCall, a *FarAnswer) (err error) {
	a.Client, err = f.control.Register(farLimit)
	return err
}

// Connect admits a connection.
func (f *Far) Connect(c FarCall, a *FarAnswer) (err error) {
	a.Grant, err = f.control.Connect(c.Server, c.Client, farLimit)
	return err
}

// Renew lets a lease begin anew.
func (f *Far) Renew(c FarCall, a *FarAnswer) (err error) {
	a.Renewal, err = f.control.Renew(c.Server, c.Client, c.Epochs, farLimit)
	return err
}

// Fence ends clients on a server.
func (f *Far) Fence(c FarCall, _ *FarAnswer) error {
	return f.control.Fence(c.Server, c.Clients, farLimit)
}

// AllocateChunk takes a chunk.
func (f *Far) AllocateChunk(c FarCall, a *FarAnswer) (err error) {
	a.Offset, err = f.control.AllocateChunk(c.Server, c.Client, c.NodeBytes, c.Adopt, farLimit)
	return err
}

// FreeChunk gives a chunk back.
func (f *Far) FreeChunk(c FarCall, _ *FarAnswer) error {
	return f.control.FreeChunk(c.Server, c.Client, c.Offset, farLimit)
}

// remote is a child's end of Far.
type remote struct{ client *rpc.Client }

func (r remote) call(what string, c FarCall) (a FarAnswer, err error) {
	err = r.client.Call("Far."+what, c, &a)
	return a, err
}

func (r remote) Servers() []uint16 {
	a, _ := r.call("Servers", FarCall{})
	return a.Servers
}

func (r remote) Register(time.Duration) (uint32, error) {
	a, err := r.call("Register", FarCall{})
	return a.Client, err
}

func (r remote) Predecessors(uint32, time.Duration) ([]uint32, error) { return nil, nil }

func (r remote) Renew(server uint16, client uint32, e pool.Epochs, _ time.Duration) (pool.Renewal, error) {
	a, err := r.call("Renew", FarCall{Server: server, Client: client, Epochs: e})
	return a.Renewal, err
}

func (r remote) Fence(server uint16, clients []uint32, _ time.Duration) error {
	_, err := r.call("Fence", FarCall{Server: server, Clients: clients})
	return err
}

func (r remote) Connect(server uint16, client uint32, _ time.Duration) (pool.Grant, error) {
	a, err := r.call("Connect", FarCall{Server: server, Client: client})
	return a.Grant, err
}

func (r remote) AllocateChunk(server uint16, client uint32, nodeBytes int, adopt bool, _ time.Duration) (uint64, error) {
	a, err := r.call("AllocateChunk", FarCall{Server: server, Client: client, NodeBytes: nodeBytes, Adopt: adopt})
	return a.Offset, err
}

func (r remote) FreeChunk(server uint16, client uint32, offset uint64, _ time.Duration) error {
	_, err := r.call("FreeChunk", FarCall{Server: server, Client: client, Offset: offset})
	return err
}
