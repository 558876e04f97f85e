//env:real files are of the machine

package memserver

import (
	"fmt"
	"time"

	"github.com/dmindex/dmindex/memserver/internal/core"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/memserver/persist"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// A server with Config.PersistDir has its memory and its ledger in files as well (package persist).
// It begins with an empty memory, as any without a data directory:
//
//  1. The directory is read into the memory. If it has a ledger, the memory is prepared as that of
//     a copy that opens: all locks say REPAIR, presence words are zero, the header page has the
//     ledger's incarnation.
//  2. The feed begins, and answers wait for it. Nothing has changed the memory since 1.
//  3. The content is opened. All that changes from here on is in the log, the ledger's first state
//     and the changes of core.Core.Start included.
//
// So clients find a memory server that restarted and has its content, as after a fail-over: the
// memory is behind a prefix of the changes that no given answer contradicts.

// persisted is what a server with a directory has.
type persisted struct {
	server *Server
	store  *persist.Store
	feed   *verbs.Feed
	waiter *verbs.Waiter // of checkpoints
}

// flushLimit is how long a checkpoint waits for the log.
const flushLimit = 30 * time.Second

// openPersist does 1 and 2. A store that failed ends the server.
func (s *Server) openPersist(c *Config) error {
	if c.PersistDir == "" {
		return nil
	}
	d, err := persist.OpenDirectory(c.PersistDir)
	if err != nil {
		return err
	}
	s.release = append(s.release, d.Close)
	r := s.region
	store, err := persist.Open(d, persist.Volume{ID: uint64(c.ID), Bytes: r.dataBytes, ChunkBytes: r.chunkBytes, LockBytes: r.lockBytes}, persist.Options{
		Env: c.env, Sync: c.PersistSync, Boot: r.boot, AcceptLoss: c.PersistAcceptLoss, CheckpointBytes: c.checkpoint, Failed: s.fail,
		Report: func(err error) { s.log.Error("persistent memory", "err", err) },
	})
	if err != nil {
		return err
	}
	began := c.env.Now()
	replica := verbs.Replica{Memory: r.data.bytes[:r.dataBytes]}
	if err := store.Recover(&replica); err != nil {
		return err
	}
	if len(replica.Ledger) > 0 {
		if err := s.prepareRecovered(&replica); err != nil {
			return err
		}
		s.log.Info("memory was read from its directory; whoever takes a lock repairs first what it guards", "dir", c.PersistDir, "incarnation", r.incarnation,
			"seconds", (c.env.Now() - began).Seconds())
	}
	feed, err := r.journal.Feed(func() error { return nil }, nil) // no list runs
	if err != nil {
		return err
	}
	if err := store.Begin(feed.Start(), r.journal.Ledger); err != nil {
		return err
	}
	s.release = append(s.release, store.Close)
	if err := feed.Connect(store, feed.Start()); err != nil {
		return err
	}
	s.persisted = &persisted{s, store, feed, r.journal.NewWaiter()}
	return feed.Await()
}

func (s *Server) prepareRecovered(r *verbs.Replica) error {
	l, err := ledger.Decode(r.Ledger)
	if err != nil {
		return fmt.Errorf("the ledger of persistent memory: %w: run the program that wrote it, or give the server an empty directory", err)
	}
	if _, err := s.region.prepare(l); err != nil {
		return err
	}
	s.volume.ledger = r.Ledger
	return nil
}

// fenceEarlier fences all clients of a memory that may lack what was answered to them: they may
// have it in their caches. Core.Start brings that to an end. It is done at each start with the
// flag, so also after a start that died before it had done it.
func (s *Server) fenceEarlier(a *core.Accounts) error {
	if !s.config.PersistAcceptLoss {
		return nil
	}
	return a.Change(core.Mend, func(l *ledger.Ledger) error {
		for _, i := range l.Indexes() {
			clients, err := l.Clients(i.Identity, "")
			if err != nil {
				return err
			}
			for _, c := range clients {
				if _, err := l.Fence(i.Identity, c.Number); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// run runs what goes on beside the server, until stop is closed. Then the log has what was
// recorded.
func (p *persisted) run(stop <-chan struct{}) {
	s := p.server
	s.running.Go(p.store.RunSync)
	s.running.Go(func() { p.store.RunCheckpoints(p) })
	s.running.Go(func() {
		look := time.NewTicker(time.Second)
		defer look.Stop()
		for {
			select {
			case <-stop:
				p.store.Stop()
				p.waiter.Cut()
				if err := p.feed.Follow(nil, s.region.journal.Last(), stopLimit); err != nil {
					s.log.Warn("what was not answered at the end is not in the directory of persistent memory", "err", err)
				}
				return
			case <-look.C:
				if err := p.feed.Err(); err != nil {
					s.fail(fmt.Errorf("persistent memory: %w; start the server again", err))
				}
			}
		}
	})
}

// Last implements persist.Source.
func (p *persisted) Last() verbs.Position { return p.server.region.journal.Last() }

// Flush implements persist.Source.
func (p *persisted) Flush(to verbs.Position) error { return p.feed.Follow(p.waiter, to, flushLimit) }

// Pieces implements persist.Source.
func (p *persisted) Pieces(f func(at, n uint64) bool) {
	r := p.server.region
	r.spansFrom(0, func(at, n uint64) bool { return r.empty(at, n) || f(at, n) })
}

// Copy implements persist.Source.
func (p *persisted) Copy(at uint64, b []byte) (verbs.Position, error) {
	j := p.server.region.journal
	if err := j.Begin(p.waiter, 0); err != nil {
		return 0, err
	}
	defer j.Done()
	copy(b, p.server.region.data.bytes[at:])
	return j.Last(), nil
}

// Ledger implements persist.Source.
func (p *persisted) Ledger(b []byte) (all []byte, at verbs.Position) {
	s := p.server
	s.control.Accounts.Read(func(*ledger.Ledger) {
		all, at = append(b, s.mirrored.last...), s.region.journal.Last()
	})
	return all, at
}
