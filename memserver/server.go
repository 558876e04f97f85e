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

	"github.com/dmindex/dmindex/memserver/internal/admission"
	"github.com/dmindex/dmindex/memserver/internal/region"
	"github.com/dmindex/dmindex/pkg/accept"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// stopLimit is how long control calls may go on once the server stops.
const stopLimit = 5 * time.Second

// maxMetrics is how many connections the port of metrics and probes has: anybody who reaches it may
// open them, and each takes some 10 KiB.
const maxMetrics = 64

// ErrReplaced is returned by Run when another process was named for the volume, whose content this
// one had or was to get.
var ErrReplaced = errors.New("another process was named for the volume of this memory server")

// Server is a memory server: its memory, its ledger and its open listeners.
type Server struct {
	log       *slog.Logger
	config    *Config
	stateDir  string // empty: nothing is stored
	region    *region.Region
	volume    *volume
	control   *service
	callers   *admission.Callers // of the control port
	metrics   *metrics
	grpc      *grpc.Server
	health    *health.Server
	http      *http.Server // nil = no metrics
	listeners []net.Listener
	rpc       net.Listener // of these: of the control service
	scraped   net.Listener // of metrics
	mirrors   net.Listener // of primaries; nil = nobody sends changes here
	stopping  context.CancelFunc
	ready     atomic.Bool
	closeOnce sync.Once
	closeErr  error
	mark      chipMark
	persisted *persisted     // nil = the memory is in no directory
	onChip    bool           // the lock region lies in a NIC
	release   []func() error // what Close gives back, last first

	running sync.WaitGroup
	stop    chan struct{} // closed when what runs has to end
	failed  chan error    // why Run ends

	mu struct {
		sync.Mutex
		running bool // Run goes on
		serving bool // so does what serves the content
		closed  bool
	}

	// Of the content. They are set before service.opened is.
	reach     func(verbs.Peer) *verbs.Reach
	fabrics   []net.Listener // one for each provider
	mirrored  *journaled     // the ledger's store; nil = nothing is recorded
	addresses Addresses
}

// Addresses are where a server listens; what it does not offer is empty.
type Addresses struct {
	Control string // host:port
	Fabric  string // host:port
	Shm     string // path
	RDMA    string // host:port
	Mirror  string // host:port
	Metrics string // host:port
}

// New finds or makes the memory and opens the listeners. The server holds both until Run ends or
// Close is called.
func New(config Config) (*Server, error) {
	c, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{log: c.Logger, stop: make(chan struct{}), failed: make(chan error, 1)}
	if c.ID != 0 {
		s.log = s.log.With("server", c.ID)
	}
	if err := s.open(&c); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Server) open(c *Config) error {
	var files *identity.Files
	var err error
	if !c.Insecure {
		if files, err = identity.Open(c.TLSDir); err != nil {
			return err
		}
	}
	stopping, cancel := context.WithCancel(context.Background())
	s.stopping = cancel
	s.control = &service{version: c.Version, files: files, waits: newWaits(), stopping: stopping, fabricTLS: c.FabricTLS, log: s.log}
	if err := s.openMemory(c); err != nil {
		return err
	}
	s.control.region, s.control.member = s.region, s.volume.member
	metrics := newMetrics(s.control, s.volume, c.ID, files)
	s.config, s.metrics = c, metrics
	if err := s.volume.start(); err != nil {
		return err
	}
	if err := s.openMirror(c); err != nil {
		return err
	}
	if s.addresses.Control, s.rpc, err = s.listen("tcp", c.Control); err != nil {
		return err
	}
	s.callers = admission.NewCallers(files, c.replyLimit, s.log)
	s.grpc, s.health = newGRPC(s.control, s.volume, metrics, s.callers, c.maxAge)
	if c.Metrics != "" {
		var l net.Listener
		if s.addresses.Metrics, l, err = s.listen("tcp", c.Metrics); err != nil {
			return err
		}
		s.scraped = accept.AtMost(l, maxMetrics)
		s.http = &http.Server{
			Handler: metrics.handler(s.isReady, c.Pprof), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
			WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		}
	}
	return nil
}

// openMemory takes the directories, then the region and what is stored of the volume.
func (s *Server) openMemory(c *Config) error {
	var data *region.Directory
	var err error
	pageSize := uint64(region.PageBytes)
	if c.DataDir != "" {
		if data, err = s.openDirectory(c.DataDir); err != nil {
			return err
		}
		s.stateDir, pageSize = c.DataDir, data.PageSize
		if data.Huge && c.StateDir == "" {
			return fmt.Errorf("data directory %s is a hugetlbfs, which holds no ordinary files: set StateDir to a directory that is kept and lost with it", c.DataDir)
		}
		if !data.Volatile {
			s.log.Warn("the data directory is on a disk: its pages are written back now and then; a tmpfs or hugetlbfs avoids that", "dir", c.DataDir)
		}
	}
	if c.StateDir != "" && c.StateDir != c.DataDir {
		s.stateDir = c.StateDir
		d, err := s.openDirectory(c.StateDir)
		if err != nil {
			return err
		}
		if d.Huge {
			return fmt.Errorf("state directory %s is a hugetlbfs, which holds no ordinary files", c.StateDir)
		}
	}
	want, err := c.shape(pageSize)
	if err != nil {
		return err
	}
	if c.PersistDir != "" {
		err = s.openPersist(c, want)
	} else {
		err = s.openVolume(c, s.stateDir, data, want)
	}
	if err != nil {
		return err
	}
	if c.Reserve {
		if err := s.region.Reserve(); err != nil {
			return err
		}
	}
	s.openJournal(c)
	return nil
}

func (s *Server) openDirectory(path string) (*region.Directory, error) {
	d, err := region.OpenDirectory(path)
	if err == nil {
		s.release = append(s.release, d.Close)
	}
	return d, err
}

// listen opens a listener; Serve functions close it, and so does Close.
func (s *Server) listen(network, address string) (string, net.Listener, error) {
	if network == "unix" {
		if err := removeStaleSocket(address); err != nil {
			return "", nil, err
		}
	}
	l, err := net.Listen(network, address)
	if err != nil {
		return "", nil, fmt.Errorf("listen: %w", err)
	}
	patient := accept.Patiently(l, func(err error) {
		s.log.Warn("connections cannot be accepted for now; trying again", "address", l.Addr().String(), "err", err)
	})
	s.listeners = append(s.listeners, patient)
	return l.Addr().String(), patient, nil
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

// Addresses are where the server listens, with the ports that it got. A copy listens on no fabric.
func (s *Server) Addresses() Addresses {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addresses
}

// Incarnation of the content; a copy has none before it opens.
func (s *Server) Incarnation() uint64 { return s.region.Incarnation }

// Run serves until ctx ends, then stops cleanly and returns nil; or returns why it cannot go on. It
// gives back memory and listeners in either case, so it runs once. ErrReplaced: another process was
// named for the volume; this one's memory counts no more, and a new server of the same Config can
// become a copy.
func (s *Server) Run(ctx context.Context) error {
	s.mu.Lock()
	s.mu.running = true
	s.mu.Unlock()
	if s.control.opened.Load() {
		if err := s.openContent(); err != nil {
			return errors.Join(err, s.Close())
		}
	}
	s.serve("control", s.grpc.Serve, s.rpc)
	if s.mirrors != nil {
		s.serve("mirror", s.volume.serveMirror, s.mirrors)
	}
	if s.http != nil {
		s.serve("metrics", s.http.Serve, s.scraped)
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-s.failed:
	}
	s.log.Info("stopping", "err", err)
	s.stopServing()
	return errors.Join(err, s.Close())
}

// serve runs f until the server ends, which it does if f fails.
func (s *Server) serve(what string, f func(net.Listener) error, l net.Listener) {
	s.running.Go(func() {
		if err := f(l); err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, grpc.ErrServerStopped) {
			s.fail(fmt.Errorf("serve %s on %v: %w", what, l.Addr(), err))
		}
	})
}

// fail ends Run with an error. Of several errors the first counts.
func (s *Server) fail(err error) {
	select {
	case s.failed <- err:
	default:
	}
}

// isReady reports whether the server does what it is for in its volume: it serves, or can be a
// copy.
func (s *Server) isReady() bool {
	switch role := s.volume.member.Role(); role {
	case volumes.Primary:
		return s.ready.Load()
	case volumes.Joining, volumes.Backup:
		return s.control.stopping.Err() == nil
	}
	return false
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
	if s.http != nil {
		s.http.Close()
	}
	s.mu.Lock()
	s.mu.closed = true
	serving := s.mu.serving
	s.mu.Unlock()
	if s.control.Core != nil {
		for _, p := range s.control.Providers {
			if err := p.Server.Close(); err != nil {
				s.log.Warn("close provider", "provider", p.Name, "err", err)
			}
		}
	}
	close(s.stop)
	if serving {
		s.control.Stop()
		if s.volume.primary != nil {
			s.volume.primary.Stop()
		}
	}
	if s.mirrors != nil {
		s.mirrors.Close()
		s.volume.closeMirror()
	}
	if s.persisted != nil {
		s.persisted.halt()
	}
	s.running.Wait()
}

// Close gives back listeners and memory of a server that does not run. Run calls it; a second call
// does nothing.
func (s *Server) Close() error {
	s.closeOnce.Do(func() {
		var errs []error
		if s.stopping != nil {
			s.stopping()
		}
		s.mu.Lock() // no content is opened meanwhile, nor afterwards
		defer s.mu.Unlock()
		s.mu.closed = true
		if s.control != nil && s.control.Core != nil {
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
