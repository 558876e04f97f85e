package engine

import (
	"fmt"
	"math/rand/v2"
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

// dividing runs f with an engine whose batches are divided, whatever they are.
func dividing(t *testing.T, seed uint64, f func(p *simenv.Process, c *Engine, store *memindex.Store)) {
	t.Helper()
	w := simenv.New(simenv.Options{Seed: seed, Preempt: 4})
	if err := w.Run(func(p *simenv.Process) {
		store := memindex.New(p, 8, 64)
		c := New(Options{
			Env: p, Index: &config.Index{Identity: "x", KeyType: config.KeyBytes, MaxKeyBytes: 8, MaxValueBytes: 64, Routing: config.RoutingAny},
			SharesAll: true, Open: func() (ownership.Opened, error) { return store.Open(), nil },
			Limit: time.Second, MaxSessions: 8, MaxWaiting: 4, Log: computeservertest.Logger(t), DivideAlways: true,
		})
		p.Go("engine", c.Sessions.Run)
		p.Sleep(time.Second)
		f(p, c, store)
		c.Sessions.Halt(time.Minute)
	}); err != nil {
		t.Fatal(err)
	}
}

// TestDividedBatchKeepsOrder: the operations of a divided batch on one key take effect in their
// order.
func TestDividedBatchKeepsOrder(t *testing.T) {
	rnd := computeservertest.Seeded(t)
	for range 50 {
		seed := rnd.Uint64()
		dividing(t, seed, func(_ *simenv.Process, c *Engine, _ *memindex.Store) {
			rnd := rand.New(rand.NewPCG(seed, 0))
			model := map[string]string{}
			for round := range 5 {
				var ops []*rpcv1.Operation
				var want []string
				for i := range 1 + rnd.IntN(200) {
					key := fmt.Sprint(rnd.IntN(1 + rnd.IntN(40)))
					value, there := model[key]
					op := &rpcv1.Operation{Kind: rpcv1.Operation_Kind(1 + rnd.IntN(5)), Key: []byte(key)}
					code, is := rpcv1.Outcome_OK, ""
					put := func() {
						op.Value = fmt.Append(nil, round, ".", i)
						model[key] = string(op.Value)
					}
					switch op.Kind {
					case rpcv1.Operation_LOOKUP:
						if is = value; !there {
							code = rpcv1.Outcome_NOT_FOUND
						}
					case rpcv1.Operation_INSERT:
						if there {
							code, op.Value = rpcv1.Outcome_ALREADY_EXISTS, []byte("x")
						} else {
							put()
						}
					case rpcv1.Operation_UPDATE, rpcv1.Operation_DELETE:
						if !there {
							code = rpcv1.Outcome_NOT_FOUND
						} else if op.Kind == rpcv1.Operation_UPDATE {
							put()
						} else {
							delete(model, key)
						}
					case rpcv1.Operation_UPSERT:
						put()
					}
					ops, want = append(ops, op), append(want, code.String()+" "+is)
				}
				for i, o := range c.Do(ops, false, time.Second, 0) {
					if got := o.Code.String() + " " + string(o.Value); got != want[i] {
						t.Fatalf("seed %d: operation %d, %v of %q: %s %s; want %s", seed, i, ops[i].Kind, ops[i].Key, got, o.Message, want[i])
					}
				}
			}
			if c.Count.Divided.Load() == 0 {
				t.Errorf("seed %d: no batch was divided", seed)
			}
		})
	}
}

// TestDividedBatchThatDies: a session that dies ends its part of a batch. Behind a failed operation
// none on the same key is tried.
func TestDividedBatchThatDies(t *testing.T) {
	dividing(t, 1, func(p *simenv.Process, c *Engine, store *memindex.Store) {
		var ops []*rpcv1.Operation
		for i := range 40 {
			ops = append(ops, &rpcv1.Operation{Kind: rpcv1.Operation_UPSERT, Key: fmt.Append(nil, i%10), Value: []byte("v")})
		}
		store.Fail(index.ErrUnreachable)
		for i, o := range c.Do(ops, false, time.Second, 0) {
			if o.Code != rpcv1.Outcome_UNAVAILABLE {
				t.Errorf("operation %d: %v", i, o)
			}
		}
		store.Fail(nil)
		p.Sleep(time.Second)
		if store.Len() != 0 {
			t.Errorf("%d changes were made", store.Len())
		}
	})
}

// TestQuickBatchesStayWhole: changes that hardly wait, few of them, and lookups are not divided.
func TestQuickBatchesStayWhole(t *testing.T) {
	dividing(t, 1, func(_ *simenv.Process, c *Engine, _ *memindex.Store) {
		ops := func(kind rpcv1.Operation_Kind, n int) (ops []*rpcv1.Operation, todo []int) {
			for i := range n {
				ops, todo = append(ops, &rpcv1.Operation{Kind: kind, Key: fmt.Append(nil, i)}), append(todo, i)
			}
			return ops, todo
		}
		c.divideLeast, c.divideSlow = divideLeast, divideSlow
		for _, test := range []struct {
			kind  rpcv1.Operation_Kind
			n     int
			pace  time.Duration
			parts int
		}{
			{rpcv1.Operation_UPSERT, 64, divideSlow - 1, 1}, {rpcv1.Operation_UPSERT, 64, divideSlow, 8}, {rpcv1.Operation_UPSERT, 1024, divideSlow, 8},
			{rpcv1.Operation_UPSERT, 16, divideSlow, 2}, {rpcv1.Operation_UPSERT, 15, divideSlow, 1}, {rpcv1.Operation_LOOKUP, 64, divideSlow, 1},
		} {
			c.Sessions.load.pace.Store(int64(test.pace))
			if parts := c.divide(ops(test.kind, test.n)); len(parts) != test.parts {
				t.Errorf("%+v: divided into %d parts", test, len(parts))
			}
		}
	})
}
