//env:real listeners and goroutines are of the machine

package memserver

import (
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/memserver/internal/core"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/ibv"
	"github.com/dmindex/dmindex/pkg/verbs/shm"
)

// The content of a server, its ledger and what serves its clients, is opened once this process is
// the primary of its volume: when the server is made, or later by a view. Before that it listens on
// no fabric, and the control service refuses all calls but those of a volume. So no client takes a
// copy for a server whose content is lost.

// errEnds is returned when a server that ends is asked to open its content.
var errEnds = errors.New("the memory server ends")

// openContent opens the content, and serves it once Run goes on. It can be repeated.
func (s *Server) openContent() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return errEnds
	}
	if !s.control.opened.Load() {
		if err := s.openContentLocked(s.config); err != nil {
			return fmt.Errorf("open the content of the volume: %w", err)
		}
		s.control.opened.Store(true)
	}
	if s.mu.running && !s.mu.serving {
		return s.serveLocked()
	}
	return nil
}

func (s *Server) openContentLocked(c *Config) error {
	err := s.followPersist()
	if err == nil {
		err = s.openCore(c)
	}
	if err != nil {
		return err
	}
	if c.Fabric != "" && s.addresses.Fabric == "" {
		if s.addresses.Fabric, err = s.offer(providerTCP, "tcp", c.Fabric, newTCP(s.control.files)); err != nil {
			return err
		}
	}
	if c.Shm != "" && s.addresses.Shm == "" {
		if s.addresses.Shm, err = s.offer("shm", "unix", c.Shm, shm.NewServer); err != nil {
			return err
		}
	}
	if c.RDMA == "" || s.addresses.RDMA != "" {
		return nil
	}
	report := func(device, event string, note bool) {
		if note {
			s.log.Warn("the RDMA device reports an event", "device", device, "event", event)
		}
		s.metrics.rdma.WithLabelValues(event).Inc()
	}
	build := func(o verbs.ServerOptions) (verbs.Server, error) {
		return ibv.NewServer(ibv.Options{Device: c.RDMADevice, DeviceMemory: c.OnChip, Report: report}, o)
	}
	s.addresses.RDMA, err = s.offerOnChip("ibv", "tcp", c.RDMA, c.OnChip, build)
	return err
}

// openCore opens the ledger and what guards it. A new region counts once its ledger is stored.
func (s *Server) openCore(c *Config) error {
	if s.control.Core != nil {
		return nil
	}
	accounts, err := s.openAccounts(c.env, s.volume.ledger)
	if err != nil {
		return err
	}
	accounts.Limit(int(c.LedgerBytes))
	if err := s.fenceEarlier(accounts); err != nil {
		return err
	}
	if !s.region.Existed {
		s.region.Publish()
	}
	if err := s.recoverLocks(c, accounts); err != nil {
		return err
	}
	r := s.region
	s.log.Info("memory is ready", "incarnation", r.Incarnation, "found_again", r.Existed,
		"bytes", r.DataBytes, "chunks", r.Chunks(), "chunk_bytes", r.ChunkBytes, "locks", r.LockBytes/2)
	shared := core.New(c.env, accounts, newToken, r.LockTable(), c.Lease, s.log)
	shared.Words, shared.Whose = r.Words(), peerName
	s.control.zeroer = newZeroer(accounts, s.control.waits, r, &shared.Locks, s.log)
	s.control.zeroer.settle = shared.SettleRequests
	shared.HoldingsChanged = s.control.waits.holdingsChanged
	accounts.Undone = s.control.zeroer.nudge // what was zeroed may count as dirty again
	chunks := r.NewChunks()
	accounts.GrantTo(chunks)
	s.reach = func(p verbs.Peer) *verbs.Reach { return s.control.reachOf(chunks, p) }
	s.control.Core = shared
	s.volume.newPrimary()
	return nil
}

// serveLocked begins to serve the content, beside what Run serves.
func (s *Server) serveLocked() error {
	if err := s.control.Start(); err != nil {
		return err
	}
	s.mu.serving = true
	s.running.Go(func() { s.control.zeroer.run(s.stop) })
	s.running.Go(s.control.Run)
	if s.persisted != nil {
		s.persisted.run(s.stop)
	}
	if s.volume.primary != nil {
		s.running.Go(s.volume.primary.Run)
		s.running.Go(func() { s.volume.scrub(s.stop) })
	}
	for i, p := range s.control.Providers {
		s.serve(p.Name, p.Server.Serve, s.fabrics[i])
	}
	s.ready.Store(true)
	a := s.addresses
	s.log.Info("serving", "control", a.Control, "fabric", a.Fabric, "shm", a.Shm, "rdma", a.RDMA, "metrics", a.Metrics)
	return nil
}

// withdraw makes the region one that nobody takes for a memory with content, once it is stored that
// it counts no more: a program that knows no volumes would.
func (s *Server) withdraw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.closed {
		s.region.Withdraw()
	}
}

// offer opens the listener of a provider and makes its server.
func (s *Server) offer(name, network, address string, build func(verbs.ServerOptions) (verbs.Server, error)) (string, error) {
	actual, l, err := s.listen(network, address)
	if err != nil {
		return "", err
	}
	server, err := build(verbs.ServerOptions{
		Memory: s.region.Memory(), Incarnation: s.region.Incarnation, Admission: s.control.Admission(name), Reach: s.reach,
		Executor: s.config.Executor, CallThreads: s.config.CallThreads, Panicked: s.control.Panicked, Journal: s.region.Journal,
	})
	if err != nil {
		return "", err
	}
	s.control.Offer(core.Provider{Name: name, Address: actual, Server: server})
	s.fabrics = append(s.fabrics, l)
	return actual, nil
}

// recoverLocks repairs what a process left that died with the locks in its NIC.
func (s *Server) recoverLocks(c *Config, a *core.Accounts) (err error) {
	s.mark = markIn(c.DataDir)
	if c.StateDir != "" {
		s.mark = markIn(c.StateDir)
	}
	var turned uint64
	a.Read(func(l *ledger.Ledger) { turned, err = recoverLocks(s.mark, s.region.LockTable(), l) })
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

// reachOf is what a peer may reach: nothing, if its index is not admitted.
func (c *service) reachOf(chunks *verbs.Chunks, peer verbs.Peer) *verbs.Reach {
	var index ledger.Index
	var err error
	c.Accounts.Read(func(l *ledger.Ledger) { index, err = l.Index(peer.Index) })
	if err != nil {
		return verbs.NewReach(chunks, 0)
	}
	return verbs.NewReach(chunks, uint32(index.Slot)+1, c.region.SpansOf(&index)...)
}
