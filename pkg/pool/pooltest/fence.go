package pooltest

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Fencing, as a memory server does it. There are no leases: who is gone is fenced by the test.

// Predecessors implements pool.Control.
func (c control) Predecessors(uint32, time.Duration) ([]uint32, error) { return nil, nil }

// Renew implements pool.Control.
func (c control) Renew(id uint16, number uint32, e pool.Epochs, _ time.Duration) (r pool.Renewal, err error) {
	client := uint16(number)
	s, err := c.find(id)
	if err != nil {
		return r, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.fenced[client] {
		return r, fmt.Errorf("client %d: %w", client, pool.ErrFenced)
	}
	if r, err = s.epochs.Renew(client, e); err != nil {
		return r, fmt.Errorf("%w: %w", verbs.ErrRefused, err)
	}
	if id == c.Options.FirstID {
		c.reached[client] = max(c.reached[client], e.Servers)
		r.Servers = c.joined.Version
	}
	return r, nil
}

// Fence implements pool.Control: first the clients are refused, then what they have under way ends,
// then their locks turn to Repair.
func (c control) Fence(id uint16, numbers []uint32, limit time.Duration) error {
	var clients []uint16
	for _, number := range numbers {
		clients = append(clients, uint16(number))
	}
	s, err := c.find(id)
	if err != nil {
		return err
	}
	c.mu.Lock()
	for _, client := range clients {
		s.fenced[client] = true
	}
	c.mu.Unlock()
	fenced := func(client uint16) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return s.fenced[client]
	}
	if err := s.half.Fence(func(p verbs.Peer) bool { return fenced(p.Client) }, limit); err != nil {
		return err
	}
	locks := lockWords(s.memory[verbs.RegionLocks].Bytes)
	if _, err := pool.SweepLocks(locks, 0, uint64(len(locks)/2), clients); err != nil {
		return err
	}
	data := dataWords{lockWords(s.memory[verbs.RegionData].Bytes), c.Cluster, s}
	if _, err := pool.SweepWords(data, c.intentsFrom(), intents, clients); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, client := range clients {
		s.done[client] = true
		s.epochs.Leave(client)
	}
	return nil
}

// lockWords are the locks in memory that this process shares with its clients.
type lockWords []byte

func (l lockWords) word(at uint64) *uint64 { return (*uint64)(unsafe.Pointer(&l[at])) }

// LoadLocks implements pool.LockWords.
func (l lockWords) LoadLocks(at uint64, dst []uint64) error {
	for i := range dst {
		dst[i] = atomic.LoadUint64(l.word(at + 8*uint64(i)))
	}
	return nil
}

// SwapLocks implements pool.LockWords.
func (l lockWords) SwapLocks(at, compare, swap uint64) (uint64, error) {
	for {
		if atomic.CompareAndSwapUint64(l.word(at), compare, swap) {
			return compare, nil
		}
		if old := atomic.LoadUint64(l.word(at)); old != compare {
			return old, nil
		}
	}
}

// dataWords are the words of the data region; chunks lie from an offset on.
type dataWords struct {
	lockWords
	c *Cluster
	s *server
}

// LoadWords implements pool.WordMemory.
func (d dataWords) LoadWords(at uint64, dst []uint64) error { return d.LoadLocks(at, dst) }

// SwapWord implements pool.WordMemory.
func (d dataWords) SwapWord(at, compare, swap uint64) (uint64, error) {
	return d.SwapLocks(at, compare, swap)
}

// Owns implements pool.WordMemory.
func (d dataWords) Owns(at uint64) bool {
	return at >= d.c.chunks() && at <= uint64(len(d.lockWords)-8)
}

// While implements pool.WordMemory.
func (d dataWords) While(at uint64, do func() error) error {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	if !d.Owns(at) || d.s.chunks[(at-d.c.chunks())/uint64(d.c.Options.ChunkBytes)].client == 0 {
		return nil
	}
	return do()
}

// Chunks implements pool.WordMemory.
func (d dataWords) Chunks() (at []uint64, bytes uint64) {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	for i, k := range d.s.chunks {
		if k.client != 0 {
			at = append(at, d.c.chunks()+uint64(i*d.c.Options.ChunkBytes))
		}
	}
	return at, uint64(d.c.Options.ChunkBytes)
}

// Fence ends clients on every server.
func (c *Cluster) Fence(clients ...uint32) error {
	c.mu.Lock()
	c.cut = true
	c.mu.Unlock()
	servers := c.Control().Servers()
	for _, j := range c.list().Servers {
		if j.State == pool.Member {
			servers = append(servers, j.ID)
		}
	}
	for _, id := range servers {
		if err := c.Control().Fence(id, clients, 10*time.Second); err != nil {
			return err
		}
	}
	return nil
}
