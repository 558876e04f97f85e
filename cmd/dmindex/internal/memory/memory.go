// Package memory runs the memory servers of one index in this process, on loopback and without
// Kubernetes, and does for them what the operator does.
package memory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver"
	"github.com/dmindex/dmindex/memserver/control"
	"github.com/dmindex/dmindex/memserver/persist"
	"github.com/dmindex/dmindex/pkg/index"
)

// Config of the servers.
type Config struct {
	Servers    int
	Bytes      uint64        // of memory, of each server
	ChunkBytes uint64        // 0 = the memory server's default
	Transport  string        // "shm", "tcp" or "ibv"
	Lease      time.Duration // of clients; 0 = the memory server's default
	// Persist keeps the content in files below a directory, for the transport tcp; nil = it is lost
	// with the process.
	Persist *Persist
	Version string
	Logger  *slog.Logger
}

// Persist is where content is kept: see memserver.Config.
type Persist struct {
	Dir        string
	Sync       persist.Sync
	AcceptLoss bool
}

// Servers are memory servers that listen. Ids count from 1.
type Servers struct {
	config  Config
	servers []*memserver.Server
	dir     string // of sockets
	running sync.WaitGroup
	stop    context.CancelFunc
}

// Start starts the listeners; Run serves.
func Start(c Config) (*Servers, error) {
	s := &Servers{config: c}
	var err error
	if s.dir, err = os.MkdirTemp("", "dmindex-memory-"); err != nil {
		return nil, err
	}
	if c.Persist != nil {
		if err := c.Persist.check(c.Servers); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	for i := range c.Servers {
		if err := s.start(uint16(i + 1)); err != nil {
			return nil, errors.Join(fmt.Errorf("memory server %d: %w", i+1, err), s.Close())
		}
	}
	return s, nil
}

func (s *Servers) start(id uint16) error {
	c := memserver.Config{
		ID: id, MemoryBytes: s.config.Bytes, ChunkBytes: s.config.ChunkBytes, Control: "127.0.0.1:0", Insecure: true,
		Lease: s.config.Lease, Version: s.config.Version, Logger: s.config.Logger, Executor: index.Executor(),
	}
	if p := s.config.Persist; p != nil {
		c.PersistDir, c.PersistSync, c.PersistAcceptLoss = p.directory(int(id)), p.Sync, p.AcceptLoss
	}
	switch s.config.Transport {
	case "shm":
		c.Shm = filepath.Join(s.dir, fmt.Sprintf("memory-%d", id))
	case "ibv":
		c.RDMA = "127.0.0.1:0"
	default:
		c.Fabric = "127.0.0.1:0"
	}
	m, err := memserver.New(c)
	if err == nil {
		s.servers = append(s.servers, m)
	}
	return err
}

// Members are the servers as the configuration of an index names them.
func (s *Servers) Members() []config.MemoryServer {
	members := make([]config.MemoryServer, len(s.servers))
	for i, m := range s.servers {
		members[i] = config.MemoryServer{ID: uint16(i + 1), Control: m.Addresses().Control, Incarnation: m.Incarnation(),
			Pod: "memory-" + strconv.Itoa(i+1)}
	}
	return members
}

// Run lets the servers serve until Close. It calls failed, on a goroutine of each server, for one
// that ends with an error.
func (s *Servers) Run(failed func(error)) {
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	for i, m := range s.servers {
		s.running.Go(func() {
			if err := m.Run(ctx); err != nil {
				failed(fmt.Errorf("memory server %d: %w", i+1, err))
			}
		})
	}
}

// Admit gives an index all chunks and locks of every server, which must run.
func (s *Servers) Admit(ctx context.Context, identity string) error {
	return s.forEach(ctx, func(memory rpcv1.MemoryClient, has *rpcv1.DescribeMemoryReply) error {
		_, err := memory.Admit(ctx, &rpcv1.AdmitRequest{Index: identity, QuotaChunks: has.ChunksTotal, Locks: has.LocksTotal})
		return err
	})
}

// FenceAll fences all clients of an index that earlier processes left. They are dead: their
// processes were this one's predecessors. Those that are fenced already are told as well: a memory
// server forgets who is dead when it ends, and would wait for their leases.
func (s *Servers) FenceAll(ctx context.Context, identity string) error {
	const together = 256 // a request has no more
	return s.forEach(ctx, func(memory rpcv1.MemoryClient, _ *rpcv1.DescribeMemoryReply) error {
		list, err := memory.ListClients(ctx, &rpcv1.ListClientsRequest{Index: identity})
		if err != nil {
			return err
		}
		all := make([]uint32, len(list.Clients))
		for i, c := range list.Clients {
			all[i] = c.Client
		}
		for ids := range slices.Chunk(all, together) {
			if _, err := memory.Fence(ctx, &rpcv1.FenceRequest{Index: identity, Clients: ids, Dead: true}); err != nil {
				return err
			}
		}
		return nil
	})
}

// UsedChunks are how many chunks of all servers are handed out.
func (s *Servers) UsedChunks(ctx context.Context) (n uint64, err error) {
	err = s.forEach(ctx, func(_ rpcv1.MemoryClient, has *rpcv1.DescribeMemoryReply) error {
		n += has.ChunksUsed
		return nil
	})
	return n, err
}

// forEach calls do for every server, with what it has.
func (s *Servers) forEach(ctx context.Context, do func(rpcv1.MemoryClient, *rpcv1.DescribeMemoryReply) error) error {
	for i, m := range s.servers {
		if err := describe(ctx, m.Addresses().Control, do); err != nil {
			return fmt.Errorf("memory server %d: %w", i+1, err)
		}
	}
	return nil
}

func describe(ctx context.Context, address string, do func(rpcv1.MemoryClient, *rpcv1.DescribeMemoryReply) error) error {
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
	return do(memory, has)
}

// Close ends the servers and waits for that; their content is gone.
func (s *Servers) Close() error {
	if s.stop != nil {
		s.stop()
		s.running.Wait()
	}
	var errs []error
	for _, m := range s.servers {
		errs = append(errs, m.Close())
	}
	s.servers = nil
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}
