package poolsim

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Leases and fencing, as a memory server does them: whom it lets in has a lease from then on, and
// who lets it expire is fenced.

// grant begins or renews the lease of a client. Servers' clocks are the world's.
func (s *server) grant(client uint32, lease time.Duration) error {
	if s.fenced[client] {
		return fmt.Errorf("client %d: %w", client, pool.ErrFenced)
	}
	if lease == 0 {
		return nil
	}
	if _, known := s.until[client]; !known {
		s.clients = append(s.clients, client)
	}
	s.until[client] = s.world.Now() + lease
	return nil
}

// expire fences, for ever, those whose lease is over.
func (c *Cluster) expire(s *server, p *simenv.Process) {
	for {
		p.Sleep(c.Options.Lease / 8)
		for _, client := range append([]uint32(nil), s.clients...) {
			if s.world.Now() >= s.until[client] {
				_ = c.fence(s, []uint32{client}) // what is left undone is done in the next round
			}
		}
	}
}

// fence ends clients: first none of them gets in any more, then what they have under way is
// stopped, then their locks turn to Repair.
func (c *Cluster) fence(s *server, ids []uint32) error {
	lives := s.half.Restarts()
	c.changes(s)
	for _, client := range ids {
		s.fenced[client] = true
	}
	theirs := func(p verbs.Peer) bool { return s.fenced[uint32(p.Client)] }
	if err := s.half.Fence(theirs, time.Second); err != nil {
		return err
	}
	if _, err := pool.SweepLocks(s, 0, uint64(len(s.regions[verbs.RegionLocks].Bytes)/2), idsOf(ids)); err != nil {
		return err
	}
	if _, err := s.words(ids); err != nil {
		return err
	}
	if s.half.Mirrored() && s.half.Restarts() != lives { // the copy may know nothing of it
		return fmt.Errorf("fence clients %v: memory server %d died meanwhile: %w", ids, s.id, verbs.ErrDisconnected)
	}
	c.changes(s)
	for _, client := range ids {
		s.done[client] = true
		s.leave(client)
		s.forget(client)
	}
	return nil
}

// idsOf are the ids of clients.
func idsOf(clients []uint32) (ids []uint16) {
	for _, client := range clients {
		ids = append(ids, uint16(client))
	}
	return ids
}

// sweepWords is the sweep of lock words on a server.
func (c *Cluster) sweepWords(s *server) func(ids []uint32) (int, error) {
	var m pool.WordMemory = dataWords{s, uint64(c.chunksFrom()), uint64(c.Options.ChunkBytes)}
	if f := c.Options.Meddle; f != nil {
		m = f(m)
	}
	return func(ids []uint32) (int, error) {
		return pool.SweepWords(m, uint64(c.intentsFrom()), c.Options.Intents, idsOf(ids))
	}
}

// dataWords are the words of the data region; chunks lie from an offset on.
type dataWords struct {
	*server
	chunks, chunkBytes uint64
}

// LoadWords implements pool.WordMemory.
func (m dataWords) LoadWords(at uint64, dst []uint64) error {
	data := m.regions[verbs.RegionData].Bytes
	for i := range dst {
		dst[i] = binary.NativeEndian.Uint64(data[at+8*uint64(i):])
	}
	return nil
}

// SwapWord implements pool.WordMemory.
func (m dataWords) SwapWord(at, compare, swap uint64) (uint64, error) {
	return m.half.CompareSwap(verbs.RegionData, at, compare, swap)
}

// Owns implements pool.WordMemory.
func (m dataWords) Owns(at uint64) bool {
	return at >= m.chunks && at <= uint64(len(m.regions[verbs.RegionData].Bytes)-8)
}

// While implements pool.WordMemory. A chunk changes hands only in a call, and no call is served
// while a fence is.
func (m dataWords) While(at uint64, do func() error) error {
	if i := (at - m.chunks) / m.chunkBytes; !m.Owns(at) || m.server.chunks[i].client == 0 {
		return nil
	}
	return do()
}

// Chunks implements pool.WordMemory.
func (m dataWords) Chunks() (at []uint64, bytes uint64) {
	for i, k := range m.server.chunks {
		if k.client != 0 {
			at = append(at, m.chunks+uint64(i)*m.chunkBytes)
		}
	}
	return at, m.chunkBytes
}

// LoadLocks implements pool.LockWords.
func (s *server) LoadLocks(at uint64, dst []uint64) error {
	locks := s.regions[verbs.RegionLocks].Bytes
	for i := range dst {
		dst[i] = binary.NativeEndian.Uint64(locks[at+8*uint64(i):])
	}
	return nil
}

// SwapLocks implements pool.LockWords.
func (s *server) SwapLocks(at, compare, swap uint64) (uint64, error) {
	return s.half.CompareSwap(verbs.RegionLocks, at, compare, swap)
}

// Predecessors implements pool.Control: processes of the simulation do not come back under their
// name.
func (k *control) Predecessors(uint32, time.Duration) ([]uint32, error) { return nil, nil }

// table is what the server knows of epochs. It forgets them when it starts anew, but not who was
// there.
func (s *server) table() *pool.EpochTables {
	if now := s.half.Restarts(); now != s.restarts {
		s.restarts, s.epochs = now, pool.NewEpochTables()
		for _, client := range s.joined {
			s.epochs.Found(uint16(client))
		}
	}
	return s.epochs
}

func (s *server) join(client uint32) (epoch, uncached uint64) {
	if !slices.Contains(s.joined, client) {
		s.joined = append(s.joined, client)
	}
	return s.table().Join(uint16(client))
}

func (s *server) leave(client uint32) {
	s.table().Leave(uint16(client))
	s.joined = slices.DeleteFunc(s.joined, func(other uint32) bool { return other == client })
}

// Renew implements pool.Control.
func (k *control) Renew(id uint16, client uint32, e pool.Epochs, limit time.Duration) (r pool.Renewal, err error) {
	err = k.call(id, limit, func(s *server) (err error) {
		if s.fenced[client] {
			return fmt.Errorf("client %d: %w", client, pool.ErrFenced)
		}
		if r, err = s.table().Renew(uint16(client), e); err != nil {
			return fmt.Errorf("%w: %w", verbs.ErrRefused, err)
		}
		r.Lease = k.c.Options.Lease
		if id == 1 {
			k.c.reached[client] = max(k.c.reached[client], e.Servers)
			r.Servers = k.c.joined.Version
		}
		return s.grant(client, r.Lease)
	})
	return r, err
}

// Fence implements pool.Control.
func (k *control) Fence(id uint16, clients []uint32, limit time.Duration) error {
	return k.call(id, limit, func(s *server) error { return k.c.fence(s, clients) })
}

// UsedIntents is how many intent slots of a server are not free.
func (c *Cluster) UsedIntents(id uint16) (n int) {
	slots := c.Memory(id, verbs.RegionData)[c.intentsFrom():]
	for i := range c.Options.Intents {
		if binary.NativeEndian.Uint64(slots[i*pool.IntentBytes:]) != 0 {
			n++
		}
	}
	return n
}
