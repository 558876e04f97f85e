package memory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/keeper"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// CopiesConfig is that of memory servers that are kept twice.
type CopiesConfig struct {
	Servers    int
	Bytes      uint64        // of memory, of each process
	ChunkBytes uint64        // 0 = the memory server's default
	Lease      time.Duration // of clients; 0 = the memory server's default
	Logger     *slog.Logger  // of what is decided
	// Stderr has what the processes log; nil = their warnings are kept for errors.
	Stderr io.Writer
	// Changed, unless nil, is told in a sentence when other processes have a memory server's
	// content. It is called by one goroutine at a time.
	Changed func(text string)
}

// Copies are memory servers with two processes of this program each: one answers, the other has
// all that was answered. When a process ends, another one takes its place: its memory is anonymous,
// so it is gone with it. When both end before that, the server's content is lost. Ids count from 1.
type Copies struct {
	config  CopiesConfig
	servers []*twice
	stop    context.CancelFunc
	keeping sync.WaitGroup
	telling sync.Mutex
	failed  chan error
}

// twice is one memory server.
type twice struct {
	all       *Copies
	id        uint16
	keeper    *keeper.Keeper
	processes *processes
}

const (
	suspect = 2 * time.Second       // a process that does not answer is replaced after it
	look    = 50 * time.Millisecond // how often processes are asked
)

// StartCopies starts all processes. It returns when each server's content is there twice, or not
// within the limit of ctx.
func StartCopies(ctx context.Context, c CopiesConfig) (*Copies, error) {
	a := &Copies{config: c, failed: make(chan error, 1)}
	keeping, stop := context.WithCancel(context.Background())
	a.stop = stop
	for i := range c.Servers {
		s := &twice{all: a, id: uint16(i + 1)}
		s.processes = newProcesses(s)
		s.keeper = keeper.New(keeper.Config{
			Volume: uint32(s.id), Copies: 2, Suspect: suspect, Look: look, Pods: s.processes.pods, Make: s.processes.make, Delete: s.processes.kill,
			Changed: s.changed, Logger: c.Logger,
		})
		a.servers = append(a.servers, s)
		a.keeping.Go(func() { s.keeper.Run(keeping) })
	}
	for _, s := range a.servers {
		if err := a.await(ctx, s); err != nil {
			return nil, errors.Join(fmt.Errorf("memory server %d: %w", s.id, err), a.Close())
		}
	}
	return a, nil
}

// await waits until a server's content is there twice.
func (a *Copies) await(ctx context.Context, s *twice) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case err := <-a.failed:
			cancel(err)
			a.fail(err) // for Run, if the wait was over
		case <-over:
		}
	}()
	return s.keeper.Await(ctx, func(_ volumes.View, status volumes.Status) bool { return status == volumes.InSync })
}

// Members are the servers as the configuration of an index names them.
func (a *Copies) Members() []config.MemoryServer {
	members := make([]config.MemoryServer, len(a.servers))
	for i, s := range a.servers {
		_, _, primary := s.keeper.View()
		members[i] = config.MemoryServer{ID: s.id, Control: primary.Control, Pod: primary.Name}
		for _, p := range s.processes.pods() {
			if p.Name != primary.Name {
				members[i].Copies = append(members[i].Copies, p.Control)
			}
		}
	}
	return members
}

// Run calls failed, on another goroutine, when a server cannot go on: its content is lost, or its
// processes end as soon as they are started.
func (a *Copies) Run(failed func(error)) {
	ctx, stop := context.WithCancel(context.Background())
	keeping := a.stop
	a.stop = func() { stop(); keeping() }
	a.keeping.Go(func() {
		select {
		case err := <-a.failed:
			failed(err)
		case <-ctx.Done():
		}
	})
}

// fail says why the servers cannot go on. Of several reasons the first counts.
func (a *Copies) fail(err error) {
	select {
	case a.failed <- err:
	default:
	}
}

// Admit gives an index all chunks and locks of every server.
func (a *Copies) Admit(ctx context.Context, identity string) error {
	for _, s := range a.servers {
		for {
			_, _, primary := s.keeper.View()
			err := describe(ctx, primary.Control, func(memory rpcv1.MemoryClient, has *rpcv1.DescribeMemoryReply) error {
				_, err := memory.Admit(ctx, &rpcv1.AdmitRequest{Index: identity, QuotaChunks: has.ChunksTotal, Locks: has.LocksTotal})
				return err
			})
			if err == nil {
				break
			}
			if _, _, now := s.keeper.View(); now == primary || ctx.Err() != nil {
				return fmt.Errorf("memory server %d: %w", s.id, err)
			}
		}
	}
	return nil
}

// State says in a sentence for each server which processes have its content.
func (a *Copies) State() (text []string) {
	for _, s := range a.servers {
		v, _, _ := s.keeper.View()
		text = append(text, s.state(v))
	}
	return text
}

// Primary is the number of the process that answers for a server; 0 = there is none.
func (a *Copies) Primary(server int) int {
	v, _, _ := a.servers[server-1].keeper.View()
	return a.servers[server-1].processes.pid(v.Primary.Pod)
}

func (s *twice) state(v volumes.View) string {
	text := fmt.Sprintf("memory server %d: process %d answers", s.id, s.processes.pid(v.Primary.Pod))
	if v.Backup != (volumes.Proc{}) {
		return text + fmt.Sprintf(", process %d has the copy", s.processes.pid(v.Backup.Pod))
	}
	return text + ", and no other one has a copy"
}

// changed says which processes there are now, and fails if the content is lost.
func (s *twice) changed(v volumes.View, status volumes.Status, why string) {
	a := s.all
	if status == volumes.Lost {
		a.fail(fmt.Errorf("memory server %d: %s, and its content with them: start anew", s.id, why))
	}
	if status == volumes.InSync {
		s.processes.settled()
	}
	if a.config.Changed == nil {
		return
	}
	a.telling.Lock()
	defer a.telling.Unlock()
	switch status {
	case volumes.InSync:
		a.config.Changed(s.state(v))
	case volumes.Switching:
		if v.Backup == (volumes.Proc{}) {
			a.config.Changed(s.state(v) + ": " + why)
		}
	case volumes.Undecided, volumes.Conflict, volumes.Lost:
		a.config.Changed(fmt.Sprintf("memory server %d: %s", s.id, s.processes.nameProcesses(why)))
	}
}

// Close ends all processes and waits for that; their content is gone.
func (a *Copies) Close() error {
	a.stop()
	a.keeping.Wait()
	for _, s := range a.servers {
		s.processes.close()
	}
	return nil
}
