//env:real files are of the machine

package memserver

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/memserver/internal/core"
	"github.com/dmindex/dmindex/memserver/internal/region"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/memserver/persist"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// A server with Config.PersistDir has its memory and its ledger in files as well (package persist),
// and beside them, in the same directory, what it is for its volume (volumes.State). It begins with
// an empty memory, as any without a data directory:
//
//  1. What is stored of the volume says what the files count for (openPersist). If that is nothing,
//     they are removed before others are made.
//  2. If the process may serve, the directory is read into the memory. If it has a ledger, the
//     memory is prepared as that of a copy that opens: all locks say REPAIR, presence words are
//     zero, the header page has the ledger's incarnation (readPersist).
//  3. Before the content is opened the feed begins, and answers wait for it. Nothing has changed
//     the memory since 2 (followPersist).
//  4. The content is opened. All that changes from here on is in the log, the ledger's first state
//     and the changes of core.Core.Start included.
//
// So clients find a memory server that restarted and has its content, as after a fail-over: the
// memory is behind a prefix of the changes that no given answer contradicts.
//
// # Beside a copy in another process
//
// The state of a volume counts for the memory beside it. Here that is the memory of the files, in
// the place of one that outlives the process by itself. What that has to be is kept thus:
//
//	who             the files                                         they count
//	primary         one more copy that all answers wait for           yes
//	joining         take what the copy applies, before it does. They  no: the stored content is
//	                are as safe as an answer needs before the copy    nothing
//	                says that it has applied that (copyFiles.Sync)
//	backup          the same                                          once the primary has nothing
//	opening         put on disk whole before it is stored that the    from that store on
//	                content is here (takeLedger)
//	stopped         as they were when the process ended, not read yet yes
//	replaced        count for nothing once that is stored             no
//
// Why two processes that are killed, and start again, agree: nothing that decides has changed, but
// that a primary finds its memory where it lost it before. Package volumes argues with processes
// that end at any time, and memory that is there again with all that was answered if, and as long
// as, it is stored that there is content. Both hold here. A primary's answers have waited for its
// files since before it served. A copy's have all that it applied when it opens; it applies nothing
// afterwards, and serves, with answers that wait for the files, later only. A backup that restarts
// joins anew, unless the primary has lost its directory (volumes.Member). Then the directory of the
// backup is read as one of a server that stopped. Whatever the modes say of the loss of a primary's
// machine is true of it as well, since its primary has waited for it as for its own: in mode Always
// nothing is lost; in the others it is refused if the machine stopped, until somebody accepts the
// loss. Its changes of the ledger are on disk before they are acknowledged, in any mode.
//
// If the backup's disk is full, it applies nothing: it is missed, and the next view is without it.
// So is one whose disk fails, since its process ends.
//
// A stopped process reads its files when a view names it alone, and before it obeys that one. Most
// are replaced instead. So files that may lack something, which only a person may accept, keep no
// process from hearing that another one has all.

// persisted is what a server with a directory has.
type persisted struct {
	server  *Server
	files   *persist.Directory
	volume  persist.Volume
	options persist.Options
	nothing bool                          // the files count for nothing, or as those of a backup
	mayLack bool                          // they are not opened for that, or are seen to be damaged
	store   atomic.Pointer[persist.Store] // nil as long as that is so
	feed    *verbs.Feed                   // nil before the content is opened
	waiter  *verbs.Waiter                 // of checkpoints
	running sync.WaitGroup                // what the store does beside a stream

	reading struct {
		sync.Mutex
		done bool
		err  error // of the one attempt
	}
}

const (
	flushLimit = 30 * time.Second // how long a checkpoint waits for the log
	lockLimit  = 10 * time.Second // how long the directory is waited for
)

// openPersist takes the directory, reads what is stored of the volume, and begins the process.
//
//	stored          the directory is   the process begins as
//	nothing         made               primary, in a view without a number, as an earlier program
//	nothing         empty              the same if no pod is named; else joining.
//	                                   It is refused with Config.PersistExisting
//	content nothing anything           joining
//	content         made               as with a memory that is found (volume)
//	content         not made           it is refused: somebody has removed the files
func (s *Server) openPersist(c *Config, want region.Header) error {
	unused := fmt.Errorf("no server has used directory %s, and with --persist-existing none is begun there: mount the disk that the server had, or put its files back; "+
		"if they are lost for good, start without --persist-existing (in Kubernetes: delete claim and pod), and what was in them is lost", c.PersistDir)
	if _, err := os.Stat(c.PersistDir); c.PersistExisting && errors.Is(err, os.ErrNotExist) {
		return unused
	}
	d, err := persist.OpenDirectory(c.PersistDir, c.lockLimit, func() {
		s.log.Warn("another process has the directory of persistent memory; it may be one that was killed, and has not ended yet", "dir", c.PersistDir, "waits_at_most", c.lockLimit)
	})
	if err != nil {
		return err
	}
	s.release = append(s.release, d.Close)
	v := &volume{server: s, id: c.ID, file: volumeFileIn(c.PersistDir)}
	was, found, err := v.file.load()
	if err != nil {
		return err
	}
	made, err := persist.Made(d)
	if err != nil {
		return err
	}
	switch {
	case !found && !made && c.PersistExisting:
		return unused
	case !found:
		was.State.Process = c.firstProcess - 1
		if made || c.Pod == "" {
			was.State.Content = volumes.Served
		}
		if !made {
			was.State.First = was.State.Process + 1 // nothing is there of any process before
		}
	case !made && was.State.Backup:
		was.State.Backup = false // somebody removed the files, and no answer waits for them
	case was.State.Content != volumes.Nothing && !made:
		return fmt.Errorf("%s says that the directory has the content of a volume, which is not there: put its files back; or give the server an empty directory, if the volume has another copy or is to be lost", string(v.file))
	}
	switch {
	case was.Pod == "":
		was.Pod = c.Pod
	case c.Pod != "" && c.Pod != was.Pod:
		return fmt.Errorf("directory %s is of the copy %q of a volume, and the server is to be %q: give each copy a directory of its own; or name the server as before, if the other copy never gets this directory again", c.PersistDir, was.Pod, c.Pod)
	}
	p := &persisted{
		server: s, files: d, nothing: was.State.Content == volumes.Nothing,
		volume: persist.Volume{ID: uint64(c.ID), Bytes: want.DataBytes, ChunkBytes: want.ChunkBytes, LockBytes: want.LockBytes},
		options: persist.Options{
			Env: c.env, Sync: c.PersistSync, Boot: want.Boot, AcceptLoss: c.PersistAcceptLoss, CheckpointBytes: c.checkpoint, Failed: s.fail,
			Report: func(err error) { s.log.Error("persistent memory", "err", err) },
		},
	}
	if s.region, err = region.Open(nil, want, region.AsNew, s.log); err != nil {
		return err
	}
	s.release = append(s.release, s.region.Close, p.close)
	s.persisted = p
	if !p.nothing {
		store, err := persist.Open(d, p.volume, p.options)
		if err != nil {
			return err
		}
		p.store.Store(store)
		p.mayLack = store.MayLack() != nil
	} else if was.State.Backup {
		store, err := persist.Open(d, p.volume, p.options)
		p.mayLack = err != nil || store.MayLack() != nil
	}
	was.Boot = hex.EncodeToString(want.Boot[:])
	return v.begin(c, was)
}

func (p *persisted) close() error {
	if store := p.store.Load(); store != nil {
		return store.Close()
	}
	return nil
}

// makeEmpty makes files for an empty memory, in the place of what counts for nothing, unless the
// process has files. That is kept until then: if the other copy never comes back, it is all that is
// left.
func (p *persisted) makeEmpty() error {
	if p.store.Load() != nil {
		return nil
	}
	if err := persist.Discard(p.files); err != nil {
		return err
	}
	store, err := persist.Open(p.files, p.volume, p.options)
	if err == nil {
		replica := p.server.region.Replica()
		err = store.Recover(&replica)
	}
	if err == nil {
		p.store.Store(store)
	}
	return err
}

// restore reads the directory that an earlier process wrote as a backup.
func (p *persisted) restore() error {
	if p.nothing {
		store, err := persist.Open(p.files, p.volume, p.options)
		if err != nil {
			return err
		}
		p.store.Store(store)
		p.nothing = false
	}
	return p.server.readPersist()
}

// readPersist reads the directory once, if it has content. A store that fails later ends the
// server.
func (s *Server) readPersist() error {
	p := s.persisted
	if p == nil || p.nothing {
		return nil
	}
	r := &p.reading
	r.Lock()
	defer r.Unlock()
	if !r.done {
		r.done, r.err = true, s.readPersistLocked()
	}
	return r.err
}

func (s *Server) readPersistLocked() error {
	c, r := s.config, s.region
	began := c.env.Now()
	replica := r.Replica()
	if err := s.persisted.store.Load().Recover(&replica); err != nil {
		return err
	}
	if len(replica.Ledger) == 0 {
		return nil
	}
	l, err := ledger.Decode(replica.Ledger)
	if err != nil {
		return fmt.Errorf("the ledger of persistent memory: %w: run the program that wrote it, or give the server an empty directory", err)
	}
	if _, err := r.Prepare(l); err != nil {
		return err
	}
	s.volume.ledger = replica.Ledger
	s.log.Info("memory was read from its directory; whoever takes a lock repairs first what it guards", "dir", c.PersistDir, "incarnation", r.Incarnation,
		"seconds", (c.env.Now() - began).Seconds())
	return nil
}

// followPersist lets answers wait for the directory, before anything is served. It can be repeated.
func (s *Server) followPersist() error {
	p := s.persisted
	if p == nil || p.feed != nil {
		return nil
	}
	if err := s.readPersist(); err != nil {
		return err
	}
	p.halt() // what a copy did
	j := s.region.Journal
	feed, err := j.Feed(func() error { return nil }, nil) // no list runs
	if err != nil {
		return err
	}
	store := p.store.Load()
	if err = store.Begin(feed.Start(), j.Ledger); err == nil {
		err = feed.Connect(store, feed.Start())
	}
	if err == nil {
		err = feed.Await()
	}
	if err != nil {
		feed.Drop()
		return err
	}
	p.feed, p.waiter = feed, j.NewWaiter()
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

// run runs what goes on beside a server that serves, until stop is closed. Then the log has what
// was recorded.
func (p *persisted) run(stop <-chan struct{}) {
	s := p.server
	store := p.store.Load()
	p.running.Go(store.RunSync)
	p.running.Go(func() { store.RunCheckpoints(p) })
	s.running.Go(func() {
		look := time.NewTicker(time.Second)
		defer look.Stop()
		for {
			select {
			case <-stop:
				store.Stop()
				p.waiter.Cut()
				if err := p.feed.Follow(nil, s.region.Journal.Last(), stopLimit); err != nil {
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

// halt ends what the store does beside a stream.
func (p *persisted) halt() {
	if store := p.store.Load(); store != nil {
		store.Stop()
	}
	p.running.Wait()
}
