package engine

import (
	"context"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/computeservertest/memindex"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/partition"
)

// pair is two servers without a network, over one store, in the real environment. Keys from "m" on
// are of the second.
type pair struct {
	store   *memindex.Store
	servers [2]*Engine
}

// newPair starts them and waits until their indexes are open. gate is called to open one.
func newPair(t *testing.T, e env.Env, gate func(open func() (ownership.Opened, error)) (ownership.Opened, error)) *pair {
	t.Helper()
	p := &pair{store: memindex.New(e, 512, 2048)}
	members := []partition.Server{{ID: 1, Name: "pod-1"}, {ID: 2, Name: "pod-2"}}
	m, err := partition.ByBoundaries(computeservertest.Index, members, [][]byte{[]byte("m")})
	if err != nil {
		t.Fatal(err)
	}
	open := func() (ownership.Opened, error) { return p.store.Open(), nil }
	for i := range p.servers {
		c := New(Options{
			Env: e, Index: computeservertest.Config(config.RoutingOwner), Self: uint32(i + 1), SharesAll: true,
			Open:  func() (ownership.Opened, error) { return gate(open) },
			Limit: 30 * time.Second, MaxSessions: 64, MaxWaiting: 4096, Log: computeservertest.Logger(t),
		})
		c.Sessions.Standstill = computeservertest.Standstill
		c.Peers = neighbour{p}
		c.View.Apply(m)
		e.Go("engine", c.Sessions.Run)
		t.Cleanup(func() { c.Sessions.Halt(time.Minute) })
		p.servers[i] = c
	}
	for _, c := range p.servers {
		computeservertest.Await(t, "the index is open", func() bool { return c.Sessions.State() == nil })
	}
	return p
}

// neighbour are the servers of a pair to each other.
type neighbour struct{ p *pair }

func (n neighbour) Do(_ context.Context, to partition.Server, ops []*rpcv1.Operation, limit time.Duration, _ func(some []*rpcv1.Outcome)) ([]*rpcv1.Outcome, error) {
	return n.p.servers[to.ID-1].Do(ops, true, limit, 0), nil
}

func (n neighbour) Start(to partition.Server, ops []*rpcv1.Operation, limit time.Duration, ended Waker) Started {
	return startBy(n.p.servers[0].Env, n, to, ops, limit, ended)
}

func (n neighbour) Scan(ctx context.Context, to partition.Server, r ScanRange, _ time.Duration, visit Visit, between func() error) error {
	return n.p.servers[to.ID-1].Scan(ctx, r, true, visit, between)
}

func (neighbour) Keep([]partition.Server) {}
