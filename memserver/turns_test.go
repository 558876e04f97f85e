package memserver

import (
	"sync"
	"sync/atomic"
	"testing"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/env"
)

// queues is a real env that knows who waits for its locks.
type queues struct {
	env.Env
	waiting atomic.Int32 // for all of them
}

// queue is a lock that knows who waits for it.
type queue struct {
	sync.Mutex
	of      *queues
	waiting atomic.Int32
}

// NewMutex implements env.Env.
func (q *queues) NewMutex() env.Mutex { return &queue{of: q} }

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

// TestTurns: however many changes of an index are under way, others find one before them. Nothing
// stays of a turn that is over.
func TestTurns(t *testing.T) {
	e := &queues{Env: env.Real()}
	c := localConfig(t)
	c.env = e
	s, _ := start(t, c)
	a := s.control.accounts
	must(s.control.Admit(t.Context(), &rpcv1.AdmitRequest{Index: "many", QuotaChunks: 4}))
	must(s.control.SwapMap(t.Context(), &rpcv1.SwapMapRequest{Index: "many", Generation: 1}))
	id := must(s.control.Register(t.Context(), &rpcv1.RegisterRequest{Index: "many"})).Client
	chunk := must(s.control.AllocateChunk(t.Context(), &rpcv1.AllocateChunkRequest{Index: "many", Client: id, NodeBytes: 1024})).Offset
	other := must(s.control.Register(t.Context(), &rpcv1.RegisterRequest{Index: "many"})).Client

	begun, goOn, first := make(chan struct{}), make(chan struct{}), true
	a.mu.Lock()
	a.store = saver(func([]byte) error {
		if first {
			first = false
			close(begun)
			<-goOn
		}
		return nil
	})
	a.mu.Unlock()
	var calls sync.WaitGroup
	call := func(f func() error) {
		calls.Go(func() {
			if err := f(); err != nil {
				t.Error(err)
			}
		})
	}
	register := func() error {
		_, err := s.control.Register(t.Context(), &rpcv1.RegisterRequest{Index: "many"})
		return err
	}
	call(register)
	<-begun
	const each = 10
	for range each {
		call(register)
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
	until(func() bool { return a.mu.(*queue).waiting.Load() > 0 }) // AcquireRange
	// the lease loop looks at the ledger too
	if n := a.mu.(*queue).waiting.Load(); n > 2 {
		t.Errorf("%d wait for the ledger, behind which the calls of other indexes wait", n)
	}
	close(goOn)
	calls.Wait()
	if n := len(a.turns.of); n != 0 {
		t.Errorf("%d turns stay", n)
	}
}
