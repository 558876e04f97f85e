// Package control is the two-sided path from a client to the memory servers of its index:
// pool.Control over gRPC.
package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Config says which servers an index has and how to reach them.
type Config struct {
	// Index is the identity of the index.
	Index string
	// Name of this process: an earlier client of the name has ended, and is fenced when the pool is
	// opened. At most 64 bytes of UTF-8; empty = it has none.
	Name string
	// Servers of the index, the home first. At least one.
	Servers []Server
	// Provider that Connect asks for, of servers that name none: "tcp", "shm" or "ibv".
	Provider string
	// TLS shows this client's certificate and trusts its CA bundle. Nil = without TLS, for servers
	// on this machine.
	TLS *identity.Files
}

// Server is one memory server.
type Server struct {
	ID          uint16
	Control     string   // host:port; the host is what its certificate names
	Copies      []string // the same of further copies of its memory; see serverConn
	Incarnation uint64   // that the index knows; 0 = whichever is there
	Provider    string   // as Config.Provider; empty = that one
	TLS         bool     // its memory is reached under TLS, over provider "tcp"
}

// Client calls the memory servers of one index. It implements pool.Control. Safe for concurrent
// use. Nothing is dialled before it is needed, and a server that went away is dialled again.
type Client struct {
	*servers
	ctx   context.Context // of calls; ended by Close
	end   context.CancelFunc
	owner bool // Close ends servers, too
}

// servers are the memory servers of an index, as the clients of one process call them.
type servers struct {
	config Config
	ids    []uint16 // that the index was made on

	ctx     context.Context // of all that follows views
	end     context.CancelFunc
	follows sync.WaitGroup //env:real of goroutines that wait in calls

	mu    sync.Mutex //env:real calls of gRPC are not simulated
	conns map[uint16]*serverConn
	news  []func() // OnNews
}

var _ pool.Control = (*Client)(nil)

// maxReply bounds what a server may answer: a partition map of 1 MiB, and Describe of 64 indexes.
const maxReply = 8 << 20

// New makes a client. Close ends it.
func New(c Config) (*Client, error) {
	if err := identity.CheckIndex(c.Index); err != nil {
		return nil, err
	}
	if err := ledger.CheckName(c.Name); err != nil {
		return nil, err
	}
	if len(c.Servers) == 0 {
		return nil, fmt.Errorf("index %s has no memory servers", c.Index)
	}
	all := &servers{config: c, conns: map[uint16]*serverConn{}}
	all.ctx, all.end = context.WithCancel(context.Background())
	client := all.client(true)
	for _, s := range c.Servers {
		if s.Provider == "" {
			s.Provider = c.Provider
		}
		if s.ID == 0 || s.ID > pool.MaxServer || all.conns[s.ID] != nil {
			return nil, errors.Join(fmt.Errorf("memory server id %d is used twice or not within 1 to %d", s.ID, pool.MaxServer), client.Close())
		}
		conn, err := all.newConn(s)
		if err != nil {
			return nil, errors.Join(err, client.Close())
		}
		all.ids = append(all.ids, s.ID)
		all.conns[s.ID] = conn
	}
	return client, nil
}

func (s *servers) client(owner bool) *Client {
	c := &Client{servers: s, owner: owner}
	c.ctx, c.end = context.WithCancel(s.ctx)
	return c
}

// Apart is another client of the same servers: its Close ends its own calls, and no others. It
// must be closed before c.
func (c *Client) Apart() *Client { return c.servers.client(false) }

// Dial is a connection to the control service of one memory server, for callers that are no index's
// client: the operator. Nothing is dialled before the first call. tls = nil is without TLS.
func Dial(address string, tls *identity.Files) (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if tls != nil {
		creds = tls.ClientCredentials("")
	}
	return grpc.NewClient(address,
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReply)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: dialBackoff, MinConnectTimeout: 5 * time.Second}),
		grpc.WithDisableServiceConfig(),
		grpc.WithNoProxy())
}

// Close ends the client and all its connections, unless these are of another client (Apart).
func (c *Client) Close() error {
	c.end()
	if !c.owner {
		return nil
	}
	c.servers.end()
	c.mu.Lock()
	var all []*serverConn
	for _, s := range c.conns { //env:real all of them are closed
		all = append(all, s)
	}
	c.mu.Unlock()
	var errs []error
	for _, s := range all {
		errs = append(errs, s.close()) // none of them follows anything more from here on
	}
	c.follows.Wait()
	return errors.Join(errs...)
}

// Servers implements pool.Control.
func (c *Client) Servers() []uint16 { return append([]uint16(nil), c.ids...) }

// call makes one call of a server within limit. Errors are those of pool.Control.
func (c *Client) call(what string, server uint16, limit time.Duration, f func(context.Context, rpcv1.MemoryClient) error) error {
	return c.callAt(what, server, limit, func(ctx context.Context, t *turn) error { return f(ctx, t.at.memory) })
}

// callAt is call, for who wants to know which copy of the server is called.
func (c *Client) callAt(what string, server uint16, limit time.Duration, f func(context.Context, *turn) error) error {
	s := c.server(server)
	if s == nil {
		return fmt.Errorf("%s: %d is no memory server of index %s", what, server, c.config.Index)
	}
	ctx, cancel := context.WithTimeout(c.ctx, limit) //env:real gRPC's calls end by their context
	defer cancel()
	t := s.called(ctx)
	defer context.AfterFunc(t.ctx, cancel)()
	err := f(ctx, t)
	if err == nil {
		return nil
	}
	if err = errorOf(err); errors.Is(err, verbs.ErrClosed) && t.ctx.Err() != nil && c.ctx.Err() == nil {
		err = fmt.Errorf("%w: another copy of it answers now", verbs.ErrDisconnected)
	} else if errors.Is(err, verbs.ErrDisconnected) {
		s.unreached(t)
	}
	return fmt.Errorf("%s at memory server %d (%s), index %s: %w", what, server, t.at.address, c.config.Index, err)
}

// Register implements pool.Control. It asks every server first whether it is there with what the
// index knows: an id is given again only after all servers have forgotten its client, and a process
// that tries to open the index again and again while one of its servers is away would use them up.
func (c *Client) Register(limit time.Duration) (client uint32, err error) {
	for _, id := range c.ids {
		if err := c.ready(id, limit); err != nil {
			return 0, err
		}
	}
	joined, err := c.Joined(0, limit)
	if err != nil {
		return 0, err
	}
	for _, s := range joined.Servers {
		if s.State != pool.Member {
			continue
		}
		if err := c.ready(s.ID, limit); err != nil {
			return 0, err
		}
	}
	err = c.call("register", c.ids[0], limit, func(ctx context.Context, m rpcv1.MemoryClient) error {
		reply, err := m.Register(ctx, &rpcv1.RegisterRequest{Index: c.config.Index, Name: c.config.Name})
		if err == nil && (uint16(reply.Client) == 0 || uint16(reply.Client) == pool.Repair) {
			err = fmt.Errorf("the server answers client id %d", reply.Client)
		}
		client = reply.GetClient()
		return err
	})
	return client, err
}

// ready reports whether a client could connect to a server.
func (c *Client) ready(server uint16, limit time.Duration) error {
	return c.callAt("look for the index", server, limit, func(ctx context.Context, t *turn) error {
		reply, err := t.at.memory.Describe(ctx, &rpcv1.DescribeMemoryRequest{})
		if err != nil {
			return err
		}
		if err := c.server(server).checkContent(reply.Incarnation, t); err != nil {
			return err
		}
		if !slices.ContainsFunc(reply.Indexes, func(i *rpcv1.IndexUse) bool { return i.Index == c.config.Index }) {
			return fmt.Errorf("%w: the index was not admitted there", verbs.ErrRefused)
		}
		return nil
	})
}

// Predecessors implements pool.Control.
func (c *Client) Predecessors(client uint32, limit time.Duration) (ids []uint32, err error) {
	if c.config.Name == "" {
		return nil, nil
	}
	err = c.call("list the clients", c.ids[0], limit, func(ctx context.Context, m rpcv1.MemoryClient) error {
		reply, err := m.ListClients(ctx, &rpcv1.ListClientsRequest{Index: c.config.Index, Name: c.config.Name})
		for _, use := range reply.GetClients() {
			if !use.Fenced && use.Client != client {
				ids = append(ids, use.Client)
			}
		}
		return err
	})
	return ids, err
}

// Renew implements pool.Control.
func (c *Client) Renew(server uint16, client uint32, e pool.Epochs, limit time.Duration) (r pool.Renewal, err error) {
	err = c.call("renew the lease", server, limit, func(ctx context.Context, m rpcv1.MemoryClient) error {
		reply, err := m.Renew(ctx, &rpcv1.RenewRequest{Index: c.config.Index, Client: client, Passed: e.Passed, Wanted: e.Wanted,
			UncachedPassed: e.UncachedPassed, UncachedWanted: e.UncachedWanted, Servers: e.Servers})
		r = pool.Renewal{
			Lease: time.Duration(reply.GetLeaseMilliseconds()) * time.Millisecond, Epoch: reply.GetEpoch(), Safe: reply.GetSafe(),
			UncachedEpoch: reply.GetUncachedEpoch(), UncachedSafe: reply.GetUncachedSafe(),
			Servers: reply.GetServers(),
		}
		return fenced(stranger(err))
	})
	return r, err
}

// Fence implements pool.Control.
func (c *Client) Fence(server uint16, clients []uint32, limit time.Duration) error {
	return c.fence(server, clients, false, limit)
}

func (c *Client) fence(server uint16, clients []uint32, dead bool, limit time.Duration) error {
	r := &rpcv1.FenceRequest{Index: c.config.Index, Clients: clients, Dead: dead}
	return c.call("fence", server, limit, func(ctx context.Context, m rpcv1.MemoryClient) error {
		_, err := m.Fence(ctx, r)
		return err
	})
}

// Forget implements pool.Forgetter.
func (c *Client) Forget(server uint16, clients []uint32, limit time.Duration) (gone, next []uint32, err error) {
	err = c.call("forget clients that ended", server, limit, func(ctx context.Context, m rpcv1.MemoryClient) error {
		reply, err := m.Forget(ctx, &rpcv1.ForgetRequest{Index: c.config.Index, Clients: clients})
		gone, next = reply.GetForgotten(), reply.GetNext()
		return err
	})
	return gone, next, err
}

// Connect implements pool.Control. A server with another incarnation than the configured one is
// verbs.ErrLostMemory.
func (c *Client) Connect(server uint16, client uint32, limit time.Duration) (grant pool.Grant, err error) {
	err = c.callAt("connect", server, limit, func(ctx context.Context, t *turn) error {
		s := c.server(server)
		reply, err := t.at.memory.Connect(ctx, &rpcv1.ConnectRequest{Index: c.config.Index, Client: client, Provider: s.Provider, Tls: s.TLS})
		if err != nil {
			return fenced(err)
		}
		if err := s.checkContent(reply.Incarnation, t); err != nil {
			return err
		}
		if reply.Tls != s.TLS {
			return fmt.Errorf("%w: the server is of a version without fabricTLS: give it a newer image", verbs.ErrRefused)
		}
		if len(reply.Token) != len(verbs.Token{}) {
			return fmt.Errorf("the server answers a token of %d bytes", len(reply.Token))
		}
		grant = pool.Grant{
			Provider: s.Provider,
			Target: verbs.Target{
				Address: reachable(s.Provider, reply.Address, t.at.address), Token: verbs.Token(reply.Token), Incarnation: reply.Incarnation,
				Server: hostOf(t.at.address),
			},
			Superblock: reply.SuperblockOffset, LockOffset: reply.LockOffset, Locks: reply.Locks, ChunkBytes: reply.ChunkBytes,
			Repair: reply.RepairOffset, Intents: reply.IntentOffset, IntentSlots: int(reply.IntentSlots), Presence: reply.PresenceOffset,
			Lease: time.Duration(reply.LeaseMilliseconds) * time.Millisecond, Epoch: reply.Epoch,
			UncachedEpoch: reply.UncachedEpoch, SweepsStrips: reply.SweepsStrips, Turn: t.number,
		}
		s.granted.Store(true)
		return nil
	})
	return grant, err
}

// hostOf is the name in a server's certificate.
func hostOf(control string) string {
	host, _, err := net.SplitHostPort(control)
	if err != nil {
		return control
	}
	return host
}

// reachable replaces the host of an address that a server listens on by the one that its control
// service was reached at, if it listens on all of its hosts.
func reachable(provider, address, control string) string {
	if provider == "shm" {
		return address
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
		return address
	}
	known, _, err := net.SplitHostPort(control)
	if err != nil {
		return address
	}
	return net.JoinHostPort(known, port)
}

// AllocateChunk implements pool.Control.
func (c *Client) AllocateChunk(server uint16, client uint32, nodeBytes int, adopt bool, limit time.Duration) (offset uint64, err error) {
	err = c.call("allocate a chunk", server, limit, func(ctx context.Context, m rpcv1.MemoryClient) error {
		reply, err := m.AllocateChunk(ctx, &rpcv1.AllocateChunkRequest{
			Index: c.config.Index, Client: client, NodeBytes: uint32(nodeBytes), Adopt: adopt,
		})
		offset = reply.GetOffset()
		return fenced(allocateError(err))
	})
	return offset, err
}

// FreeChunk implements pool.Control.
func (c *Client) FreeChunk(server uint16, client uint32, offset uint64, limit time.Duration) error {
	return c.call("free a chunk", server, limit, func(ctx context.Context, m rpcv1.MemoryClient) error {
		_, err := m.FreeChunk(ctx, &rpcv1.FreeChunkRequest{Index: c.config.Index, Client: client, Offset: offset})
		return err
	})
}
