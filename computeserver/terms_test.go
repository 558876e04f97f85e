package computeserver

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/internal/memindex"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
)

// jumping is the real world, but for a clock that can jump, as it does for a process that stood
// still.
type jumping struct {
	env.Env
	by atomic.Int64
}

func newJumping() *jumping { return &jumping{Env: env.Real()} }

func (j *jumping) Now() time.Duration { return j.Env.Now() + time.Duration(j.by.Load()) }

// standStill lets the servers of the cluster wake after their leases ran out.
func (c *cluster) standStill(j *jumping) {
	for _, r := range c.servers { // nobody looks in between
		r.core.eng.mu.Lock()
		defer r.core.eng.mu.Unlock()
	}
	c.store.Lapse("stood still")
	j.by.Add(int64(2 * standstillHere))
}

// TestOldRequestsAreRefused: requests on connections from before a standstill are not run, wherever
// they are by then; those on new connections are.
func TestOldRequestsAreRefused(t *testing.T) {
	j := newJumping()
	var gate sync.RWMutex // locked while no index can be opened
	c := newCluster(t, config.RoutingOwner, func(cfg *Config) {
		open := cfg.Open
		cfg.Env, cfg.Open = j, func() (Opened, error) {
			gate.RLock()
			defer gate.RUnlock()
			return open()
		}
	}, 1, 2)
	c.split([]uint32{1, 2}, "m")
	engine := c.servers[1].core.eng
	before, ok := engine.newConnection()
	if !ok {
		t.Fatal("the index is open, and a connection is turned away")
	}
	put := func(key string, term uint64) *rpcv1.Outcome {
		op := &rpcv1.Operation{Kind: rpcv1.Operation_UPSERT, Key: []byte(key), Value: []byte("v")}
		return c.servers[1].core.do([]*rpcv1.Operation{op}, false, time.Minute, term)[0]
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
	if _, ok := engine.newConnection(); ok {
		t.Error("a connection that may have waited since before is taken")
	}
	gate.Unlock()
	for _, r := range c.servers { // server 2 cuts its connections, too, when it notices
		awaitTrue(t, "connections are taken again", func() bool { _, ok := r.core.eng.newConnection(); return ok })
	}
	after, _ := engine.newConnection()
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

// TestStandstillCutsConnections: RESP connections and streams from before are over, and programs
// connect again.
func TestStandstillCutsConnections(t *testing.T) {
	j := newJumping()
	c := newCluster(t, config.RoutingAny, func(cfg *Config) { cfg.Env = j }, 1)
	c.split([]uint32{1})
	r, cl, ctx := c.raw(1), c.sdk(1), context.Background()
	r.send(resp("SET", "a", "1"))
	r.expect("+OK\r\n")
	if err := cl.Put(ctx, []byte("b"), nil); err != nil {
		t.Fatal(err)
	}
	c.standStill(j)
	if got := r.expectEnd(); got != "" {
		t.Errorf("an old connection got %q", got)
	}
	if err := cl.Put(ctx, []byte("c"), nil); err != nil { // over a new one
		t.Error(err)
	}
	awaitTrue(t, "connections are taken again", func() bool { _, ok := c.servers[1].core.eng.newConnection(); return ok })
	again := c.raw(1)
	again.send(resp("GET", "a"))
	again.expect("$1\r\n1\r\n")
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
				g := newEngine(server, func() (Opened, error) { return store.Open(), nil }, time.Second, 4, 4, testLogger(t))
				g.still = func() { cuts++ }
				server.Go("engine", g.run)
				server.Go("an old request", func() {
					defer done.Set()
					term, _ := g.newConnection()
					server.Sleep(10 * time.Second) // it lies in a socket
					s, err := g.borrow(5*time.Second, term)
					if errors.Is(err, errStoodStill) != frozen {
						t.Errorf("frozen %v: %v", frozen, err)
					}
					if err == nil {
						g.repay(s, nil)
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
