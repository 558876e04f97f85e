package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

var _ pool.Joins = (*Client)(nil)

// Joined implements pool.Joins. A home of an earlier version knows of no server that joined. Client
// 0 asks for nobody.
func (c *Client) Joined(client uint32, limit time.Duration) (list pool.JoinedList, err error) {
	err = c.call("list the servers that joined", c.ids[0], limit, func(ctx context.Context, m rpcv1.MemoryClient) error {
		reply, err := m.ListServers(ctx, &rpcv1.ListServersRequest{Index: c.config.Index, Client: client})
		if status.Code(err) == codes.Unimplemented {
			return nil
		}
		if err != nil {
			return fenced(err)
		}
		list.Version = reply.Version
		var errs []error
		for _, s := range reply.Servers {
			j := pool.JoinedServer{ID: uint16(s.Id), State: pool.JoinState(s.State)}
			errs = append(errs, c.addJoined(Server{ID: j.ID, Control: s.Control, Copies: s.Copies, Incarnation: s.Incarnation, Provider: s.Provider}))
			list.Servers = append(list.Servers, j)
		}
		return errors.Join(errs...)
	})
	return list, err
}

// addJoined makes a server known that joined the index.
func (c *Client) addJoined(s Server) error {
	if s.ID == 0 || s.ID > pool.MaxServer {
		return fmt.Errorf("memory server id %d of a server that joined is not within 1 to %d", s.ID, pool.MaxServer)
	}
	home := c.server(c.ids[0]) // one that joins is reached as it is
	if s.TLS = home.TLS; s.Provider == "" {
		s.Provider = home.Provider
	}
	known, err := c.knownServer(s)
	switch {
	case err != nil:
		return err
	case known.Incarnation != s.Incarnation && known.Incarnation != 0:
		return fmt.Errorf("memory server %d at %s has incarnation %#x, but %s with %#x joined under its id", s.ID, known.Control, known.Incarnation, s.Control, s.Incarnation)
	}
	known.setAddresses(addressesOf(&s))
	return nil
}

// knownServer makes a server that joined known, unless it is.
func (c *Client) knownServer(s Server) (*serverConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.conns[s.ID]; known != nil {
		return known, nil
	}
	if c.servers.ctx.Err() != nil {
		return nil, verbs.ErrClosed
	}
	conn, err := c.newConn(s)
	if err == nil {
		conn.joined = true
		c.conns[s.ID] = conn
	}
	return conn, err
}

// Newcomers are the servers that joined the index and that this process connected to, by id.
func (c *Client) Newcomers() (all []Server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.conns {
		if s.joined && s.granted.Load() {
			all = append(all, s.Server)
		}
	}
	slices.SortFunc(all, func(a, b Server) int { return int(a.ID) - int(b.ID) })
	return all
}

// server is what is known of a memory server; nil = nothing.
func (c *servers) server(id uint16) *serverConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conns[id]
}

// Join notes at the home how far a server is that joins the index. Only the operator may; without
// TLS, everybody.
func (c *Client) Join(s Server, state pool.JoinState, limit time.Duration) error {
	return c.call("join a server", c.ids[0], limit, func(ctx context.Context, m rpcv1.MemoryClient) error {
		_, err := m.JoinServer(ctx, &rpcv1.JoinServerRequest{Index: c.config.Index, Server: &rpcv1.JoinedServer{
			Id: uint32(s.ID), State: rpcv1.JoinedServer_State(state), Control: s.Control, Copies: s.Copies, Incarnation: s.Incarnation, Provider: s.Provider,
		}})
		return err
	})
}
