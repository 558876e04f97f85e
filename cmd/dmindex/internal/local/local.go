// Package local runs a whole index in one process, on loopback and without Kubernetes: memory
// servers, compute servers, and what the operator does for them. Memory servers that are kept twice
// are processes of their own.
package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/attach"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/memory"
	"github.com/dmindex/dmindex/computeserver"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/computeserver/users"
	"github.com/dmindex/dmindex/memserver"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/partition"
)

// Config of a local index.
type Config struct {
	// host:port of the first compute server's RESP, on loopback; the others take the ports after
	// it, port 0 any
	Listen         string
	ListenRPC      string // the same for the SDK's port
	ListenMetrics  string // the same for the page of each server and its metrics; empty = none
	Transport      string // "shm", "tcp" or "ibv"
	Design         string
	MemoryServers  int
	ComputeServers int
	// compute servers that the first partition map names, the first ones; 0 = all
	Owners      int
	CacheBytes  int    // of each compute server; 0 = the design's default
	MemoryBytes uint64 // of each memory server
	// Copies of each memory server's content: 1 or 2; 0 = 1. 2 needs "tcp"; then there are two
	// processes for each.
	Copies        int
	KeyType       string // config.KeyUint64 or config.KeyBytes
	MaxKeyBytes   int
	MaxValueBytes int
	Routing       string // config.RoutingAny or config.RoutingOwner
	Expires       bool   // pairs may expire
	// AtomicPrefix is that of partition.Options, for keys of config.KeyBytes. Empty = there are no
	// groups.
	AtomicPrefix string
	Users        users.Config // without a password everybody may do everything
	// where the content is kept, over tcp; nil = it is lost with the process
	Persist *memory.Persist
	Version string
	Logger  *slog.Logger
	Stderr  io.Writer // of memory servers' processes; nil = errors have its end

	// Changed, unless nil, is told in a sentence when other processes have a memory server's
	// content than before. It is called by one goroutine at a time.
	Changed func(text string)

	// Fill is called, unless nil, when the memory servers serve and before the compute servers do,
	// to put something into the index; it opens the index by itself.
	Fill func(ctx context.Context, ix *config.Index) error
}

// identity and name of the index.
const identity = "local"

const (
	// openLimit bounds each step of the start.
	openLimit = 10 * time.Second
	// copiesLimit bounds the start of processes, and their first copies.
	copiesLimit = 30 * time.Second
)

// Local is a running index.
type Local struct {
	RESP, RPC []string // addresses of the compute servers
	Pages     []string // addresses of their pages; empty without Config.ListenMetrics
	memory    memoryServers
	copies    *memory.Copies // the same, where they are kept twice
	compute   []*computeserver.Server
	attached  []*attach.Memory
	members   []partition.Server
	opened    []chan error // of each compute server: how its first try to open the index ended
	config    Config
	index     *config.Index
	kept      *memory.Servers // those of memory, if their content is in files
}

// memoryServers are those of package memory.
type memoryServers interface {
	Members() []config.MemoryServer
	Run(failed func(error))
	Admit(ctx context.Context, identity string) error
	Close() error
}

// Start starts the servers' listeners and makes the index; Run serves until its context ends.
func Start(c Config) (*Local, error) {
	l := &Local{config: c}
	if err := l.start(); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Local) start() error {
	c := &l.config
	if c.Owners < 0 || c.Owners > c.ComputeServers {
		return fmt.Errorf("%d of %d compute servers in the first partition map", c.Owners, c.ComputeServers)
	}
	if c.MemoryServers < 1 || c.MemoryServers > 64 || c.ComputeServers < 1 || c.ComputeServers > 64 {
		return fmt.Errorf("%d memory servers and %d compute servers: 1 to 64 of each are possible", c.MemoryServers, c.ComputeServers)
	}
	if err := checkPrefix(c); err != nil {
		return err
	}
	design, err := index.Lookup(c.Design)
	if err != nil {
		return err
	}
	if err := l.startMemory(); err != nil {
		return err
	}
	ix := &config.Index{
		Identity: identity, Name: identity, Design: c.Design, KeyType: c.KeyType, MaxKeyBytes: c.MaxKeyBytes,
		MaxValueBytes: c.MaxValueBytes, Durability: "Memory", Routing: c.Routing,
		MemoryServers: l.memory.Members(),
	}
	if c.Expires {
		ix.Expiry = config.ExpiryEnabled
	}
	if err := ix.Validate(); err != nil {
		return err
	}
	l.index = ix
	return l.startCompute(ix, design)
}

// checkPrefix refuses what spec.partitioning.atomicPrefix refuses.
func checkPrefix(c *Config) error {
	const longest = 16
	switch p := c.AtomicPrefix; {
	case p == "":
		return nil
	case c.KeyType != config.KeyBytes:
		return errors.New("atomicPrefix is for keys of bytes: leave it out for uint64")
	case len(p) > longest || strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r > '~' }):
		return fmt.Errorf("atomicPrefix %q: it has at most %d characters, all of them printable ASCII, such as }", p, longest)
	}
	return nil
}

func (l *Local) startMemory() error {
	c := &l.config
	switch {
	case c.Copies < 0 || c.Copies > 2:
		return fmt.Errorf("%d copies of each memory server: 1 and 2 are possible", c.Copies)
	case c.Copies == 2 && c.Transport != "tcp":
		return fmt.Errorf("2 copies of each memory server over %s: only over tcp the servers execute all changes, and can hold answers back until the other copy has them; use tcp", c.Transport)
	case c.Persist != nil && c.Transport != "tcp":
		return fmt.Errorf("content in files over %s: only over tcp the servers execute all changes, and can hold answers back until the disk has them; use tcp", c.Transport)
	case c.Copies == 2:
		ctx, cancel := context.WithTimeout(context.Background(), copiesLimit)
		defer cancel()
		m, err := memory.StartCopies(ctx, memory.CopiesConfig{Servers: c.MemoryServers, Bytes: c.MemoryBytes, ChunkBytes: c.chunkBytes(), Logger: c.Logger, Stderr: c.Stderr, Changed: c.Changed})
		if err == nil {
			l.memory, l.copies = m, m
		}
		return err
	}
	m, err := memory.Start(memory.Config{
		Servers: c.MemoryServers, Bytes: c.MemoryBytes, ChunkBytes: c.chunkBytes(), Transport: c.Transport, Persist: c.Persist, Version: c.Version, Logger: c.Logger,
	})
	if err != nil {
		return err
	}
	if l.memory = m; c.Persist != nil {
		l.kept = m
	}
	return nil
}

// chunkBytes is the size of a chunk: the memory server's default, and more where each compute
// server has more memory, since half a chunk has the redo log of DEX. A compute server takes a
// chunk for that and one of each memory server. 0: files keep the size that they were made with.
func (c *Config) chunkBytes() uint64 {
	const chunks, most = 16, 32 << 20 // of each memory server, for each compute server
	if c.Persist != nil {
		return 0
	}
	bytes := uint64(memserver.DefaultChunkBytes)
	for bytes < most && 2*bytes*chunks*uint64(c.ComputeServers) <= c.MemoryBytes {
		bytes *= 2
	}
	return bytes
}

// Copies are the memory servers that are kept twice; nil = they are not.
func (l *Local) Copies() *memory.Copies { return l.copies }

func (l *Local) startCompute(ix *config.Index, design index.Design) error {
	for i := range l.config.ComputeServers {
		id := uint32(i + 1)
		name := "compute-" + strconv.Itoa(i+1)
		m, err := attach.New(ix, name, attach.Fabric{Provider: l.config.Transport}, nil)
		if err != nil {
			return err
		}
		m.Guard = earlier{}
		l.attached = append(l.attached, m)
		resp, err := addPort(l.config.Listen, i)
		if err != nil {
			return err
		}
		rpc, err := addPort(l.config.ListenRPC, i)
		if err != nil {
			return err
		}
		metrics := l.config.ListenMetrics
		if metrics != "" {
			if metrics, err = addPort(metrics, i); err != nil {
				return err
			}
		}
		log := l.config.Logger.With("server", name)
		opened := make(chan error, 1)
		l.opened = append(l.opened, opened)
		s, err := computeserver.New(computeserver.Config{
			ID: id, Version: l.config.Version, Index: ix, SharesAll: design.SharesAll, Maps: m.Maps(),
			Open: func() (ownership.Opened, error) {
				o, err := m.Open(l.config.CacheBytes, openLimit)
				select {
				case opened <- err:
				default:
				}
				if err != nil {
					return nil, err
				}
				return o.Opened(), nil
			},
			OnNews: m.Control.OnNews, ListenRESP: resp, ListenRPC: rpc, ListenMetrics: metrics, Users: l.config.Users, AllowNoPassword: l.config.Users == users.Config{},
			Logger: log,
		})
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		l.compute = append(l.compute, s)
		l.RESP = append(l.RESP, s.Addresses().RESP)
		l.RPC = append(l.RPC, s.Addresses().RPC)
		if page := s.Addresses().Metrics; page != "" {
			l.Pages = append(l.Pages, page)
		}
		l.members = append(l.members, partition.Server{ID: id, Name: name, RPC: s.Addresses().RPC, RESP: s.Addresses().RESP})
	}
	return nil
}

// operate does the operator's part: it gives the index all there is on every memory server, and the
// home its partition map.
func (l *Local) operate(whole context.Context) error {
	ctx, cancel := context.WithTimeout(whole, openLimit)
	defer cancel()
	if err := l.memory.Admit(ctx, identity); err != nil {
		return fmt.Errorf("admit the index: %w", err)
	}
	before := uint64(0) // generation of the map of an earlier process
	if l.kept != nil {
		if err := l.kept.FenceAll(ctx, identity); err != nil {
			return fmt.Errorf("fence the compute servers of an earlier process: %w", err)
		}
		var err error
		if before, _, err = l.attached[0].Control.Map(0, 0, openLimit); err != nil {
			return err
		}
	}
	if l.config.Fill != nil {
		if err := l.config.Fill(whole, l.index); err != nil {
			return fmt.Errorf("fill the index: %w", err)
		}
	}
	members := l.members
	if l.config.Owners > 0 {
		members = members[:l.config.Owners]
	}
	m, err := partition.New(identity, members, partition.Options{Keys: partition.KeyType(l.config.KeyType), KeyBytes: l.config.MaxKeyBytes, AtomicPrefix: l.config.AtomicPrefix})
	if err != nil {
		return err
	}
	m.Generation = before + 1
	encoded, err := m.Marshal(nil)
	if err != nil {
		return err
	}
	return l.attached[0].Control.SwapMap(before, m.Generation, encoded, openLimit)
}

// awaitOpen waits until every compute server has opened the index, which nothing else uses yet: a
// failure would stay one.
func (l *Local) awaitOpen(ctx context.Context) error {
	for i, opened := range l.opened {
		select {
		case err := <-opened:
			if err != nil {
				return fmt.Errorf("compute server %d: open the index: %w", i+1, err)
			}
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// Run serves until ctx ends or a server fails, then ends all of them: first those of compute, which
// finish what they have. It calls ready once every server answers.
func (l *Local) Run(ctx context.Context, ready func()) error {
	var compute sync.WaitGroup
	computeCtx, stopCompute := context.WithCancel(ctx)
	defer stopCompute()
	var mu sync.Mutex
	var errs []error
	failed := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
		stopCompute()
	}
	l.memory.Run(failed)
	err := l.operate(ctx)
	if err == nil {
		for i, s := range l.compute {
			compute.Go(func() {
				if err := s.Run(computeCtx); err != nil {
					failed(fmt.Errorf("compute server %d: %w", i+1, err))
				}
			})
		}
		if err = l.awaitOpen(computeCtx); err == nil {
			ready()
			<-computeCtx.Done()
		}
		stopCompute()
	}
	compute.Wait()
	closing := l.Close() // then nobody calls failed any more
	return errors.Join(append(errs, err, closing)...)
}

// Close gives back what Start took. Run calls it.
func (l *Local) Close() error {
	var errs []error
	for _, m := range l.attached {
		errs = append(errs, m.Close())
	}
	if l.memory != nil {
		errs = append(errs, l.memory.Close())
	}
	l.attached, l.memory = nil, nil
	return errors.Join(errs...)
}

// earlier knows the clients that a compute server had before: they are this process's, which gave
// each up before it made the next. So the keys of one wait for no lease.
type earlier map[uint32]bool

// Note implements pool.Guard.
func (e earlier) Note(_ string, client uint32) error {
	e[client] = true
	return nil
}

// Confirms implements pool.Guard.
func (e earlier) Confirms(_ string, client uint32) bool { return e[client] }

// addPort is an address i ports further; port 0 stays.
func addPort(address string, i int) (string, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("address %q: %w", address, err)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", fmt.Errorf("address %q: the port must be a number", address)
	}
	if port != 0 {
		port += uint64(i)
	}
	return net.JoinHostPort(host, strconv.FormatUint(port, 10)), nil
}
