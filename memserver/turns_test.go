package memserver

import (
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/env"
)

// queues is a real env that knows who waits for its locks.
type queues struct {
	env.Env
	mu      sync.Mutex
	all     []*queue
	waiting atomic.Int32 // for all of them
}

// queue is a lock that knows who waits for it.
type queue struct {
	sync.Mutex
	of      *queues
	waiting atomic.Int32
}

// NewMutex implements env.Env.
func (q *queues) NewMutex() env.Mutex {
	q.mu.Lock()
	defer q.mu.Unlock()
	made := &queue{of: q}
	q.all = append(q.all, made)
	return made
}

// made returns the locks that were made so far.
func (q *queues) made() []*queue {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.all[:len(q.all):len(q.all)]
}

// Lock implements env.Mutex.
func (q *queue) Lock() {
	if q.TryLock() {
		return
	}
	q.waiting.Add(1)
	q.of.waiting.Add(1)
	q.Mutex.Lock()
	q.waiting.Add(-1)
	q.of.waiting.Add(-1)
}

// TestTurns: however many changes of an index are under way, others find one before them. The
// ledger's next file is a pipe, so storing a change waits until the test reads it.
func TestTurns(t *testing.T) {
	e := &queues{Env: env.Real()}
	c := dirConfig(t.TempDir())
	c.env = e
	s, _ := start(t, c)
	must(s.control.Admit(t.Context(), &rpcv1.AdmitRequest{Index: "many", QuotaChunks: 4}))
	must(s.control.SwapMap(t.Context(), &rpcv1.SwapMapRequest{Index: "many", Generation: 1}))
	id := must(s.control.Register(t.Context(), &rpcv1.RegisterRequest{Index: "many"})).Client
	chunk := must(s.control.AllocateChunk(t.Context(), &rpcv1.AllocateChunkRequest{Index: "many", Client: id, NodeBytes: 1024})).Offset
	other := must(s.control.Register(t.Context(), &rpcv1.RegisterRequest{Index: "many"})).Client

	// The turn of an index lives as long as its changes, so all of these are the server's.
	servers := e.made()
	waiting := func() (n int32) {
		for _, q := range servers {
			n += q.waiting.Load()
		}
		return n
	}
	pipe := filepath.Join(c.DataDir, ledgerFile+".new")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	call := func(f func() error) {
		calls.Go(func() {
			if err := f(); err != nil {
				t.Error(err)
			}
		})
	}
	const each = 10
	for range 1 + each {
		call(func() error {
			_, err := s.control.Register(t.Context(), &rpcv1.RegisterRequest{Index: "many"})
			return err
		})
	}
	call(func() error {
		_, err := s.control.AllocateChunk(t.Context(), &rpcv1.AllocateChunkRequest{Index: "many", Client: id, NodeBytes: 1024})
		return err
	})
	call(func() error {
		_, err := s.control.FreeChunk(t.Context(), &rpcv1.FreeChunkRequest{Index: "many", Client: id, Offset: chunk})
		return err
	})
	call(func() error {
		_, err := s.control.Fence(t.Context(), &rpcv1.FenceRequest{Index: "many", Clients: []uint32{other}})
		return err
	})
	call(func() error {
		_, err := s.control.AcquireRange(t.Context(), &rpcv1.AcquireRangeRequest{Index: "many", Client: id, Generation: 1})
		return err
	})
	until(func() bool { return e.waiting.Load() >= each+4 })
	until(func() bool { return waiting() > 0 }) // AcquireRange
	// the lease loop looks at the ledger too
	if n := waiting(); n > 2 {
		t.Errorf("%d wait for the ledger, behind which the calls of other indexes wait", n)
	}
	f := must(os.Open(pipe))
	defer f.Close()
	must(io.Copy(io.Discard, f))
	calls.Wait()
}
