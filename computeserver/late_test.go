package computeserver

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/pkg/env"
)

// halted is the real world, but for a clock that goes on only when the test says so.
type halted struct {
	env.Env
	at atomic.Int64
}

func newHalted() *halted {
	h := &halted{Env: env.Real()}
	h.at.Store(int64(h.Env.Now()))
	return h
}

func (h *halted) Now() time.Duration { return time.Duration(h.at.Load()) }

// pass lets time pass, and waits until the engines have looked at the clock.
func (h *halted) pass(t testing.TB, c *cluster, d time.Duration) {
	now := h.at.Add(int64(d))
	for id, r := range c.servers {
		computeservertest.Await(t, fmt.Sprintf("server %d looks at the clock", id), func() bool { return int64(r.core.Sessions.Clock()) >= now })
	}
}

func puts(n int) (ops []*rpcv1.Operation) {
	for i := range n {
		ops = append(ops, &rpcv1.Operation{Kind: rpcv1.Operation_UPSERT, Key: fmt.Appendf(nil, "k%d", i), Value: []byte("v")})
	}
	return ops
}

// done says how many of the first outcomes are OK, where all others must say that there was no
// time.
func done(t testing.TB, out []*rpcv1.Outcome) (n int) {
	t.Helper()
	for _, o := range out {
		if o.Code == rpcv1.Outcome_OK {
			n++
		}
	}
	for _, o := range out[n:] {
		if o.Code != rpcv1.Outcome_TIMED_OUT {
			t.Errorf("behind %d that were done: %v", n, o)
		}
	}
	return n
}

// TestNoWriteBeginsLate has the time of a batch pass while its fourth write is under way: no later
// one is begun, whether the batch came with a long limit or a short one, from a program or another
// server.
func TestNoWriteBeginsLate(t *testing.T) {
	for _, limit := range []time.Duration{3 * time.Second, 500 * time.Millisecond} {
		for _, forwarded := range []bool{false, true} {
			h := newHalted()
			c := newCluster(t, config.RoutingOwner, func(cfg *Config) { cfg.Env = h }, 1, 2)
			if forwarded {
				c.split([]uint32{1, 2}, "a") // all are of server 2
				c.link(1, 2)
			} else {
				c.split([]uint32{1, 2}, "z")
			}
			c.store.BeforeOperation(func(key []byte) {
				if string(key) == "k3" {
					h.pass(t, c, limit)
				}
			})
			b := c.batches(1)
			b.send(limit, puts(8)...)
			if n := done(t, b.receive().Outcomes); n != 4 || c.store.Len() != 4 {
				t.Errorf("limit %v, forwarded %v: %d writes are answered as done, %d are", limit, forwarded, n, c.store.Len())
			}
			c.store.BeforeOperation(nil)
		}
	}
}

// TestTimeInTheQueueCounts: the time of a batch that waits for others of its stream passes, too.
func TestTimeInTheQueueCounts(t *testing.T) {
	h := newHalted()
	c := newCluster(t, config.RoutingAny, func(cfg *Config) { cfg.Env = h }, 1)
	c.split([]uint32{1})
	hung, release := make(chan struct{}, rpcWorkers), make(chan struct{})
	c.store.BeforeOperation(func(key []byte) {
		if string(key) == "slow" {
			hung <- struct{}{}
			<-release
		}
	})
	b := c.batches(1)
	for range rpcWorkers {
		b.send(0, lookup("slow"))
	}
	for range rpcWorkers {
		<-hung
	}
	waits := b.send(3*time.Second, puts(4)...)
	computeservertest.Await(t, "the batch was read", func() bool { return c.servers[1].calls.pending.Load() == rpcWorkers+1 })
	h.pass(t, c, 3*time.Second)
	close(release)
	for range rpcWorkers + 1 {
		if reply := b.receive(); reply.Id == waits {
			if n := done(t, reply.Outcomes); n != 0 {
				t.Errorf("%d writes were done after their time", n)
			}
		}
	}
	if n := c.store.Len(); n != 0 {
		t.Errorf("%d keys were stored", n)
	}
}

// TestNoCommandWritesLate is the same for the commands that a RESP client sent together, of both
// kinds of keys.
func TestNoCommandWritesLate(t *testing.T) {
	h := newHalted()
	c := newCluster(t, config.RoutingOwner, func(cfg *Config) { cfg.Env, cfg.Limit = h, 5*time.Second }, 1, 2)
	c.split([]uint32{1, 2}, "m")
	c.link(1, 2)
	c.store.BeforeOperation(func(key []byte) {
		if string(key) == "k3" {
			h.pass(t, c, 5*time.Second)
		}
	})
	r := c.raw(1)
	r.Send(computeservertest.Command("SET", "k1", "v") + computeservertest.Command("SET", "k3", "v") + computeservertest.Command("SET", "k4", "v") + computeservertest.Command("SETNX", "z", "v") + computeservertest.Command("GET", "k1") + computeservertest.Command("MSET", "k5", "v", "z", "v") + computeservertest.Command("DEL", "k1"))
	late := "-TIMEOUT nothing was done: "
	for i, want := range []string{"+OK\r\n", "+OK\r\n", late, late, "$1\r\n", "v\r\n", "-TIMEOUT ", late} {
		if line := r.Line(); !strings.HasPrefix(line, want) {
			t.Errorf("line %d is %q, want %q", i, line, want)
		}
	}
	if n := c.store.Len(); n != 2 {
		t.Errorf("%d keys are there", n)
	}
	r.Send(computeservertest.Command("DEL", "k1", "k3")) // what comes later has its own time
	r.Expect(":2\r\n")
}

// TestNoWriteBeginsLateAtTheEnd has the time of a batch pass while the engine already waits for its
// session, to close the index.
func TestNoWriteBeginsLateAtTheEnd(t *testing.T) {
	h := newHalted()
	c := newCluster(t, config.RoutingAny, func(cfg *Config) { cfg.Env = h }, 1)
	c.split([]uint32{1})
	eng := c.servers[1].core.Sessions
	c.store.BeforeOperation(func(key []byte) {
		if string(key) == "k3" {
			eng.Halt(0)
			computeservertest.Await(t, "the engine closes the index", func() bool { return eng.Opened() == nil })
			h.pass(t, c, 3*time.Second)
		}
	})
	b := c.batches(1)
	b.send(3*time.Second, puts(8)...)
	if n := done(t, b.receive().Outcomes); n != 4 || c.store.Len() != 4 {
		t.Errorf("%d writes are answered as done, %d are", n, c.store.Len())
	}
}
