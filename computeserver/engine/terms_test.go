package engine

import (
	"errors"
	"sync"
	"testing"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/computeservertest/memindex"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/pkg/env/simenv"
)

// standStill lets the servers wake after their leases ran out.
func (p *pair) standStill(j *computeservertest.Clock) {
	for _, c := range p.servers { // nobody looks in between
		c.Sessions.mu.Lock()
		defer c.Sessions.mu.Unlock()
	}
	p.store.Lapse("stood still")
	j.By.Add(int64(2 * computeservertest.Standstill))
}

// TestOldRequestsAreRefused: requests on connections from before a standstill are not run, wherever
// they are by then; those on new connections are.
func TestOldRequestsAreRefused(t *testing.T) {
	j := computeservertest.NewClock()
	var gate sync.RWMutex // locked while no index can be opened
	c := newPair(t, j, func(open func() (ownership.Opened, error)) (ownership.Opened, error) {
		gate.RLock()
		defer gate.RUnlock()
		return open()
	})
	engine := c.servers[0].Sessions
	before, ok := engine.NewConnection()
	if !ok {
		t.Fatal("the index is open, and a connection is turned away")
	}
	put := func(key string, term uint64) *rpcv1.Outcome {
		op := &rpcv1.Operation{Kind: rpcv1.Operation_UPSERT, Key: []byte(key), Value: []byte("v")}
		return c.servers[0].Do([]*rpcv1.Operation{op}, false, time.Minute, term)[0]
	}
	if o := put("a", before); o.Code != rpcv1.Outcome_OK {
		t.Fatalf("before: %v", o)
	}
	gate.Lock()
	c.standStill(j)
	for _, key := range []string{"old", "x-old"} { // here, and at server 2
		if o := put(key, before); o.Code != rpcv1.Outcome_UNAVAILABLE || o.Message != errStoodStill.Error() {
			t.Errorf("%s: %v", key, o)
		}
	}
	if _, ok := engine.NewConnection(); ok {
		t.Error("a connection that may have waited since before is taken")
	}
	gate.Unlock()
	for _, r := range c.servers { // server 2 takes none either until it notices
		computeservertest.Await(t, "connections are taken again", func() bool { _, ok := r.Sessions.NewConnection(); return ok })
	}
	after, _ := engine.NewConnection()
	for _, key := range []string{"old", "x-old"} {
		if o := put(key, before); o.Code != rpcv1.Outcome_UNAVAILABLE || o.Message != errStoodStill.Error() {
			t.Errorf("%s, later: %v", key, o)
		}
	}
	if o := put("new", after); o.Code != rpcv1.Outcome_OK {
		t.Errorf("after: %v", o)
	}
	if n := c.store.Len(); n != 2 {
		t.Errorf("%d pairs are stored", n)
	}
}

// TestTermsUnderTheSimulator: a process that is frozen beyond its leases has a new term when it
// goes on; one that loses its leases while it runs has not.
func TestTermsUnderTheSimulator(t *testing.T) {
	for seed := range uint64(20) {
		for _, frozen := range []bool{true, false} {
			w := simenv.New(simenv.Options{Seed: seed, Preempt: 4})
			err := w.Run(func(p *simenv.Process) {
				server, done := w.NewProcess("server"), p.NewEvent()
				store, cuts := memindex.New(server, 8, 8), 0
				g := newSessions(server, func() (ownership.Opened, error) { return store.Open(), nil }, time.Second, 4, 4, computeservertest.Logger(t))
				g.OnStandstill = func() { cuts++ }
				server.Go("engine", g.Run)
				server.Go("an old request", func() {
					defer done.Set()
					term, _ := g.NewConnection()
					server.Sleep(10 * time.Second) // it lies in a socket
					s, err := g.Borrow(5*time.Second, term)
					if errors.Is(err, errStoodStill) != frozen {
						t.Errorf("frozen %v: %v", frozen, err)
					}
					if err == nil {
						g.Repay(s, nil)
					}
				})
				p.Sleep(5 * time.Second)
				if frozen {
					server.Freeze()
					p.Sleep(20 * time.Second)
				}
				store.Lapse("its time is over")
				server.Thaw()
				if !done.Wait(time.Minute) {
					t.Error("the request did not end")
				}
				p.Sleep(time.Second) // the engine's turn
				if (cuts == 1) != frozen {
					t.Errorf("frozen %v: connections were cut %d times", frozen, cuts)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}
