package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/attach"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/memory"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// cluster is memory and compute servers, simulated or real.
type cluster interface {
	// run calls do in the cluster's world and ends the cluster when it returns.
	run(do func() error) error
	// env of a compute server; servers count from 0.
	env(server int) env.Env
	// open opens the index in a new client on a compute server, whose earlier one was closed.
	open(server int, o index.Options) (member, error)
	// now is the time of the cluster's world.
	now() time.Duration
	// processor charges clients for their operations; nil = these take real time.
	processor() *processor
	// chunks are how many are handed out.
	chunks() (uint64, error)
	close() error
}

// member is an index that a compute server opened. Close closes its pool, too.
type member struct {
	index.Index
	close  func() error
	client uint32 // of its pool; 0 = of a cluster in real time
}

// simulated is a cluster in virtual time with the papers' NICs and no adversary.
type simulated struct {
	world   *simenv.World
	memory  *poolsim.Cluster
	servers []*simenv.Process
	design  index.Design
	charges *processor
}

// Of memory servers.
const (
	smallChunk = 1 << 20 // of 8 memory servers and 8 clients there are 64 chunks begun
	LargeChunk = 8 << 20 // where clients have logs, which are as long as half a chunk allows
	tableLocks = 131072  // 16-bit locks, in 256 KiB of the NIC's memory (Sherman, section 4.3)
	onChip     = 256 << 10
	intents    = 768 // slots, as a memory server with a table of that size has for an index
)

func newSimulated(r *Run, design index.Design) (*simulated, error) {
	caps := verbs.Capabilities{MaskedAtomics: true, ReleaseByWrite: true, DeviceMemory: onChip}
	if on, given := r.Switches["onChip"]; given && !on {
		caps.DeviceMemory = 0 // where locks lie is the memory servers' part of that technique
	}
	w := simenv.New(simenv.Options{Seed: r.Seed, Ordered: true, MaxEvents: 1 << 62})
	m, err := poolsim.New(w, poolsim.Options{
		Servers: r.MemoryServers, ChunkBytes: r.chunkBytes(), Chunks: int(r.memoryNeeded()/uint64(r.chunkBytes())) + 1, Locks: tableLocks,
		// each session has one, and one client may have half of all
		Intents:  max(intents, 2*r.Clients),
		Executor: design.Executor,
		Fabric:   sim.Options{Capabilities: caps, Model: r.model()},
	})
	if err != nil {
		return nil, err
	}
	s := &simulated{world: w, memory: m, design: design}
	if s.charges, err = newProcessor(w, r); err != nil {
		return nil, err
	}
	for i := range r.ComputeServers {
		s.servers = append(s.servers, w.NewProcess(fmt.Sprint("compute-", i+1)))
	}
	return s, nil
}

// model is what NICs and memory servers of the run cost.
func (r *Run) model() sim.Model {
	m := sim.Paper()
	if r.MemoryThreads > 0 {
		m.Cores = r.MemoryThreads
	}
	if r.MessageRate > 0 {
		m.ServerMessage = time.Duration(math.Round(1e3 / r.MessageRate))
	}
	return m
}

func (s *simulated) run(do func() error) error {
	return s.world.Run(func(*simenv.Process) {
		if err := do(); err != nil {
			s.world.Fail(err)
		}
	})
}

func (s *simulated) env(server int) env.Env  { return s.servers[server] }
func (s *simulated) now() time.Duration      { return s.world.Now() }
func (s *simulated) processor() *processor   { return s.charges }
func (s *simulated) chunks() (uint64, error) { return uint64(s.memory.UsedChunks()), nil }
func (s *simulated) close() error            { return nil }

func (s *simulated) open(server int, o index.Options) (member, error) {
	p, err := s.memory.Open(s.servers[server])
	if err != nil {
		return member{}, err
	}
	x, err := s.design.Open(p, o)
	if err != nil {
		return member{}, errors.Join(err, p.Close())
	}
	return member{x, func() error { return errors.Join(x.Close(), p.Close()) }, p.Client()}, nil
}

// real is memory servers in this process, on loopback; compute servers are clients in this process.
type real struct {
	memory    *memory.Servers
	config    *config.Index
	design    index.Design
	transport string
	began     time.Time
}

// identity of the index.
const identity = "bench"

// controlLimit bounds each step on the control path.
const controlLimit = pool.DefaultLimit

func newReal(r *Run, design index.Design) (*real, error) {
	m, err := memory.Start(memory.Config{
		Servers: r.MemoryServers, Bytes: r.memoryNeeded(), ChunkBytes: uint64(r.chunkBytes()), Transport: r.Transport, Version: "bench", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	o := r.options(0)
	c := &config.Index{
		Identity: identity, Name: identity, Design: r.Design, KeyType: config.KeyBytes, MaxKeyBytes: o.MaxKeyBytes,
		MaxValueBytes: o.MaxValueBytes, Durability: "Memory", Routing: config.RoutingAny, MemoryServers: m.Members(),
	}
	if o.Uint64 {
		c.KeyType = config.KeyUint64
	}
	if err := c.Validate(); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return &real{memory: m, config: c, design: design, transport: r.Transport, began: time.Now()}, nil
}

func (c *real) run(do func() error) error {
	failed := make(chan error, len(c.config.MemoryServers))
	c.memory.Run(func(err error) { failed <- err })
	ctx, cancel := context.WithTimeout(context.Background(), controlLimit)
	defer cancel()
	err := c.memory.Admit(ctx, identity)
	if err == nil {
		err = do()
	}
	select {
	case e := <-failed:
		return errors.Join(e, err)
	default:
		return err
	}
}

func (c *real) env(int) env.Env     { return env.Real() }
func (c *real) now() time.Duration  { return time.Since(c.began) }
func (*real) processor() *processor { return nil }
func (c *real) close() error        { return c.memory.Close() }

func (c *real) chunks() (uint64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), controlLimit)
	defer cancel()
	return c.memory.UsedChunks(ctx)
}

func (c *real) open(server int, o index.Options) (member, error) {
	m, err := attach.New(c.config, fmt.Sprint("compute-", server+1), attach.Fabric{Provider: c.transport}, nil)
	if err != nil {
		return member{}, err
	}
	x, err := m.OpenWith(c.design, o, controlLimit)
	if err != nil {
		return member{}, errors.Join(err, m.Close())
	}
	return member{Index: x.Index, close: func() error { return errors.Join(x.Close(), m.Close()) }}, nil
}
