package computeserver

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc/connectivity"

	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/computeservertest/memindex"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/partition"
)

// cluster is some servers over one store and one map source.
type cluster struct {
	t       testing.TB
	store   *memindex.Store
	maps    map[uint32]*computeservertest.Maps
	servers map[uint32]*running
	routing string
	adjust  func(*Config)
}

type running struct {
	*Server
	addresses Addresses
	cancel    context.CancelFunc
	done      chan error
}

func newCluster(t testing.TB, routing string, adjust func(*Config), ids ...uint32) *cluster {
	c := &cluster{t: t, store: memindex.New(env.Real(), 512, 2048), maps: map[uint32]*computeservertest.Maps{}, servers: map[uint32]*running{}, routing: routing, adjust: adjust}
	for _, id := range ids {
		c.start(id)
	}
	return c
}

// start runs one more server, and waits until its index is open; it is in no map until publish.
func (c *cluster) start(id uint32) *running {
	c.t.Helper()
	maps := computeservertest.NewMaps()
	cfg := Config{
		ID: id, Version: "test", Index: computeservertest.Config(c.routing), SharesAll: true, Maps: maps, AllowNoPassword: true,
		Limit:      30 * time.Second, // longer than a busy machine stands still
		Open:       func() (ownership.Opened, error) { return c.store.Open(), nil },
		ListenRESP: "127.0.0.1:0", ListenRPC: "127.0.0.1:0", ListenMetrics: "127.0.0.1:0",
		Logger: computeservertest.Logger(c.t).With("server", id),
	}
	if c.adjust != nil {
		c.adjust(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	s.core.Sessions.Standstill = computeservertest.Standstill
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Server: s, addresses: s.Addresses(), cancel: cancel, done: make(chan error, 1)}
	go func() { r.done <- s.Run(ctx) }()
	c.maps[id], c.servers[id] = maps, r
	c.t.Cleanup(func() { c.stop(id) })
	c.awaitOpen(id)
	return r
}

// awaitOpen waits until the index is open, also anew after a lapse.
func (c *cluster) awaitOpen(id uint32) {
	c.t.Helper()
	computeservertest.Await(c.t, fmt.Sprintf("the index is open at server %d", id), func() bool { return c.servers[id].core.Sessions.State() == nil })
}

// link is how a server forwards to another one, connected.
func (c *cluster) link(from, to uint32) *peerLink {
	c.t.Helper()
	l, err := c.servers[from].peers.link(c.members(to)[0])
	if err != nil {
		c.t.Fatal(err)
	}
	computeservertest.Await(c.t, fmt.Sprintf("server %d is connected to server %d", from, to), func() bool {
		l.conn.Connect()
		return l.conn.GetState() == connectivity.Ready
	})
	return l
}

// stop ends a server and waits for it.
func (c *cluster) stop(id uint32) {
	r := c.servers[id]
	if r == nil {
		return
	}
	delete(c.servers, id)
	r.cancel()
	select {
	case err := <-r.done:
		if err != nil {
			c.t.Errorf("server %d: %v", id, err)
		}
	case <-time.After(60 * time.Second):
		c.t.Errorf("server %d did not end within a minute", id)
	}
}

// members are the servers as a map lists them.
func (c *cluster) members(ids ...uint32) (out []partition.Server) {
	for _, id := range ids {
		a := c.servers[id].addresses
		out = append(out, partition.Server{ID: id, Name: fmt.Sprintf("pod-%d", id), RPC: a.RPC, RESP: a.RESP})
	}
	return out
}

// split is the first map, with given boundaries between servers.
func (c *cluster) split(ids []uint32, boundaries ...string) *partition.Map {
	c.t.Helper()
	var keys [][]byte
	for _, b := range boundaries {
		keys = append(keys, []byte(b))
	}
	m, err := partition.ByBoundaries(computeservertest.Index, c.members(ids...), keys)
	if err != nil {
		c.t.Fatal(err)
	}
	c.publish(m)
	return m
}

// publish hands a map to every server and waits until they act on it.
func (c *cluster) publish(m *partition.Map) {
	c.t.Helper()
	for _, maps := range c.maps {
		maps.Set(c.t, m)
	}
	for id, r := range c.servers {
		computeservertest.Await(c.t, fmt.Sprintf("server %d has generation %d", id, m.Generation), func() bool { return r.core.View.Generation() >= m.Generation })
	}
}

func (c *cluster) redis(id uint32) *redis.Client {
	r := redis.NewClient(&redis.Options{Addr: c.servers[id].addresses.RESP, MaxRetries: -1, DisableIdentity: true, DialTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute})
	c.t.Cleanup(func() { _ = r.Close() })
	return r
}

func nilOpen() (ownership.Opened, error) { return nil, errors.New("not in this test") }

func (c *cluster) raw(id uint32) *computeservertest.Conn {
	c.t.Helper()
	return computeservertest.Dial(c.t, "tcp", c.servers[id].addresses.RESP)
}
