package serverstest

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/controllers/internal/servers"
	"github.com/dmindex/dmindex/pkg/volumes"
)

type memory struct {
	incarnation uint64
	indexes     map[string]*admitted
}

type admitted struct {
	quota      uint64
	used       uint64
	locks      uint64
	onChip     uint64 // of these
	generation uint64
	encoded    []byte
	clients    []*rpcv1.ClientUse     // of the home: all; elsewhere those that were fenced
	joined     rpcv1.ListServersReply // of the home
}

type memoryClient struct {
	f *Fleet
	t servers.Target
}

func (c *memoryClient) Close() {}

// with runs do on the server's state, unless it is away.
func (c *memoryClient) with(do func(*memory) error) error {
	if s := c.f.copyOf(c.t.UID); s != nil && s.member.Role() != volumes.Primary || s == nil && isCopy(c.t) {
		return fmt.Errorf("memory server %s %w", c.t.Pod, errNotPrimary)
	}
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	if c.f.away[c.t.Namespace+"/"+c.t.Pod] {
		return fmt.Errorf("memory server %s %w", c.t.Pod, errAway)
	}
	if err := c.f.unfit(c.t); err != nil {
		return err
	}
	return do(c.f.memoryLocked(c.t.UID))
}

// memoryLocked is what the memory server of a pod has.
func (f *Fleet) memoryLocked(uid string) *memory {
	holder := f.holderLocked(uid)
	if f.memory[holder] == nil {
		f.next++
		f.memory[holder] = &memory{incarnation: 1000 + f.next, indexes: map[string]*admitted{}}
	}
	return f.memory[holder]
}

func (c *memoryClient) Describe(context.Context) (reply *rpcv1.DescribeMemoryReply, err error) {
	err = c.with(func(m *memory) error {
		c.f.looks++
		reply = &rpcv1.DescribeMemoryReply{Incarnation: m.incarnation, ChunkBytes: chunkBytes, ChunksTotal: c.f.Chunks, LocksTotal: c.f.Locks, OnChipBytes: 2 * c.f.OnChip,
			Version: "fake", Transports: []*rpcv1.Transport{{Provider: "tcp", Tls: !c.f.Older}}}
		t := c.f.trust[c.t.Namespace+"/"+c.t.Pod]
		reply.TrustedAuthorities, reply.CertificateSigner = t.authorities, t.signer
		for _, index := range slices.Sorted(maps.Keys(m.indexes)) {
			a := m.indexes[index]
			reply.ChunksGranted += a.quota
			reply.ChunksUsed += a.used
			reply.LocksGranted += a.locks
			reply.Indexes = append(reply.Indexes, &rpcv1.IndexUse{
				Index: index, QuotaChunks: a.quota, UsedChunks: a.used, Locks: a.locks, OnChipLocks: a.onChip, MapGeneration: a.generation,
			})
		}
		return nil
	})
	return reply, err
}

func (c *memoryClient) Admit(_ context.Context, index string, chunks, locks uint64, hostLocks bool) error {
	return c.with(func(m *memory) error {
		granted, host, chip := uint64(0), c.f.Locks-c.f.OnChip, c.f.OnChip
		for other, a := range m.indexes {
			if other != index {
				granted += a.quota
				host, chip = host-(a.locks-a.onChip), chip-a.onChip
			}
		}
		if granted+chunks > c.f.Chunks {
			return servers.ErrNoRoom
		}
		a := m.indexes[index]
		if a == nil {
			a = &admitted{locks: max(locks, 4)}
			switch {
			case !hostLocks && chip >= a.locks:
				a.onChip = a.locks
			case host < a.locks:
				return servers.ErrNoRoom
			}
			m.indexes[index] = a
		}
		if chunks < a.used {
			return servers.ErrInUse
		}
		a.quota = chunks
		c.f.Calls = append(c.f.Calls, fmt.Sprintf("admit %s", c.t.Pod))
		return nil
	})
}

func (c *memoryClient) Evict(_ context.Context, index string) error {
	return c.with(func(m *memory) error {
		delete(m.indexes, index)
		c.f.Calls = append(c.f.Calls, fmt.Sprintf("evict %s", c.t.Pod))
		return nil
	})
}

func (c *memoryClient) GetMap(_ context.Context, index string) (reply *rpcv1.MapReply, err error) {
	err = c.with(func(m *memory) error {
		a, err := m.admitted(index, c.t.Pod)
		if err != nil {
			return err
		}
		reply = &rpcv1.MapReply{Generation: a.generation, Map: a.encoded}
		return nil
	})
	return reply, err
}

func (c *memoryClient) SwapMap(_ context.Context, index string, expected, generation uint64, encoded []byte) error {
	return c.with(func(m *memory) error {
		a, err := m.admitted(index, c.t.Pod)
		if err != nil {
			return err
		}
		if a.generation != expected || generation <= expected {
			return servers.ErrOtherMap
		}
		a.generation, a.encoded = generation, encoded
		c.f.Calls = append(c.f.Calls, fmt.Sprintf("swap %d", generation))
		return nil
	})
}

// admitted finds an index, or refuses as a server does.
func (m *memory) admitted(index, pod string) (*admitted, error) {
	if a := m.indexes[index]; a != nil {
		return a, nil
	}
	return nil, fmt.Errorf("index %s is not admitted to %s", index, pod)
}

func (c *memoryClient) ListHoldings(_ context.Context, index string) (list *rpcv1.ListHoldingsReply, err error) {
	err = c.with(func(m *memory) error {
		list, err = c.holdings(m, index)
		return err
	})
	return list, err
}

// holdings are those of an index, with their version unless the server is an older one.
func (c *memoryClient) holdings(m *memory, index string) (*rpcv1.ListHoldingsReply, error) {
	list := &rpcv1.ListHoldingsReply{}
	a, err := m.admitted(index, c.t.Pod)
	if err == nil && c.f.Holdings != nil {
		list.Holdings = c.f.Holdings(a.encoded)
	}
	if !c.f.Older {
		h := fnv.New64a()
		_, _ = fmt.Fprint(h, list.Holdings) // a hash takes everything
		list.Version = h.Sum64()
	}
	return list, err
}

func (c *memoryClient) AwaitHoldings(ctx context.Context, index string, seen uint64, limit time.Duration) (version uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for version = seen; version == seen && err == nil && ctx.Err() == nil; {
		var changed chan struct{}
		err = c.with(func(m *memory) error {
			if c.f.Older {
				return servers.ErrNotOffered
			}
			changed = c.f.changed
			list, err := c.holdings(m, index)
			version = list.Version
			return err
		})
		if err == nil && version == seen {
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	}
	return version, err
}

func (c *memoryClient) ListClients(_ context.Context, index string) (clients []*rpcv1.ClientUse, err error) {
	err = c.with(func(m *memory) error {
		a, err := m.admitted(index, c.t.Pod)
		if err != nil {
			return err
		}
		for _, use := range a.clients {
			clients = append(clients, &rpcv1.ClientUse{Client: use.Client, Name: use.Name, Fenced: use.Fenced})
		}
		return nil
	})
	return clients, err
}

func (c *memoryClient) Fence(_ context.Context, index string, clients []uint32) error {
	return c.with(func(m *memory) error {
		a, err := m.admitted(index, c.t.Pod)
		if err != nil {
			return err
		}
		for _, id := range clients {
			i := slices.IndexFunc(a.clients, func(use *rpcv1.ClientUse) bool { return use.Client == id })
			if i < 0 {
				i = len(a.clients)
				a.clients = append(a.clients, &rpcv1.ClientUse{Client: id})
			}
			a.clients[i].Fenced = true
		}
		c.f.Calls = append(c.f.Calls, fmt.Sprintf("fence %s %v", c.t.Pod, clients))
		return nil
	})
}
