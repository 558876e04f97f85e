package memserver

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/env"
)

// queues is a real env that knows who waits for its locks.
type queues struct {
	env.Env
	mu  sync.Mutex
	all []*queue
}

// queue is a lock that knows who waits for it.
type queue struct {
	sync.Mutex
	waiting atomic.Int32
}

// NewMutex implements env.Env.
func (q *queues) NewMutex() env.Mutex {
	q.mu.Lock()
	defer q.mu.Unlock()
	made := &queue{}
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
	q.Mutex.Lock()
	q.waiting.Add(-1)
}

// TestTurns: however many changes of an index are under way, others find one before them. The
// ledger's next file is a pipe, so storing a change waits until the test reads it.
func TestTurns(t *testing.T) {
	e := &queues{Env: env.Real()}
	c := dirConfig(t.TempDir())
	c.env = e
	s := must(New(c)) // without the lease loop and the zeroer, which look at the ledger too
	defer s.Close()
	if err := s.control.Start(); err != nil {
		t.Fatal(err)
	}
	must(s.control.Admit(t.Context(), &rpcv1.AdmitRequest{Index: "many", QuotaChunks: 4}))
	must(s.control.SwapMap(t.Context(), &rpcv1.SwapMapRequest{Index: "many", Generation: 1}))
	id := must(s.control.Register(t.Context(), &rpcv1.RegisterRequest{Index: "many"})).Client
	chunk := must(s.control.AllocateChunk(t.Context(), &rpcv1.AllocateChunkRequest{Index: "many", Client: id, NodeBytes: 1024})).Offset
	other := must(s.control.Register(t.Context(), &rpcv1.RegisterRequest{Index: "many"})).Client

	// The turn of an index lives as long as its changes, so all locks that are made now are the
	// server's, and those that are made later are turns.
	servers := len(e.made())
	waiting := func() (ledger, turn int32) {
		for i, q := range e.made() {
			if i < servers {
				ledger += q.waiting.Load()
			} else {
				turn += q.waiting.Load()
			}
		}
		return ledger, turn
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
	// AcquireRange waits for the ledger; of all others one stores, the rest wait for its turn.
	var ledger, turn int32
	deadline := time.Now().Add(limit)
	until(func() bool {
		ledger, turn = waiting()
		return ledger == 1 && turn == each+3 || time.Now().After(deadline)
	})
	if ledger != 1 || turn != each+3 {
		t.Errorf("%d wait for the ledger, behind which the calls of other indexes wait, and %d for their turn", ledger, turn)
	}
	f := must(os.Open(pipe))
	defer f.Close()
	must(io.Copy(io.Discard, f))
	calls.Wait()
}

func until(is func() bool) {
	for !is() {
		runtime.Gosched()
	}
}
