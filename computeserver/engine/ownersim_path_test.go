package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/memserver/memservertest"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/keyrange"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// unwilling is a provider that takes its time, and at times cannot report whether clients are
// quiet.
type unwilling struct {
	*sim.Server
	m *memoryServer
	w *ownWorld
	p *simenv.Process
}

// CompareSwap implements verbs.LocalAtomics.
func (u *unwilling) CompareSwap(region verbs.RegionID, remote, compare, swap uint64) (old uint64, err error) {
	return u.Server.CompareSwap(region, remote, compare, swap)
}

func (u *unwilling) Fence(match func(verbs.Peer) bool, limit time.Duration) error {
	u.p.Sleep(u.w.UpTo(200 * time.Microsecond))
	if !u.w.quiet && (u.w.OneIn(4) || u.w.Now() < u.m.mute) {
		u.p.Sleep(min(limit, u.w.UpTo(ownLease)))
		return fmt.Errorf("%w: it does not say", verbs.ErrTimeout)
	}
	return u.Server.Fence(match, limit)
}

// path is the way of a process to the memory servers: pool.Control and pool.Ranges.
type path struct {
	w    *ownWorld
	p    *simenv.Process
	name string // of the pod
	pod  uint32 // 0 = an operator

	guard pool.Guard // nil: it locked none

	client uint32 // that it registered last
}

var errStarting = errors.New("the memory server is starting")

func (k *path) call(id uint16, limit time.Duration, f func(b *memservertest.Bare) error) error {
	m := k.w.memory[id-1]
	if k.w.isCut(k.p.Name(), id) {
		k.p.Sleep(limit)
		return fmt.Errorf("memory server %d: %w", id, verbs.ErrTimeout)
	}
	err := fmt.Errorf("%w: %w", errStarting, verbs.ErrDisconnected)
	if e := k.w.fabric.Call(k.p, m.address(), limit, func() {
		if b := m.bare; b != nil {
			err = f(b)
		}
	}); e != nil {
		return e
	}
	switch {
	case errors.Is(err, ledger.ErrFenced):
		return fmt.Errorf("%w: %w", pool.ErrFenced, err)
	case errors.Is(err, ledger.ErrNotOwned), errors.Is(err, ledger.ErrInUse):
		return fmt.Errorf("%w: %w", pool.ErrNotHeld, err)
	case errors.Is(err, ledger.ErrOtherMap):
		return fmt.Errorf("%w: %w", pool.ErrOtherMap, err)
	case errors.Is(err, pool.ErrEpoch), errors.Is(err, ledger.ErrUnknownClient):
		return fmt.Errorf("%w: %w", verbs.ErrRefused, err)
	}
	return err
}

func (w *ownWorld) isCut(process string, server uint16) bool {
	for _, c := range w.cuts {
		if c == (cut2{process, server}) {
			return true
		}
	}
	return false
}

func (k *path) Servers() []uint16 {
	var ids []uint16
	for _, m := range k.w.memory {
		if m.step == isMade {
			ids = append(ids, m.id)
		}
	}
	return ids
}

func (k *path) Register(limit time.Duration) (client uint32, err error) {
	var id uint32
	err = k.call(1, limit, func(b *memservertest.Bare) (err error) { id, err = b.Register(ownIndex, k.name); return err })
	if err == nil && int(uint16(id)) >= k.w.clients() {
		k.w.Report("client %d is one too many", id)
	}
	k.client = id
	return id, err
}

func (k *path) Predecessors(client uint32, limit time.Duration) (ids []uint32, err error) {
	err = k.call(1, limit, func(b *memservertest.Bare) error {
		ids = nil
		all, err := b.Clients(ownIndex, k.name)
		for _, c := range all {
			if !c.Fenced && c.Number != client {
				ids = append(ids, c.Number)
			}
		}
		return err
	})
	return ids, err
}

// believed is how long a client takes its lease to be.
func (k *path) believed(lease time.Duration) time.Duration {
	if k.w.wrong == leaseTooLong {
		return 4 * lease
	}
	return lease
}

func (k *path) Connect(id uint16, client uint32, limit time.Duration) (g pool.Grant, err error) {
	err = k.call(id, limit, func(b *memservertest.Bare) error {
		token, lease, epoch, uncached, err := b.Connect(ownIndex, client, "sim")
		g = pool.Grant{
			Provider: "sim", Target: verbs.Target{Address: k.w.memory[id-1].address(), Token: token, Incarnation: 1},
			Repair: ownRepairAt, Locks: ownLocks, ChunkBytes: k.w.chunkBytes(), Lease: k.believed(lease), Epoch: epoch, UncachedEpoch: uncached,
		}
		return err
	})
	return g, err
}

func (k *path) Renew(id uint16, client uint32, e pool.Epochs, limit time.Duration) (r pool.Renewal, err error) {
	err = k.call(id, limit, func(b *memservertest.Bare) (err error) { r, err = b.Renew(ownIndex, client, e); return err })
	r.Lease = k.believed(r.Lease)
	return r, err
}

func (k *path) Fence(id uint16, clients []uint32, limit time.Duration) error {
	if k.w.wrong == fencedHere && id != 1 {
		return nil
	}
	return k.call(id, limit, func(b *memservertest.Bare) error { return b.Fence(ownIndex, clients, limit*4/5) })
}

// FenceDead is part of pool.Ranges.
func (k *path) FenceDead(clients []uint32, limit time.Duration) error {
	if !slices.Contains(clients, k.client) {
		k.w.counts.confirmed += len(clients)
	}
	return k.call(1, limit, func(b *memservertest.Bare) error { return b.FenceDead(ownIndex, clients, limit*4/5) })
}

// Forget implements pool.Forgetter.
func (k *path) Forget(id uint16, clients []uint32, limit time.Duration) (gone, next []uint32, err error) {
	err = k.call(id, limit, func(b *memservertest.Bare) (err error) { gone, next, err = b.Forget(ownIndex, clients); return err })
	if err == nil && id == 1 {
		k.w.counts.forgotten += len(gone)
	}
	return gone, next, err
}

func (k *path) AllocateChunk(id uint16, client uint32, nodeBytes int, adopt bool, limit time.Duration) (offset uint64, err error) {
	var number uint32
	err = k.call(id, limit, func(b *memservertest.Bare) (err error) {
		number, err = b.Allocate(ownIndex, client, nodeBytes, adopt)
		offset = k.w.chunkAt(number)
		if err == nil && k.w.dex != nil {
			owner, name := k.w.dex.owner, chunkName{id, number}
			if was, is := owner[name]; is {
				k.w.memory[id-1].record(func() { owner[name] = was })
			}
			delete(owner, name)
		}
		return err
	})
	// else the answer may be lost, and then it is nobody's who knows
	if err == nil && k.w.dex != nil {
		k.w.dex.owner[chunkName{id, number}] = client
	}
	if errors.Is(err, ledger.ErrExhausted) || errors.Is(err, ledger.ErrCleaning) {
		err = fmt.Errorf("%w: %w", pool.ErrPoolFull, err)
	}
	return offset, err
}

func (k *path) FreeChunk(id uint16, client uint32, offset uint64, limit time.Duration) error {
	return k.call(id, limit, func(b *memservertest.Bare) error { return b.Free(ownIndex, client, k.w.chunkNumber(offset)) })
}

func (k *path) Acquire(c pool.Claim, limit time.Duration) (got pool.Acquired, err error) {
	err = k.call(1, limit, func(b *memservertest.Bare) error {
		claim := c
		if k.w.wrong == anyGeneration {
			claim.Generation, _, _ = b.Map(ownIndex)
		}
		_, before, _ := b.Map(ownIndex)
		answer, err := b.Acquire(ownIndex, claim)
		if err == nil {
			k.w.isGranted(b, k.pod, c.Generation, before, answer)
			got = answer
		}
		return err
	})
	return got, err
}

func (k *path) Settle(client uint32, start, end []byte, epoch uint64, limit time.Duration) error {
	return k.call(1, limit, func(b *memservertest.Bare) error { return b.Settle(ownIndex, client, start, end, epoch) })
}

func (k *path) Release(client uint32, start, end []byte, epoch uint64, limit time.Duration) error {
	release := func(b *memservertest.Bare) error {
		if k.w.wrong == releaseAnyEpoch {
			all, _ := b.Holdings(ownIndex)
			for _, h := range all {
				if _, _, ok := keyrange.Intersect(h.Start, h.End, start, end); ok && h.Client == client {
					_ = b.Release(ownIndex, client, start, end, h.Epoch)
				}
			}
			return nil
		}
		return b.Release(ownIndex, client, start, end, epoch)
	}
	if !k.w.quiet && !k.w.calm && k.w.OneIn(6) { // who asks gives up, and the request comes late
		k.p.Go("late release", func() {
			k.p.Sleep(k.w.UpTo(10 * time.Second))
			_ = k.call(1, limit, release)
		})
		k.p.Sleep(limit)
		return fmt.Errorf("release keys: %w", verbs.ErrTimeout)
	}
	err := k.call(1, limit, release)
	if errors.Is(err, ledger.ErrHoldings) {
		k.w.counts.crowded++
		return fmt.Errorf("%w: %w", pool.ErrHoldings, err)
	}
	return err
}

func (k *path) Holdings(limit time.Duration) (all []pool.Held, err error) {
	err = k.call(1, limit, func(b *memservertest.Bare) (err error) { all, err = b.Holdings(ownIndex); return err })
	return all, err
}

// Map implements MapSource: it asks often.
func (k *path) Map(newerThan uint64, wait time.Duration) (encoded []byte, err error) {
	for end := k.p.Now() + min(wait, 5*time.Second); ; k.p.Sleep(k.w.UpTo(100 * time.Millisecond)) {
		var generation uint64
		err = k.call(1, ownLimit, func(b *memservertest.Bare) (err error) { generation, encoded, err = b.Map(ownIndex); return err })
		if err != nil || generation > newerThan || k.p.Now() >= end || k.w.over {
			return encoded, err
		}
	}
}
