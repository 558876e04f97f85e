// Package local runs a whole index in one process, on loopback and without Kubernetes: memory servers, compute servers, and what the
// operator does for them.
package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/attach"
	"github.com/dmindex/dmindex/computeserver"
	"github.com/dmindex/dmindex/memserver"
	"github.com/dmindex/dmindex/memserver/control"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/partition"
)

// Config of a local index.
type Config struct {
	Listen         string // host:port of the first compute server's RESP, on loopback; the others take the ports after it, port 0 any
	ListenRPC      string // the same for the SDK's port
	Transport      string // "shm", "tcp" or "ibv"
	Design         string
	MemoryServers  int
	ComputeServers int
	MemoryBytes    uint64 // of each memory server
	KeyType        string // config.KeyUint64 or config.KeyBytes
	MaxKeyBytes    int
	MaxValueBytes  int
	Routing        string // config.RoutingAny or config.RoutingOwner
	PasswordFile   string // empty = everybody may
	Version        string
	Logger         *slog.Logger
}

// identity and name of the index.
const identity = "local"

// openLimit bounds each step of the start.
const openLimit = 10 * time.Second

// Local is a running index.
type Local struct {
	RESP, RPC []string // addresses of the compute servers
	memory    []*memserver.Server
	compute   []*computeserver.Server
	attached  []*attach.Memory
	members   []partition.Server
	opened    []chan error // of each compute server: how its first try to open the index ended
	dir       string       // of sockets
	config    Config
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
	if c.MemoryServers < 1 || c.MemoryServers > 64 || c.ComputeServers < 1 || c.ComputeServers > 64 {
		return fmt.Errorf("%d memory servers and %d compute servers: 1 to 64 of each are possible", c.MemoryServers, c.ComputeServers)
	}
	design, err := index.Lookup(c.Design)
	if err != nil {
		return err
	}
	if l.dir, err = os.MkdirTemp("", "dmindex-local-"); err != nil {
		return err
	}
	ix := &config.Index{
		Identity: identity, Name: identity, Design: c.Design, KeyType: c.KeyType, MaxKeyBytes: c.MaxKeyBytes,
		MaxValueBytes: c.MaxValueBytes, Durability: "Memory", Routing: c.Routing,
	}
	for i := range c.MemoryServers {
		m, err := l.startMemory(uint16(i + 1))
		if err != nil {
			return fmt.Errorf("memory server %d: %w", i+1, err)
		}
		ix.MemoryServers = append(ix.MemoryServers, config.MemoryServer{ID: uint16(i + 1), Control: m.Addresses().Control,
			Incarnation: m.Incarnation(), Pod: "memory-" + strconv.Itoa(i+1)})
	}
	if err := ix.Validate(); err != nil {
		return err
	}
	return l.startCompute(ix, design)
}

func (l *Local) startMemory(id uint16) (*memserver.Server, error) {
	c := memserver.Config{
		ID: id, MemoryBytes: l.config.MemoryBytes, Control: "127.0.0.1:0", Insecure: true,
		Version: l.config.Version, Logger: l.config.Logger,
	}
	switch l.config.Transport {
	case "shm":
		c.Shm = filepath.Join(l.dir, fmt.Sprintf("memory-%d", id))
	case "ibv":
		c.RDMA = "127.0.0.1:0"
	default:
		c.Fabric = "127.0.0.1:0"
	}
	s, err := memserver.New(c)
	if err == nil {
		l.memory = append(l.memory, s)
	}
	return s, err
}

func (l *Local) startCompute(ix *config.Index, design index.Design) error {
	for i := range l.config.ComputeServers {
		id := uint32(i + 1)
		name := "compute-" + strconv.Itoa(i+1)
		m, err := attach.New(ix, name, attach.Fabric{Provider: l.config.Transport}, nil)
		if err != nil {
			return err
		}
		l.attached = append(l.attached, m)
		resp, err := plus(l.config.Listen, i)
		if err != nil {
			return err
		}
		rpc, err := plus(l.config.ListenRPC, i)
		if err != nil {
			return err
		}
		log := l.config.Logger.With("server", name)
		opened := make(chan error, 1)
		l.opened = append(l.opened, opened)
		s, err := computeserver.New(computeserver.Config{
			ID: id, Version: l.config.Version, Index: ix, SharesAll: design.SharesAll, Maps: m.Maps(),
			Open: func() (computeserver.Opened, error) {
				o, err := m.Open(openLimit)
				select {
				case opened <- err:
				default:
				}
				return o, err
			},
			ListenRESP: resp, ListenRPC: rpc, PasswordFile: l.config.PasswordFile, AllowNoPassword: l.config.PasswordFile == "",
			Log: func(format string, args ...any) { log.Info(fmt.Sprintf(format, args...)) },
		})
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		l.compute = append(l.compute, s)
		l.RESP = append(l.RESP, s.Addresses().RESP)
		l.RPC = append(l.RPC, s.Addresses().RPC)
		l.members = append(l.members, partition.Server{ID: id, Name: name, RPC: s.Addresses().RPC, RESP: s.Addresses().RESP})
	}
	return nil
}

// operate does the operator's part: it gives the index all there is on every memory server, and the home its partition map.
func (l *Local) operate(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	for _, s := range l.memory {
		if err := admit(ctx, s.Addresses().Control); err != nil {
			return fmt.Errorf("admit the index: %w", err)
		}
	}
	m, err := partition.EqualWidth(identity, l.members, partition.KeyType(l.config.KeyType))
	if err != nil {
		return err
	}
	encoded, err := m.Marshal(nil)
	if err != nil {
		return err
	}
	return l.attached[0].Control.SwapMap(0, m.Generation, encoded, openLimit)
}

// admit gives the index all chunks and locks of a memory server.
func admit(ctx context.Context, address string) error {
	conn, err := control.Dial(address, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	memory := rpcv1.NewMemoryClient(conn)
	has, err := memory.Describe(ctx, &rpcv1.DescribeMemoryRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	_, err = memory.Admit(ctx, &rpcv1.AdmitRequest{Index: identity, QuotaChunks: has.ChunksTotal, Locks: has.LocksTotal})
	return err
}

// awaitOpen waits until every compute server has opened the index, which nothing else uses yet: a failure would stay one.
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

// Run serves until ctx ends or a server fails, then ends all of them: first those of compute, which finish what they have. It calls ready
// once every server answers.
func (l *Local) Run(ctx context.Context, ready func()) error {
	var memory, compute sync.WaitGroup
	memoryCtx, stopMemory := context.WithCancel(context.Background())
	defer stopMemory()
	computeCtx, stopCompute := context.WithCancel(ctx)
	defer stopCompute()
	var mu sync.Mutex
	var errs []error
	failed := func(what string, i int, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			errs = append(errs, fmt.Errorf("%s server %d: %w", what, i+1, err))
			stopCompute()
		}
	}
	for i, s := range l.memory {
		memory.Go(func() { failed("memory", i, s.Run(memoryCtx)) })
	}
	err := l.operate(ctx)
	if err == nil {
		for i, s := range l.compute {
			compute.Go(func() { failed("compute", i, s.Run(computeCtx)) })
		}
		if err = l.awaitOpen(computeCtx); err == nil {
			ready()
			<-computeCtx.Done()
		}
		stopCompute()
	}
	compute.Wait()
	stopMemory()
	memory.Wait()
	return errors.Join(append(errs, err, l.Close())...)
}

// Close gives back what Start took. Run calls it.
func (l *Local) Close() error {
	var errs []error
	for _, m := range l.attached {
		errs = append(errs, m.Close())
	}
	for _, s := range l.memory {
		errs = append(errs, s.Close())
	}
	l.attached, l.memory = nil, nil
	if l.dir != "" {
		errs = append(errs, os.RemoveAll(l.dir))
	}
	return errors.Join(errs...)
}

// plus is an address i ports further; port 0 stays.
func plus(address string, i int) (string, error) {
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
