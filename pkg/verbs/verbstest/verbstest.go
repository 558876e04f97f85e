// Package verbstest is the conformance suite of the fabric: every provider passes [Run].
//
// What the suite does concurrently it does through [env.Env], so that a simulated provider can run
// it in its own world. Only the tests with processes, which a provider asks for by
// Harness.Processes, are bound to the real one.
package verbstest

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Harness is a provider under test.
type Harness struct {
	// Device makes the client's half.
	Device func() verbs.Device
	// Start starts a memory server and says where it listens. What it needs in files goes to the
	// folder dir.
	Start func(dir string, o verbs.ServerOptions) (address string, s verbs.Server, err error)
	// Network makes what lies between clients and the server at address. nil = NewNetwork.
	Network func(t testing.TB, address string) Network
	// World runs body in a world of the provider's own, and returns when it has ended. nil = the
	// real world.
	World func(t *testing.T, body func(e env.Env))
	// Processes says that other processes can connect. The test program's TestMain must call Main
	// then.
	Processes bool
	// Direct says that clients change the memory without the server or a NIC that obeys it: one
	// that stands still cannot be fenced before its process is dead.
	Direct bool
	// Rounds is how often a litmus test repeats: enough that a provider which breaks the rule is
	// caught. 0 = 2000.
	Rounds int
	// Memcpy says that the fabric's bytes are moved by somebody else's memcpy, which moves whole
	// words only where a range begins at one. The tests of words in other ranges then ask only that
	// the requests succeed.
	Memcpy bool
	// MaxQPs is how many queue pairs the provider gives one connection. 0 = 1024.
	MaxQPs int
}

// Sizes of the regions in every test.
const (
	dataSize  = 4 << 20
	locksSize = 64 << 10
	arenaSize = 16 << 20

	incarnation = 0x1234
)

// soon bounds every wait for what must happen without delay, on a machine that is busy with other
// things.
const soon = 20 * time.Second

// Run runs the whole suite.
func Run(t *testing.T, h Harness) {
	if h.Rounds == 0 {
		h.Rounds = 2000
	}
	if h.MaxQPs == 0 {
		h.MaxQPs = 1024
	}
	if h.Network == nil {
		h.Network = NewNetwork
	}
	if h.World == nil {
		h.World = func(_ *testing.T, body func(env.Env)) { body(env.Real()) }
	}
	groups := []struct {
		name  string
		tests []test
	}{
		{"Order", orderTests}, {"Atomicity", atomicityTests}, {"Model", modelTests}, {"Tally", tallyTests}, {"Poll", pollTests},
		{"Refusal", refusalTests}, {"Admission", admissionTests}, {"End", endTests}, {"Fence", fenceTests}, {"Peers", peerTests},
		{"Many", manyTests}, {"Call", callTests},
	}
	if h.Processes {
		groups = append(groups, struct {
			name  string
			tests []test
		}{"Processes", processTests})
	}
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			for _, c := range g.tests {
				t.Run(c.name, func(t *testing.T) {
					h.World(t, func(e env.Env) { c.run(newFixture(t, h, e)) })
				})
			}
		})
	}
}

// test is one test of the suite; it gets a server of its own.
type test struct {
	name string
	run  func(f *fixture)
}

// fixture is a memory server with its clients.
type fixture struct {
	*testing.T
	h        Harness
	env      env.Env
	rand     *rand.Rand // of the test's own goroutine
	tokens   *Tokens
	memory   []verbs.Memory // of the server
	address  string
	server   verbs.Server
	executor *executor // of the server's calls
	device   verbs.Device
	arena    *verbs.Arena
	scratch  []byte // of the test's own goroutine, for word
}

// seedVariable replays a run: it sets the seed of every test.
const seedVariable = "VERBSTEST_SEED"

func newFixture(t *testing.T, h Harness, e env.Env) *fixture {
	t.Helper()
	seed := e.Uint64()
	if s := os.Getenv(seedVariable); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 0, 64); err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
	}
	t.Logf("seed %d; replay with %s=%d", seed, seedVariable, seed)
	f := &fixture{T: t, h: h, env: e, rand: rand.New(rand.NewPCG(seed, 0)), tokens: new(Tokens), device: h.Device(),
		executor: &executor{release: e.NewEvent()}}
	f.serve(verbs.ServerOptions{})
	var err error
	if f.arena, err = f.device.NewArena(arenaSize); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.arena.Close()
		f.device.Close()
	})
	f.scratch = f.buffer(8)
	return f
}

// repeats is how often a test under contention repeats: what breaks there breaks soon, unlike in a
// litmus test.
func (f *fixture) repeats() int { return min(f.h.Rounds, 5000) }

// serve starts a server with fresh memory and the limits of o, in place of the fixture's present
// one.
func (f *fixture) serve(o verbs.ServerOptions) {
	f.Helper()
	o.Memory, o.Incarnation, o.Admission = Memory(f, dataSize, locksSize), incarnation, f.tokens
	o.HandshakeLimit = soon
	if o.Executor == nil {
		o.Executor = f.executor
	}
	if o.Executor == nobody {
		o.Executor = nil
	}
	address, s, err := f.h.Start(f.TempDir(), o)
	if err != nil {
		f.Fatalf("start a server: %v", err)
	}
	f.memory, f.address, f.server = o.Memory, address, s
	f.Cleanup(func() { s.Close() })
}

// target admits the client of number n.
func (f *fixture) target(n uint16) verbs.Target {
	return verbs.Target{
		Address: f.address, Token: f.tokens.Issue(verbs.Peer{Index: "test", Client: n}), Incarnation: incarnation,
	}
}

// connect connects as client n. The connection goes with the test.
func (f *fixture) connect(n uint16) verbs.Conn {
	f.Helper()
	c, err := f.device.Connect(f.target(n), soon)
	if err != nil {
		f.Fatalf("connect: %v", err)
	}
	f.Cleanup(func() { c.Close() })
	return c
}

func (f *fixture) qp(c verbs.Conn) verbs.QP {
	f.Helper()
	q, err := c.NewQP(f.arena)
	if err != nil {
		f.Fatalf("new queue pair: %v", err)
	}
	return q
}

// client is a queue pair of a connection of its own.
func (f *fixture) client(n uint16) verbs.QP {
	f.Helper()
	return f.qp(f.connect(n))
}

// buffer cuts n bytes from the arena.
func (f *fixture) buffer(n int) []byte {
	f.Helper()
	b, err := f.arena.Alloc(n)
	if err != nil {
		f.Fatal(err)
	}
	return b
}

// post posts and waits; it ends the test on an error, so only the test's own goroutine calls it.
func (f *fixture) post(q verbs.QP, list ...verbs.Request) {
	f.Helper()
	if err := verbs.Post(q, list); err != nil {
		f.Fatalf("post %v: %v", list[0].Op, err)
	}
}

// word reads the word at remote through q. Only the test's own goroutine calls it.
func (f *fixture) word(q verbs.QP, region verbs.RegionID, remote uint64) uint64 {
	f.Helper()
	f.post(q, verbs.Request{Op: verbs.Read, Region: region, Remote: remote, Local: f.scratch})
	return get(f.scratch)
}

// together runs functions at the same time and waits for all. They report with Errorf, not Fatalf.
func (f *fixture) together(functions ...func()) {
	f.Helper()
	g := env.NewWaitGroup(f.env)
	for i, run := range functions {
		g.Go(fmt.Sprintf("%s-%d", f.Name(), i), run)
	}
	if !g.Wait(10 * soon) {
		f.Fatalf("%d goroutines did not end within %v", len(functions), 10*soon)
	}
}

func read(remote uint64, local []byte) verbs.Request {
	return verbs.Request{Op: verbs.Read, Remote: remote, Local: local}
}

func write(remote uint64, local []byte) verbs.Request {
	return verbs.Request{Op: verbs.Write, Remote: remote, Local: local}
}

func fetchAdd(remote uint64, local []byte, add uint64) verbs.Request {
	return verbs.Request{Op: verbs.FetchAdd, Region: verbs.RegionLocks, Remote: remote, Local: local, Add: add}
}

func fill(b []byte, v uint64) {
	for i := 0; i+8 <= len(b); i += 8 {
		binary.NativeEndian.PutUint64(b[i:], v)
	}
}

func get(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }
