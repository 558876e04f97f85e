package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/computeservertest/memindex"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
)

// alone runs f with an engine over a store of its own.
func alone(t *testing.T, f func(p *simenv.Process, c *Engine, store *memindex.Store)) {
	t.Helper()
	w := simenv.New(simenv.Options{Seed: 1, Preempt: 4})
	if err := w.Run(func(p *simenv.Process) {
		store := memindex.New(p, 8, 2000)
		c := New(Options{
			Env: p, Index: &config.Index{Identity: "x", KeyType: config.KeyBytes, MaxKeyBytes: 8, MaxValueBytes: 2000, Routing: config.RoutingAny},
			SharesAll: true, Open: func() (ownership.Opened, error) { return store.Open(), nil },
			Limit: time.Second, MaxSessions: 4, MaxWaiting: 4, Log: computeservertest.Logger(t),
		})
		p.Go("engine", c.Sessions.Run)
		p.Sleep(time.Second)
		f(p, c, store)
		c.Sessions.Halt(time.Minute)
	}); err != nil {
		t.Fatal(err)
	}
}

// TestBatchReadsTogether: the lookups of a run are one batch, changes are prepared together, and
// each operation finds what it would find alone.
func TestBatchReadsTogether(t *testing.T) {
	alone(t, func(_ *simenv.Process, c *Engine, store *memindex.Store) {
		var together []string
		store.BeforeBatch(func(what string, keys int) { together = append(together, fmt.Sprint(what, " ", keys)) })
		get := func(key string) *rpcv1.Operation {
			return &rpcv1.Operation{Kind: rpcv1.Operation_LOOKUP, Key: []byte(key)}
		}
		put := func(key, value string) *rpcv1.Operation {
			return &rpcv1.Operation{Kind: rpcv1.Operation_UPSERT, Key: []byte(key), Value: []byte(value)}
		}
		long := strings.Repeat("v", 2000)
		ops := []*rpcv1.Operation{get("a"), get("b"), put("a", "1"), get("a"), get("a"), put("a", "2"), put("b", long),
			{Kind: rpcv1.Operation_DELETE, Key: []byte("c")}, get("a"), get("b"), get("c"), get("far too long")}
		want := []string{"NOT_FOUND ", "NOT_FOUND ", "OK ", "OK 1", "OK 1", "OK ", "OK ", "NOT_FOUND ", "OK 2", "OK " + long, "NOT_FOUND ", "INVALID "}
		for i, o := range c.Do(ops, false, time.Second, 0) {
			if got := o.Code.String() + " " + string(o.Value); got != want[i] {
				t.Errorf("operation %d: %s; want %s", i, got, want[i])
			}
		}
		if want := []string{"look up 2", "prepare 4", "look up 2", "look up 3"}; !slices.Equal(together, want) {
			t.Errorf("done together: %q; want %q", together, want)
		}
		ops = ops[:0]
		for i := range 3*preparedMost + 1 {
			ops = append(ops, put(fmt.Sprint(i), strings.Repeat("x", i)))
		}
		for i := range 3*preparedMost + 1 {
			ops = append(ops, get(fmt.Sprint(i)))
		}
		for i, o := range c.Do(ops, false, time.Second, 0) {
			n := i - 3*preparedMost - 1
			if o.Code != rpcv1.Outcome_OK || n >= 0 && string(o.Value) != strings.Repeat("x", n) {
				t.Errorf("operation %d: %v with %d bytes", i, o.Code, len(o.Value))
			}
		}
	})
}

// TestBatchThatDies: a session that dies while the batch is looked at together fails the first
// operation without an outcome, and nothing behind it is tried.
func TestBatchThatDies(t *testing.T) {
	alone(t, func(p *simenv.Process, c *Engine, store *memindex.Store) {
		for _, ops := range [][]*rpcv1.Operation{batch(), batch()[1:], append(batch()[1:2:2], batch()[1:]...)} {
			c.Do(batch()[1:2], false, time.Second, 0) // there is a session
			store.Fail(index.ErrUnreachable)
			for i, o := range c.Do(ops, false, time.Second, 0) {
				before := strings.HasPrefix(o.Message, "an operation before this one failed")
				if invalid := len(ops[i].Value) > 2000; !invalid && (o.Code != rpcv1.Outcome_UNAVAILABLE || before != (i > 0)) {
					t.Errorf("operation %d: %v", i, o)
				}
			}
			store.Fail(nil)
			p.Sleep(time.Second)
			if store.Len() != 0 {
				t.Errorf("%d changes were made", store.Len())
			}
		}
	})
}
