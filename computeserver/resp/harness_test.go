package resp

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/computeservertest/memindex"
	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/internal/count"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/computeserver/users"
	"github.com/dmindex/dmindex/pkg/accept"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/keyrange"
	"github.com/dmindex/dmindex/pkg/partition"
)

// cluster is some servers over one store. They answer RESP over the network and reach each other
// without.
type cluster struct {
	t       testing.TB
	store   *memindex.Store
	servers map[uint32]*running
}

type running struct {
	core    *engine.Engine
	resp    *Server
	address string
}

// limits of the servers of a cluster.
type limits struct {
	MaxReply   int
	MaxBuffers int64
	WriteLimit time.Duration
	AuthLimit  time.Duration
	Users      *users.Directory
	// of clients that have authenticated
	MaxConnections int
	DivideAlways   bool
	Owned          bool          // the design's ranges have owners
	Away           bool          // the index cannot be opened
	Limit          time.Duration // of each request
	Idle           time.Duration
	Logger         *slog.Logger
	Expiry         string // of the index
	SortedSets     bool
}

// newCluster starts servers and waits until their indexes are open; no map has them before split.
func newCluster(t testing.TB, routing string, adjust func(*limits), ids ...uint32) *cluster {
	t.Helper()
	c := &cluster{t: t, store: memindex.New(env.Real(), 512, 2048), servers: map[uint32]*running{}}
	l := limits{MaxReply: 16 << 20, MaxBuffers: 256 << 20, WriteLimit: 30 * time.Second, AuthLimit: time.Minute, Users: directory(t, users.Config{}), MaxConnections: 10_000, Limit: 30 * time.Second, Idle: time.Hour, Logger: computeservertest.Logger(t)}
	if adjust != nil {
		adjust(&l)
	}
	ix := *computeservertest.Config(routing)
	ix.Expiry = l.Expiry
	for _, id := range ids {
		e := engine.New(engine.Options{
			Env: env.Real(), Index: &ix, Clock: func() int64 { return time.Now().UnixMilli() }, Self: id, SharesAll: !l.Owned,
			Open: func() (ownership.Opened, error) {
				if l.Away {
					return nil, errors.New("a memory server is away")
				}
				return c.store.Open(), nil
			},
			Limit: l.Limit, SortedSets: l.SortedSets, MaxSessions: 64, MaxWaiting: 4096, DivideAlways: l.DivideAlways, Log: l.Logger,
		})
		e.Sessions.Standstill = computeservertest.Standstill
		e.Peers = others{c}
		s := New(Config{
			Engine: e, Users: l.Users, Front: &count.Front{Sum: e.Count}, Batches: &count.Front{Sum: e.Count}, Version: "test", Hide: keyrange.Hider{}.Texts, Logins: accept.NewLogins(env.Real().Now, accept.Penalty),
			Limits: Limits{l.MaxConnections, l.Idle, 10 * time.Millisecond}, AuthLimit: l.AuthLimit,
			WriteLimit: l.WriteLimit, MaxReply: l.MaxReply, MaxBuffers: l.MaxBuffers,
		})
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		e.Env.Go("sessions", e.Sessions.Run)
		go s.Accept(listener)
		t.Cleanup(func() {
			_ = listener.Close() // Accept ends
			s.BeginDrain(time.Second)
			s.Drain(time.Second)
			e.Sessions.Halt(time.Minute)
		})
		c.servers[id] = &running{e, s, listener.Addr().String()}
	}
	for _, r := range c.servers {
		computeservertest.Await(t, "the index is open", func() bool { return l.Away || r.core.Sessions.State() == nil })
	}
	return c
}

// split gives the servers their first map, with boundaries between them.
func (c *cluster) split(ids []uint32, boundaries ...string) {
	c.t.Helper()
	var members []partition.Server
	for _, id := range ids {
		members = append(members, partition.Server{ID: id, Name: "pod-" + string(rune('0'+id))})
	}
	var keys [][]byte
	for _, b := range boundaries {
		keys = append(keys, []byte(b))
	}
	m, err := partition.ByBoundaries(computeservertest.Index, members, keys)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, r := range c.servers {
		r.core.View.Apply(m)
	}
}

func (c *cluster) raw(id uint32) *computeservertest.Conn {
	c.t.Helper()
	return computeservertest.Dial(c.t, "tcp", c.servers[id].address)
}

// others are the servers of a cluster to each other.
type others struct{ c *cluster }

func (o others) Do(_ context.Context, to partition.Server, ops []*rpcv1.Operation, limit time.Duration, _ func(some []*rpcv1.Outcome)) ([]*rpcv1.Outcome, error) {
	return o.c.servers[to.ID].core.Do(ops, true, limit, 0), nil
}

func (o others) Start(to partition.Server, ops []*rpcv1.Operation, limit time.Duration, ended engine.Waker) engine.Started {
	s := started{make(chan []*rpcv1.Outcome, 1)}
	go func() {
		s.out <- o.c.servers[to.ID].core.Do(ops, true, limit, 0)
		ended.Set()
	}()
	return s
}

// started is a call that others began.
type started struct{ out chan []*rpcv1.Outcome }

func (s started) Take(giveUp bool) ([]*rpcv1.Outcome, error, bool) {
	select {
	case out := <-s.out:
		return out, nil, true
	default:
	}
	return nil, &engine.Failure{Code: rpcv1.Outcome_UNKNOWN, Message: "it did not answer in time"}, giveUp
}

func (o others) Scan(ctx context.Context, to partition.Server, r engine.ScanRange, _ time.Duration, visit engine.Visit, between func() error) error {
	return o.c.servers[to.ID].core.Scan(ctx, r, true, visit, between)
}

func (others) Keep([]partition.Server) {}

func directory(t testing.TB, c users.Config) *users.Directory {
	t.Helper()
	d, err := users.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// discard is a connection of which only writes matter.
type discard struct {
	net.Conn
	write func(b []byte)
}

func (d discard) Write(b []byte) (int, error) { d.write(b); return len(b), nil }

func (discard) SetWriteDeadline(time.Time) error { return nil }
