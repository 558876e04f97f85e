//env:real listeners, signals to stop and their order are of the machine

package memserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"

	"github.com/dmindex/dmindex/memserver/internal/core"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/accept"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/ibv"
	"github.com/dmindex/dmindex/pkg/verbs/shm"
)

// stopLimit is how long control calls may go on once the server stops.
const stopLimit = 5 * time.Second

// maxMetrics is how many connections the port of metrics and probes has: anybody who reaches it may
// open them, and each takes some 10 KiB.
const maxMetrics = 64

// Server is a memory server: its memory, its ledger and its open listeners.
type Server struct {
	log         *slog.Logger
	executor    verbs.Executor // of calls; nil = none
	callThreads int
	reach       func(verbs.Peer) *verbs.Reach
	region      *region
	control     *service
	callers     *callers // of the control port
	grpc        *grpc.Server
	health      *health.Server
	http        *http.Server // nil = no metrics
	addresses   Addresses
	listeners   []net.Listener // control, then one for each provider, then metrics if there are
	stopping    context.CancelFunc
	ready       atomic.Bool
	closeOnce   sync.Once
	closeErr    error
	mark        chipMark
	onChip      bool           // the lock region lies in a NIC
	release     []func() error // what Close gives back, last first
}

// Addresses are where a server listens; what it does not offer is empty.
type Addresses struct {
	Control string // host:port
	Fabric  string // host:port
	Shm     string // path
	RDMA    string // host:port
	Metrics string // host:port
}

// New finds or makes the memory and opens the listeners. The server holds both until Run ends or
// Close is called.
func New(config Config) (*Server, error) {
	c, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{log: c.Logger, executor: c.Executor, callThreads: c.CallThreads}
	if c.ID != 0 {
		s.log = s.log.With("server", c.ID)
	}
	if err := s.open(&c); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Server) open(c *Config) error {
	accounts, err := s.openMemory(c)
	if err != nil {
		return err
	}
	if err := s.recoverLocks(c, accounts); err != nil {
		return err
	}
	var files *identity.Files
	if !c.Insecure {
		if files, err = identity.Open(c.TLSDir); err != nil {
			return err
		}
	}
	stopping, cancel := context.WithCancel(context.Background())
	s.stopping = cancel
	waits := newWaits()
	shared := core.New(c.env, accounts, newToken, s.region.lockTable(), c.Lease, s.log)
	shared.Words, shared.Whose = wordsOf(s.region), whose
	s.control = &service{
		Core:    shared,
		version: c.Version, files: files, region: s.region, waits: waits, scrubber: newScrubber(accounts, waits, s.region, &shared.Locks, s.log), stopping: stopping,
		fabricTLS: c.FabricTLS,
	}
	chunks := newChunks(&s.region.header)
	accounts.GrantTo(chunks)
	s.reach = func(p verbs.Peer) *verbs.Reach { return s.control.reach(chunks, p) }
	s.control.scrubber.settle = shared.SettleRequests
	shared.HoldingsChanged = waits.holdingsChanged
	accounts.Undone = s.control.scrubber.nudge // what was zeroed may count as dirty again
	if s.addresses.Control, err = s.listen("tcp", c.Control); err != nil {
		return err
	}
	if c.Fabric != "" {
		if s.addresses.Fabric, err = s.offer(providerTCP, "tcp", c.Fabric, newTCP(files)); err != nil {
			return err
		}
	}
	if c.Shm != "" {
		if s.addresses.Shm, err = s.offer("shm", "unix", c.Shm, shm.NewServer); err != nil {
			return err
		}
	}
	metrics := newMetrics(s.control, c.ID, files)
	if c.RDMA != "" {
		report := func(device, event string, note bool) {
			if note {
				s.log.Warn("the RDMA device reports an event", "device", device, "event", event)
			}
			metrics.rdma.WithLabelValues(event).Inc()
		}
		build := func(o verbs.ServerOptions) (verbs.Server, error) {
			return ibv.NewServer(ibv.Options{Device: c.RDMADevice, DeviceMemory: c.OnChip, Report: report}, o)
		}
		if s.addresses.RDMA, err = s.offerOnChip("ibv", "tcp", c.RDMA, c.OnChip, build); err != nil {
			return err
		}
	}
	s.callers = newCallers(files, c.replyLimit, s.log)
	s.grpc, s.health = newGRPC(s.control, &volume{id: c.ID, service: s.control}, metrics, s.callers, c.maxAge)
	if c.Metrics != "" {
		if s.addresses.Metrics, err = s.listen("tcp", c.Metrics); err != nil {
			return err
		}
		last := &s.listeners[len(s.listeners)-1]
		*last = accept.AtMost(*last, maxMetrics)
		s.http = &http.Server{
			Handler: metrics.handler(s.ready.Load, c.Pprof), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
			WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		}
	}
	return nil
}

// openMemory takes the directories, then the region, then its ledger. A new region counts once its
// ledger is stored.
func (s *Server) openMemory(c *Config) (*core.Accounts, error) {
	var data *directory
	var err error
	state, pageSize := "", uint64(pageBytes)
	if c.DataDir != "" {
		if data, err = s.openDirectory(c.DataDir); err != nil {
			return nil, err
		}
		state, pageSize = c.DataDir, data.pageSize
		if data.huge && c.StateDir == "" {
			return nil, fmt.Errorf("data directory %s is a hugetlbfs, which holds no ordinary files: set StateDir to a directory that is kept and lost with it", c.DataDir)
		}
		if !data.volatile {
			s.log.Warn("the data directory is on a disk: its pages are written back now and then; a tmpfs or hugetlbfs avoids that", "dir", c.DataDir)
		}
	}
	if c.StateDir != "" && c.StateDir != c.DataDir {
		state = c.StateDir
		d, err := s.openDirectory(c.StateDir)
		if err != nil {
			return nil, err
		}
		if d.huge {
			return nil, fmt.Errorf("state directory %s is a hugetlbfs, which holds no ordinary files", c.StateDir)
		}
	}
	want, err := c.shape(pageSize)
	if err != nil {
		return nil, err
	}
	if s.region, err = openRegion(data, want, s.log); err != nil {
		return nil, err
	}
	s.release = append(s.release, s.region.close)
	if c.Reserve {
		if err := errors.Join(s.region.data.reserve(), s.region.locks.reserve()); err != nil {
			return nil, err
		}
	}
	if err := s.openJournal(c); err != nil {
		return nil, err
	}
	accounts, err := openAccounts(c.env, state, s.region)
	if err != nil {
		return nil, err
	}
	accounts.Limit(int(c.LedgerBytes))
	if !s.region.existed {
		s.region.publish()
	}
	s.log.Info("memory is ready", "incarnation", s.region.incarnation, "found_again", s.region.existed,
		"bytes", s.region.dataBytes, "chunks", s.region.chunks(), "chunk_bytes", s.region.chunkBytes, "locks", s.region.lockBytes/2)
	return accounts, nil
}

// listen opens a listener; Serve functions close it, and so does Close.
func (s *Server) listen(network, address string) (string, error) {
	if network == "unix" {
		if err := removeStaleSocket(address); err != nil {
			return "", err
		}
	}
	l, err := net.Listen(network, address)
	if err != nil {
		return "", fmt.Errorf("listen: %w", err)
	}
	s.listeners = append(s.listeners, accept.Patiently(l, func(err error) {
		s.log.Warn("connections cannot be accepted for now; trying again", "address", l.Addr().String(), "err", err)
	}))
	return l.Addr().String(), nil
}

// removeStaleSocket removes the socket of a process that died: connections to it are refused. The
// socket of a living process stays, even one too busy to answer, and listening fails.
func removeStaleSocket(path string) error {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&os.ModeSocket == 0 {
		return nil // listening says what is wrong, if anything is
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		c.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the socket of a former process: %w", err)
	}
	return nil
}

// offer opens the listener of a provider and makes its server.
func (s *Server) offer(name, network, address string, build func(verbs.ServerOptions) (verbs.Server, error)) (string, error) {
	actual, err := s.listen(network, address)
	if err != nil {
		return "", err
	}
	server, err := build(verbs.ServerOptions{
		Memory: s.region.memory(), Incarnation: s.region.incarnation, Admission: s.control.Admission(name), Reach: s.reach,
		Executor: s.executor, CallThreads: s.callThreads, Panicked: s.control.Panicked, Journal: s.region.journal,
	})
	if err != nil {
		return "", err
	}
	s.control.Offer(core.Provider{Name: name, Address: actual, Server: server})
	return actual, nil
}

// recoverLocks repairs what a process left that died with the locks in its NIC.
func (s *Server) recoverLocks(c *Config, a *core.Accounts) (err error) {
	s.mark = markIn(c.DataDir)
	if c.StateDir != "" {
		s.mark = markIn(c.StateDir)
	}
	var turned uint64
	a.Read(func(l *ledger.Ledger) { turned, err = recoverLocks(s.mark, s.region.lockTable(), l) })
	if turned > 0 {
		s.log.Warn("an earlier process died with the locks in its NIC; whoever takes one repairs first what it guards", "locks", turned)
	}
	return err
}

// offerOnChip is offer of a provider that may put the lock region into its NIC.
func (s *Server) offerOnChip(name, network, address string, onChip bool, build func(verbs.ServerOptions) (verbs.Server, error)) (actual string, err error) {
	if onChip {
		if err := s.mark.set(); err != nil {
			return "", err
		}
	}
	actual, err = s.offer(name, network, address, build)
	if s.onChip = s.control.OnChip() > 0; s.onChip {
		s.log.Info("the lock table lies in the NIC", "locks", s.control.OnChip())
		return actual, err
	}
	return actual, errors.Join(err, s.mark.clear())
}

// Addresses are where the server listens, with the ports that it got.
func (s *Server) Addresses() Addresses { return s.addresses }

// Incarnation of the region.
func (s *Server) Incarnation() uint64 { return s.region.incarnation }

// Run serves until ctx ends, then stops cleanly and returns nil; or returns why it cannot go on. It
// gives back memory and listeners in either case, so it runs once.
func (s *Server) Run(ctx context.Context) error {
	if err := s.control.Start(); err != nil {
		return errors.Join(err, s.Close())
	}
	stop := make(chan struct{})
	failed := make(chan error, len(s.listeners))
	var running sync.WaitGroup
	running.Go(func() { s.control.scrubber.run(stop) })
	running.Go(s.control.Run)
	serve := func(what string, f func(net.Listener) error, l net.Listener) {
		running.Go(func() {
			if err := f(l); err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, grpc.ErrServerStopped) {
				failed <- fmt.Errorf("serve %s on %v: %w", what, l.Addr(), err)
			}
		})
	}
	serve("control", s.grpc.Serve, s.listeners[0])
	for i, p := range s.control.Providers {
		serve(p.Name, p.Server.Serve, s.listeners[1+i])
	}
	if s.http != nil {
		serve("metrics", s.http.Serve, s.listeners[len(s.listeners)-1])
	}
	s.ready.Store(true)
	s.log.Info("serving", "control", s.addresses.Control, "fabric", s.addresses.Fabric, "shm", s.addresses.Shm, "rdma", s.addresses.RDMA, "metrics", s.addresses.Metrics)
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	s.log.Info("stopping", "err", err)
	s.stopServing()
	close(stop)
	s.control.Stop()
	running.Wait()
	return errors.Join(err, s.Close())
}

// stopServing takes no new calls, lets those under way end within stopLimit, then cuts all
// connections to the memory.
func (s *Server) stopServing() {
	s.ready.Store(false)
	s.health.Shutdown()
	s.stopping()
	giveUp := time.AfterFunc(stopLimit, s.grpc.Stop)
	s.grpc.GracefulStop()
	giveUp.Stop()
	for _, p := range s.control.Providers {
		if err := p.Server.Close(); err != nil {
			s.log.Warn("close provider", "provider", p.Name, "err", err)
		}
	}
	if s.http != nil {
		s.http.Close()
	}
}

// Close gives back listeners and memory of a server that does not run. Run calls it; a second call
// does nothing.
func (s *Server) Close() error {
	s.closeOnce.Do(func() {
		var errs []error
		if s.stopping != nil {
			s.stopping()
		}
		if s.control != nil {
			var closed error
			for _, p := range s.control.Providers {
				closed = errors.Join(closed, p.Server.Close())
			}
			if s.onChip && closed == nil { // the locks are in their file again
				closed = s.mark.clear()
			}
			errs = append(errs, closed)
		}
		for _, l := range s.listeners {
			if err := l.Close(); !errors.Is(err, net.ErrClosed) {
				errs = append(errs, err)
			}
		}
		for i := len(s.release) - 1; i >= 0; i-- {
			errs = append(errs, s.release[i]())
		}
		s.closeErr = errors.Join(errs...)
	})
	return s.closeErr
}
