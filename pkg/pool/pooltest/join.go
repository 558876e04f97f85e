package pooltest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/pool"
)

// Servers that join, as the operator lets them join: see package pool.

// Start starts a memory server that is none of the index yet, and whose quota is 0. It returns its
// id.
func (c *Cluster) Start(t testing.TB) uint16 {
	t.Helper()
	c.mu.Lock()
	id := c.Options.FirstID + uint16(len(c.servers))
	c.mu.Unlock()
	s, err := c.start(ending{t, c}, id)
	if err != nil {
		t.Fatal(err)
	}
	s.quota = 0
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers = append(c.servers, s)
	return id
}

// ending is a test whose servers that joined end after all of its pools are closed.
type ending struct {
	testing.TB
	c *Cluster
}

// Cleanup implements testing.TB.
func (e ending) Cleanup(f func()) { e.c.ends = append(e.c.ends, f) }

// end ends the servers that joined.
func (c *Cluster) end() {
	for _, f := range slices.Backward(c.ends) {
		f()
	}
}

// Note notes at the home how far a server is that joins.
func (c *Cluster) Note(id uint16, state pool.JoinState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := slices.Clone(c.joined.Servers)
	at := slices.IndexFunc(list, func(j pool.JoinedServer) bool { return j.ID == id })
	if at < 0 {
		at, list = len(list), append(list, pool.JoinedServer{ID: id})
	}
	list[at].State = state
	c.joined = pool.JoinedList{Version: c.joined.Version + 1, Servers: list}
}

// Grant raises the quota of a server.
func (c *Cluster) Grant(id uint16, chunks int) {
	s, err := control{c}.find(id)
	if err != nil {
		panic(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.quota = chunks
}

// Behind are the clients that do not reach all servers that joined: of those that are not fenced.
func (c *Cluster) Behind() (clients []uint16) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for client := uint16(1); client <= c.clients; client++ {
		if !c.servers[0].fenced[client] && c.reached[client] < c.joined.Version {
			clients = append(clients, client)
		}
	}
	return clients
}

// Join starts a server and lets it join, with all chunks that it has. Clients must renew leases.
func (c *Cluster) Join(t testing.TB) uint16 {
	t.Helper()
	id := c.Start(t)
	for _, state := range []pool.JoinState{pool.Joining, pool.Member} {
		c.Note(id, state)
		for end := time.Now().Add(time.Minute); len(c.Behind()) > 0; <-time.After(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("pooltest: clients %v do not join server %d", c.Behind(), id)
			}
		}
	}
	c.Grant(id, c.Options.Chunks)
	return id
}

func (c *Cluster) list() pool.JoinedList {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.joined
}

var _ pool.Joins = control{}

// Joined implements pool.Joins.
func (c control) Joined(client uint32, _ time.Duration) (pool.JoinedList, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.servers[0].fenced[uint16(client)] {
		return pool.JoinedList{}, fmt.Errorf("client %d: %w", client, pool.ErrFenced)
	}
	return c.joined, nil
}
