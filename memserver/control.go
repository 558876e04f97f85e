//env:real gRPC runs each call on a goroutine of its own

package memserver

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/internal/core"
	"github.com/dmindex/dmindex/memserver/internal/region"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// maxMapWait is how long a GetMap may wait.
const maxMapWait = 30 * time.Second

// service implements rpcv1.MemoryServer. Interceptors authorize callers before (see authorize) and
// turn errors into statuses after (see statusOf).
type service struct {
	rpcv1.UnimplementedMemoryServer

	*core.Core             // nil before the content is opened, as is the zeroer
	opened     atomic.Bool // the content is
	member     *volumes.Member
	log        *slog.Logger
	version    string
	region     *region.Region
	waits      *waits
	zeroer     *zeroer
	files      *identity.Files // nil = there is no TLS
	fabricTLS  bool            // of whoever comes to the fabric
	stopping   context.Context // ends when the server shuts down, which ends waits for maps
}

// Describe implements rpcv1.MemoryServer. A client of an index sees only that index.
func (c *service) Describe(ctx context.Context, _ *rpcv1.DescribeMemoryRequest) (*rpcv1.DescribeMemoryReply, error) {
	reply := &rpcv1.DescribeMemoryReply{
		Incarnation: c.region.Incarnation,
		Version:     c.version,
		RegionBytes: c.region.DataBytes,
		ChunkBytes:  c.region.ChunkBytes,
		ChunksTotal: uint64(c.region.Chunks()),
		LocksTotal:  c.region.LockBytes / 2,
		OnChipBytes: 2 * c.OnChip(),
	}
	if c.files != nil && identity.FromContext(ctx).Role == identity.RoleOperator {
		reply.TrustedAuthorities, reply.CertificateSigner = c.files.Trust()
	}
	for _, p := range c.Providers {
		t := &rpcv1.Transport{Provider: p.Name, Address: p.Address, Tls: p.Name == providerTCP && c.files != nil}
		if s, ok := p.Server.(verbs.OfDevice); ok {
			t.Device = s.DeviceName()
		}
		reply.Transports = append(reply.Transports, t)
	}
	var indexes []ledger.Index
	c.Accounts.Read(func(l *ledger.Ledger) {
		t := l.Totals()
		reply.ChunksGranted, reply.ChunksUsed, reply.LocksGranted, reply.Draining = t.Granted, t.Used, t.LocksGranted, t.Draining
		indexes = l.Indexes()
	})
	connections, caller := c.Connections(), identity.FromContext(ctx)
	for _, i := range indexes {
		if !caller.MayUse(i.Identity) {
			continue
		}
		reply.Indexes = append(reply.Indexes, &rpcv1.IndexUse{
			Index: i.Identity, QuotaChunks: i.Quota, UsedChunks: i.Used, Locks: i.Locks,
			Clients: uint32(connections[i.Identity]), MapGeneration: i.Generation, OnChipLocks: c.OnChipOf(&i),
		})
	}
	return reply, nil
}

// Admit implements rpcv1.MemoryServer.
func (c *service) Admit(ctx context.Context, r *rpcv1.AdmitRequest) (*rpcv1.AdmitReply, error) {
	var existed bool
	var index ledger.Index
	err := c.waits.changeCleaned(ctx, c.Accounts, r.Index, core.Grow, func(l *ledger.Ledger) (err error) {
		if existed, err = l.AdmitIn(r.Index, r.QuotaChunks, r.Locks, c.LockParts(r.HostLocks)...); err == nil {
			index, err = l.Index(r.Index)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	reply := &rpcv1.AdmitReply{Incarnation: c.region.Incarnation, Existed: existed, Locks: index.Locks, OnChipLocks: c.OnChipOf(&index)}
	c.Log.Info("admitted index", "index", r.Index, "quota_chunks", r.QuotaChunks, "locks", reply.Locks, "on_chip_locks", reply.OnChipLocks, "existed", existed)
	return reply, nil
}

// Evict implements rpcv1.MemoryServer.
func (c *service) Evict(_ context.Context, r *rpcv1.EvictRequest) (*rpcv1.EvictReply, error) {
	freed, cut, err := c.Core.Evict(r.Index)
	if err != nil {
		return nil, err
	}
	c.waits.mapChanged(r.Index)
	c.waits.holdingsChanged(r.Index)
	c.zeroer.nudge()
	c.Log.Info("evicted index", "index", r.Index, "freed_chunks", freed, "connections_cut", cut)
	return &rpcv1.EvictReply{FreedChunks: freed}, nil
}

// Register implements rpcv1.MemoryServer.
func (c *service) Register(_ context.Context, r *rpcv1.RegisterRequest) (*rpcv1.RegisterReply, error) {
	var id uint32
	err := c.Accounts.ChangeOf(r.Index, core.Move, func(l *ledger.Ledger) (err error) {
		id, err = l.Register(r.Index, r.Name)
		return err
	})
	if err != nil {
		return nil, err
	}
	c.Log.Info("registered client", "index", r.Index, "client", id, "name", r.Name)
	return &rpcv1.RegisterReply{Client: id}, nil
}

// Connect implements rpcv1.MemoryServer.
func (c *service) Connect(ctx context.Context, r *rpcv1.ConnectRequest) (*rpcv1.ConnectReply, error) {
	client, err := clientNumber(r.Client)
	if err != nil {
		return nil, err
	}
	p := c.Provider(r.Provider)
	if p == nil {
		return nil, fmt.Errorf("%w: this server does not offer %q; Describe says what it offers", ledger.ErrInvalid, r.Provider)
	}
	if err := c.mayConnect(r); err != nil {
		return nil, err
	}
	index, token, now, err := c.Core.Connect(r.Index, client, p, core.Caller{Identity: identity.FromContext(ctx).String(), TLS: r.Tls})
	if err != nil {
		return nil, err
	}
	return &rpcv1.ConnectReply{
		Token:             token[:],
		Address:           p.Address,
		Incarnation:       c.region.Incarnation,
		SuperblockOffset:  region.SuperblockOffset(index.Slot),
		LockOffset:        2 * index.FirstLock,
		Locks:             index.Locks,
		ChunkBytes:        c.region.ChunkBytes,
		RepairOffset:      region.RepairOffset(index.FirstLock),
		IntentOffset:      region.IntentOffset(c.region.LockBytes, index.Slot),
		IntentSlots:       uint32(region.IntentSlots(c.region.LockBytes)),
		PresenceOffset:    region.PresenceOffset(c.region.ChunkBytes, c.region.LockBytes, index.Slot),
		LeaseMilliseconds: uint32(c.Lease / time.Millisecond),
		Epoch:             now.Epoch,
		UncachedEpoch:     now.Uncached,
		Tls:               r.Tls,
		SweepsStrips:      true,
	}, nil
}

// Renew implements rpcv1.MemoryServer.
func (c *service) Renew(_ context.Context, r *rpcv1.RenewRequest) (*rpcv1.RenewReply, error) {
	client, err := clientNumber(r.Client)
	if err != nil {
		return nil, err
	}
	renewal, err := c.Core.Renew(r.Index, client, pool.Epochs{
		Passed: r.Passed, Wanted: r.Wanted, UncachedPassed: r.UncachedPassed, UncachedWanted: r.UncachedWanted, Servers: r.Servers,
	})
	if err != nil {
		return nil, err
	}
	return &rpcv1.RenewReply{
		LeaseMilliseconds: uint32(renewal.Lease / time.Millisecond), Epoch: renewal.Epoch, Safe: renewal.Safe,
		UncachedEpoch: renewal.UncachedEpoch, UncachedSafe: renewal.UncachedSafe, Servers: renewal.Servers,
	}, nil
}

// Bounds of how long a Fence may wait for clients to become quiet. It ends before its caller gives
// up, so that the caller learns which are left.
const (
	maxFenceWait = 30 * time.Second
	fenceAnswer  = 20 * time.Millisecond // for the answer, or a tenth of the caller's time
)

// Fence implements rpcv1.MemoryServer.
func (c *service) Fence(ctx context.Context, r *rpcv1.FenceRequest) (*rpcv1.FenceReply, error) {
	ids := make([]uint32, 0, min(len(r.Clients), core.MaxFenced))
	for _, v := range r.Clients[:min(len(r.Clients), core.MaxFenced+1)] {
		client, err := clientNumber(v)
		if err != nil {
			return nil, err
		}
		ids = append(ids, client)
	}
	limit := maxFenceWait
	if end, ok := ctx.Deadline(); ok {
		left := time.Until(end)
		limit = min(limit, left-max(fenceAnswer, left/10))
	}
	locks, err := c.Core.Fence(r.Index, ids, r.Dead, limit)
	if err != nil {
		return nil, err
	}
	return &rpcv1.FenceReply{Locks: uint32(locks)}, nil
}

// Forget implements rpcv1.MemoryServer.
func (c *service) Forget(_ context.Context, r *rpcv1.ForgetRequest) (*rpcv1.ForgetReply, error) {
	gone, next, err := c.Core.Forget(r.Index, r.Clients)
	if err != nil {
		return nil, err
	}
	return &rpcv1.ForgetReply{Forgotten: gone, Next: next}, nil
}

// ListClients implements rpcv1.MemoryServer.
func (c *service) ListClients(_ context.Context, r *rpcv1.ListClientsRequest) (*rpcv1.ListClientsReply, error) {
	var clients []ledger.Client
	var err error
	c.Accounts.Read(func(l *ledger.Ledger) { clients, err = l.Clients(r.Index, r.Name) })
	if err != nil {
		return nil, err
	}
	reply := &rpcv1.ListClientsReply{}
	for _, client := range clients {
		reply.Clients = append(reply.Clients, &rpcv1.ClientUse{Client: client.Number, Name: client.Name, Fenced: client.Fenced})
	}
	return reply, nil
}

// clientNumber checks the number of a client.
func clientNumber(v uint32) (uint32, error) {
	if id := uint16(v); id == 0 || id > ledger.MaxClients {
		return 0, fmt.Errorf("%w: client %d; Register at the index's home server gives a number whose lower 16 bits are 1 to %d", ledger.ErrInvalid, v, ledger.MaxClients)
	}
	return v, nil
}

// AllocateChunk implements rpcv1.MemoryServer.
func (c *service) AllocateChunk(ctx context.Context, r *rpcv1.AllocateChunkRequest) (*rpcv1.AllocateChunkReply, error) {
	client, err := clientNumber(r.Client)
	if err != nil {
		return nil, err
	}
	number, err := c.allocate(ctx, r.Index, client, r.NodeBytes, r.Adopt)
	if err != nil {
		return nil, err
	}
	if r.Adopt {
		c.Log.Info("a client adopted a chunk of a fenced one", "index", r.Index, "client", client, "chunk", number, "node_bytes", r.NodeBytes)
	}
	return &rpcv1.AllocateChunkReply{Offset: c.region.ChunkOffset(number)}, nil
}

func (c *service) allocate(ctx context.Context, index string, client, node uint32, adopt bool) (number uint32, err error) {
	if adopt {
		return c.Adopt(index, client, node)
	}
	err = c.waits.changeCleaned(ctx, c.Accounts, index, core.Move, func(l *ledger.Ledger) (err error) {
		number, err = l.Allocate(index, client, node)
		return err
	})
	return number, err
}

// FreeChunk implements rpcv1.MemoryServer.
func (c *service) FreeChunk(_ context.Context, r *rpcv1.FreeChunkRequest) (*rpcv1.FreeChunkReply, error) {
	client, err := clientNumber(r.Client)
	if err != nil {
		return nil, err
	}
	number := c.region.ChunkAt(r.Offset)
	if number == 0 {
		return nil, fmt.Errorf("%w: no chunk starts at offset %#x; chunks start at multiples of %#x", ledger.ErrNotOwned, r.Offset, c.region.ChunkBytes)
	}
	err = c.Accounts.ChangeOf(r.Index, core.Mend, func(l *ledger.Ledger) error { return l.Free(r.Index, client, number) })
	if err != nil {
		return nil, err
	}
	c.zeroer.nudge()
	return &rpcv1.FreeChunkReply{}, nil
}

// GetMap implements rpcv1.MemoryServer.
func (c *service) GetMap(ctx context.Context, r *rpcv1.GetMapRequest) (*rpcv1.MapReply, error) {
	wait := min(maxMapWait, time.Duration(r.WaitMilliseconds)*time.Millisecond)
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	defer context.AfterFunc(c.stopping, cancel)()
	generation, bytes, err := c.waits.partitionMap(waiting, c.Accounts, r.Index, r.NewerThan)
	if err != nil {
		return nil, err
	}
	return &rpcv1.MapReply{Generation: generation, Map: bytes}, nil
}

// AwaitHoldings implements rpcv1.MemoryServer.
func (c *service) AwaitHoldings(ctx context.Context, r *rpcv1.AwaitHoldingsRequest) (*rpcv1.AwaitHoldingsReply, error) {
	waiting, cancel := context.WithTimeout(ctx, min(maxMapWait, time.Duration(r.WaitMilliseconds)*time.Millisecond))
	defer cancel()
	defer context.AfterFunc(c.stopping, cancel)()
	var version uint64
	var err error
	c.waits.until(waiting, holdingsOf(r.Index), func() (done bool) {
		var all []pool.Held
		all, err = c.Holdings(r.Index)
		version = core.VersionOf(all)
		return err != nil || version != r.Seen
	})
	if err != nil {
		return nil, err
	}
	return &rpcv1.AwaitHoldingsReply{Version: version}, nil
}

// SwapMap implements rpcv1.MemoryServer.
func (c *service) SwapMap(_ context.Context, r *rpcv1.SwapMapRequest) (*rpcv1.MapReply, error) {
	err := c.Accounts.Change(core.Move, func(l *ledger.Ledger) error {
		return l.SwapMap(r.Index, r.ExpectedGeneration, r.Generation, r.Map)
	})
	if err != nil {
		return nil, err
	}
	c.waits.mapChanged(r.Index)
	c.Log.Info("partition map changed", "index", r.Index, "generation", r.Generation)
	return &rpcv1.MapReply{Generation: r.Generation, Map: r.Map}, nil
}

// Drain implements rpcv1.MemoryServer.
func (c *service) Drain(_ context.Context, r *rpcv1.DrainRequest) (*rpcv1.DrainReply, error) {
	err := c.Accounts.Change(core.Mend, func(l *ledger.Ledger) error {
		l.Drain(r.On)
		return nil
	})
	if err != nil {
		return nil, err
	}
	c.Log.Info("draining", "on", r.On)
	return &rpcv1.DrainReply{}, nil
}
