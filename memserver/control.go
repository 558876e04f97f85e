//env:real gRPC runs each call on a goroutine of its own

package memserver

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// maxMapWait is how long a GetMap may wait.
const maxMapWait = 30 * time.Second

// service implements rpcv1.MemoryServer. Callers were authorized before (see authorize); errors become statuses after (see
// statusOf). Both happen in interceptors.
type service struct {
	rpcv1.UnimplementedMemoryServer

	version   string
	region    *region
	accounts  *accounts
	tokens    *tokens
	broom     *broom
	providers []provider
	stopping  context.Context // ends when the server shuts down: nobody waits for a map any more
	log       *slog.Logger
}

// provider is a transport that the server offers.
type provider struct {
	name    string
	address string
	server  verbs.Server
}

// Describe implements rpcv1.MemoryServer. A client of an index sees only that index.
func (c *service) Describe(ctx context.Context, _ *rpcv1.DescribeMemoryRequest) (*rpcv1.DescribeMemoryReply, error) {
	reply := &rpcv1.DescribeMemoryReply{
		Incarnation: c.region.incarnation,
		Version:     c.version,
		RegionBytes: c.region.dataBytes,
		ChunkBytes:  c.region.chunkBytes,
		ChunksTotal: uint64(c.region.chunks()),
		LocksTotal:  c.region.lockBytes / 2,
	}
	for _, p := range c.providers {
		reply.Transports = append(reply.Transports, &rpcv1.Transport{Provider: p.name, Address: p.address})
	}
	var indexes []ledger.Index
	c.accounts.read(func(l *ledger.Ledger) {
		t := l.Totals()
		reply.ChunksGranted, reply.ChunksUsed, reply.LocksGranted, reply.Draining = t.Granted, t.Used, t.LocksGranted, t.Draining
		indexes = l.Indexes()
	})
	connections, caller := c.connections(), identity.FromContext(ctx)
	for _, i := range indexes {
		if !caller.MayUse(i.Identity) {
			continue
		}
		reply.Indexes = append(reply.Indexes, &rpcv1.IndexUse{
			Index: i.Identity, QuotaChunks: i.Quota, UsedChunks: i.Used, Locks: i.Locks,
			Clients: uint32(connections[i.Identity]), MapGeneration: i.Generation,
		})
	}
	return reply, nil
}

// connections counts the connections of each index. Disconnect shows every peer to its argument, which here matches none.
func (c *service) connections() map[string]int {
	count := map[string]int{}
	for _, p := range c.providers {
		p.server.Disconnect(func(peer verbs.Peer) bool {
			count[peer.Index]++
			return false
		})
	}
	return count
}

// Admit implements rpcv1.MemoryServer.
func (c *service) Admit(ctx context.Context, r *rpcv1.AdmitRequest) (*rpcv1.AdmitReply, error) {
	var existed bool
	err := c.accounts.changeCleaned(ctx, func(l *ledger.Ledger) (err error) {
		existed, err = l.Admit(r.Index, r.QuotaChunks, r.Locks)
		return err
	})
	if err != nil {
		return nil, err
	}
	c.log.Info("admitted index", "index", r.Index, "quota_chunks", r.QuotaChunks, "existed", existed)
	return &rpcv1.AdmitReply{Incarnation: c.region.incarnation, Existed: existed}, nil
}

// Evict implements rpcv1.MemoryServer. First nobody gets in any more, then those who are in are cut, then what they used is
// taken: a crash in between leaves the index admitted, and the operator evicts it again.
func (c *service) Evict(_ context.Context, r *rpcv1.EvictRequest) (*rpcv1.EvictReply, error) {
	c.tokens.block(r.Index)
	defer c.tokens.unblock(r.Index)
	cut := 0
	for _, p := range c.providers {
		cut += p.server.Disconnect(func(peer verbs.Peer) bool { return peer.Index == r.Index })
	}
	var freed uint64
	err := c.accounts.change(func(l *ledger.Ledger) error {
		freed = l.Evict(r.Index)
		return nil
	})
	if err != nil {
		return nil, err
	}
	c.accounts.mapChanged(r.Index)
	c.broom.nudge()
	c.log.Info("evicted index", "index", r.Index, "freed_chunks", freed, "connections_cut", cut)
	return &rpcv1.EvictReply{FreedChunks: freed}, nil
}

// Register implements rpcv1.MemoryServer.
func (c *service) Register(_ context.Context, r *rpcv1.RegisterRequest) (*rpcv1.RegisterReply, error) {
	var id uint16
	err := c.accounts.change(func(l *ledger.Ledger) (err error) {
		id, err = l.Register(r.Index, r.Name)
		return err
	})
	if err != nil {
		return nil, err
	}
	c.log.Info("registered client", "index", r.Index, "client", id, "name", r.Name)
	return &rpcv1.RegisterReply{Client: uint32(id)}, nil
}

// Connect implements rpcv1.MemoryServer. The token is made under the ledger's lock, so that it is made either before the
// index is evicted, and voided with the others, or not at all.
func (c *service) Connect(_ context.Context, r *rpcv1.ConnectRequest) (*rpcv1.ConnectReply, error) {
	client, err := clientID(r.Client)
	if err != nil {
		return nil, err
	}
	p := c.provider(r.Provider)
	if p == nil {
		return nil, fmt.Errorf("%w: this server does not offer %q; Describe says what it offers", ledger.ErrInvalid, r.Provider)
	}
	var index ledger.Index
	var token verbs.Token
	c.accounts.read(func(l *ledger.Ledger) {
		if index, err = l.Index(r.Index); err == nil {
			token, err = c.tokens.issue(verbs.Peer{Index: r.Index, Client: client}, p.name)
		}
	})
	if err != nil {
		return nil, err
	}
	return &rpcv1.ConnectReply{
		Token:            token[:],
		Address:          p.address,
		Incarnation:      c.region.incarnation,
		SuperblockOffset: superblockOffset(index.Slot),
		LockOffset:       2 * index.FirstLock,
		Locks:            index.Locks,
		ChunkBytes:       c.region.chunkBytes,
	}, nil
}

func (c *service) provider(name string) *provider {
	for i := range c.providers {
		if c.providers[i].name == name {
			return &c.providers[i]
		}
	}
	return nil
}

// clientID reads a client's id, which is 16 bits wide and never 0.
func clientID(v uint32) (uint16, error) {
	if v == 0 || v > 1<<16-1 {
		return 0, fmt.Errorf("%w: client %d; Register at the index's home server gives an id of 1 to 65535", ledger.ErrInvalid, v)
	}
	return uint16(v), nil
}

// AllocateChunk implements rpcv1.MemoryServer.
func (c *service) AllocateChunk(ctx context.Context, r *rpcv1.AllocateChunkRequest) (*rpcv1.AllocateChunkReply, error) {
	client, err := clientID(r.Client)
	if err != nil {
		return nil, err
	}
	var number uint32
	err = c.accounts.changeCleaned(ctx, func(l *ledger.Ledger) (err error) {
		number, err = l.Allocate(r.Index, client)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &rpcv1.AllocateChunkReply{Offset: uint64(number) * c.region.chunkBytes}, nil
}

// FreeChunk implements rpcv1.MemoryServer.
func (c *service) FreeChunk(_ context.Context, r *rpcv1.FreeChunkRequest) (*rpcv1.FreeChunkReply, error) {
	if _, err := clientID(r.Client); err != nil {
		return nil, err
	}
	number := r.Offset / c.region.chunkBytes
	if r.Offset%c.region.chunkBytes != 0 || number > uint64(c.region.chunks()) {
		return nil, fmt.Errorf("%w: no chunk starts at offset %#x; chunks start at multiples of %#x", ledger.ErrNotOwned, r.Offset, c.region.chunkBytes)
	}
	err := c.accounts.change(func(l *ledger.Ledger) error { return l.Free(r.Index, uint32(number)) })
	if err != nil {
		return nil, err
	}
	c.broom.nudge()
	return &rpcv1.FreeChunkReply{}, nil
}

// GetMap implements rpcv1.MemoryServer.
func (c *service) GetMap(ctx context.Context, r *rpcv1.GetMapRequest) (*rpcv1.MapReply, error) {
	wait := min(maxMapWait, time.Duration(r.WaitMilliseconds)*time.Millisecond)
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	defer context.AfterFunc(c.stopping, cancel)()
	generation, bytes, err := c.accounts.partitionMap(waiting, r.Index, r.NewerThan)
	if err != nil {
		return nil, err
	}
	return &rpcv1.MapReply{Generation: generation, Map: bytes}, nil
}

// SwapMap implements rpcv1.MemoryServer.
func (c *service) SwapMap(_ context.Context, r *rpcv1.SwapMapRequest) (*rpcv1.MapReply, error) {
	err := c.accounts.change(func(l *ledger.Ledger) error {
		return l.SwapMap(r.Index, r.ExpectedGeneration, r.Generation, r.Map)
	})
	if err != nil {
		return nil, err
	}
	c.accounts.mapChanged(r.Index)
	c.log.Info("partition map changed", "index", r.Index, "generation", r.Generation)
	return &rpcv1.MapReply{Generation: r.Generation, Map: r.Map}, nil
}

// Drain implements rpcv1.MemoryServer.
func (c *service) Drain(_ context.Context, r *rpcv1.DrainRequest) (*rpcv1.DrainReply, error) {
	err := c.accounts.change(func(l *ledger.Ledger) error {
		l.Drain(r.On)
		return nil
	})
	if err != nil {
		return nil, err
	}
	c.log.Info("draining", "on", r.On)
	return &rpcv1.DrainReply{}, nil
}
