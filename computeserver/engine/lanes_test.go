package engine

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/partition"
)

// answering is another server, which finds no key.
type answering struct{ Peers }

func (answering) Keep([]partition.Server) {}

func (answering) Do(_ context.Context, _ partition.Server, ops []*rpcv1.Operation, _ time.Duration, _ func(some []*rpcv1.Outcome)) ([]*rpcv1.Outcome, error) {
	return fill(make([]*rpcv1.Outcome, len(ops)), &rpcv1.Outcome{Code: rpcv1.Outcome_NOT_FOUND}), nil
}

// TestIndexThatIsNotOpenIsWaitedForInLanes: an index is not open. What waits for it is parked, so
// DoParts returns at once, and a worker of a stream goes on with keys of other servers. It waits as
// long as it would in Do. That the data is lost, or that the server ends, is answered at once.
func TestIndexThatIsNotOpenIsWaitedForInLanes(t *testing.T) {
	w := simenv.New(simenv.Options{Seed: 1, Preempt: 4})
	err := w.Run(func(p *simenv.Process) {
		c := New(Options{
			Env: p, Index: computeservertest.Config(config.RoutingOwner), Self: 1, SharesAll: true, Limit: 30 * time.Second, MaxSessions: 4, MaxWaiting: 64,
			Open: func() (ownership.Opened, error) { return nil, errors.New("no memory server answers") }, Log: computeservertest.Logger(t),
		})
		c.Peers = answering{}
		m, err := partition.ByBoundaries(computeservertest.Index, []partition.Server{{ID: 1, Name: "pod-1"}, {ID: 2, Name: "pod-2"}}, [][]byte{[]byte("m")})
		if err != nil {
			t.Fatal(err)
		}
		c.View.Apply(m)
		p.Go("engine", c.Sessions.Run)
		ask := func() (g *gathered, waits []int, took time.Duration) {
			ops := []*rpcv1.Operation{{Kind: rpcv1.Operation_LOOKUP, Key: []byte("a")}, {Kind: rpcv1.Operation_LOOKUP, Key: []byte("n")}}
			g = &gathered{out: make([]*rpcv1.Outcome, len(ops)), ended: p.NewEvent()}
			began := p.Now()
			out, waits := c.DoParts(ops, false, c.Limit, 0, g)
			for i, o := range out {
				if !slices.Contains(waits, i) {
					g.out[i] = o
				}
			}
			return g, waits, p.Now() - began
		}
		g, waits, took := ask()
		if len(waits) != 2 || took > notOpenWaitsAtMost/10 {
			t.Errorf("%v wait, after %v", waits, took)
		}
		began := p.Now()
		for g.out[1] == nil {
			p.Sleep(time.Millisecond)
		}
		if took := p.Now() - began; g.out[1].Code != rpcv1.Outcome_NOT_FOUND || took > notOpenWaitsAtMost/10 {
			t.Errorf("the other server answered %v, after %v", g.out[1], took)
		}
		for g.out[0] == nil {
			p.Sleep(time.Millisecond)
		}
		if took := p.Now() - began; g.out[0].Code != rpcv1.Outcome_UNAVAILABLE || took < notOpenWaitsAtMost*9/10 || took > 2*notOpenWaitsAtMost {
			t.Errorf("the key of this server is answered %v, after %v", g.out[0], took)
		}
		c.Sessions.Halt(time.Minute)
		if g, waits, _ := ask(); len(waits) != 1 || g.out[0].Code != rpcv1.Outcome_UNAVAILABLE {
			t.Errorf("a server that ends answers %v, and lets %v wait", g.out, waits)
		}
	})
	if err != nil {
		t.Error(err)
	}
}
