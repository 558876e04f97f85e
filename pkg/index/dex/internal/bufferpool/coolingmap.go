package bufferpool

import (
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index/internal/lfu"
	"github.com/dmindex/dmindex/pkg/index/internal/memory"
	"github.com/dmindex/dmindex/pkg/pool"
)

// coolingMap has the addresses of cooled nodes, the candidates for eviction, in buckets by the hash
// of the address (section 5.2). A bucket is a queue, first in first out, in one line of the
// processor's cache, with a lock of its own:
//
//	word    content
//	0       bit 0 the lock; from bit 8 on the place of the oldest entry; from bit 32 on how many
//	        there are
//	1 to 6  addresses; bit 0 is set for inner nodes
//	7       not used
//
// Without Options.CoolingMap there is one bucket, with room for all. What was cooled and found
// again stays in its bucket until it is the oldest. Then it is removed like the others, and not
// evicted.
//
// A lock is held for a few instructions, in which no other lock is acquired. So waiting for it is
// trying again.
type coolingMap struct {
	env     env.Env
	size    int // entries of a bucket
	stride  int // words of a bucket
	buckets int
	words   []uint64
}

const (
	coolShare = 10 // the map has room for one in so many frames
	coolSize  = 6
	coolWords = 8
	innerBit  = 1 // of an entry

	bucketLocked = 1
	oldestShift  = 8
	countShift   = 32
)

// start makes room for a part of n frames.
func (m *coolingMap) start(e env.Env, n int, buckets bool) {
	room := max(1, n/coolShare)
	m.env, m.size, m.stride, m.buckets = e, room, room+1, 1
	if buckets {
		m.size, m.stride, m.buckets = coolSize, coolWords, max(1, room/coolSize)
	}
	m.words = make([]uint64, m.stride*m.buckets)
	memory.Huge(m.words)
}

// lock locks a bucket, and returns it with its state.
func (m *coolingMap) lock(bucket int) (b []uint64, oldest, n int) {
	b = m.words[bucket*m.stride : (bucket+1)*m.stride]
	for {
		s := atomic.LoadUint64(&b[0])
		if s&bucketLocked == 0 && atomic.CompareAndSwapUint64(&b[0], s, s|bucketLocked) {
			return b, int(s >> oldestShift & (1<<(countShift-oldestShift) - 1)), int(s >> countShift)
		}
		m.env.Yield()
	}
}

// unlock makes oldest and n the state of b, and unlocks it.
func (m *coolingMap) unlock(b []uint64, oldest, n int) {
	atomic.StoreUint64(&b[0], uint64(n)<<countShift|uint64(oldest)<<oldestShift)
}

// push adds a node to its bucket. If that is full it removes and returns the oldest entry; 0
// otherwise.
func (m *coolingMap) push(entry uint64) (out uint64) {
	b, oldest, n := m.lock(int(lfu.Hash(pool.Addr(entry)) >> 32 * uint64(m.buckets) >> 32))
	if n == m.size {
		out = b[1+oldest]
		oldest, n = (oldest+1)%m.size, n-1
	}
	b[1+(oldest+n)%m.size] = entry
	m.unlock(b, oldest, n+1)
	return out
}

// any removes the oldest entry of a bucket drawn at random, or of the next one that is not empty; 0
// if there is none.
func (m *coolingMap) any() (out uint64) {
	from := int(m.env.Uint64() % uint64(m.buckets))
	for i := range m.buckets {
		b, oldest, n := m.lock((from + i) % m.buckets)
		if n > 0 {
			out = b[1+oldest]
			oldest, n = (oldest+1)%m.size, n-1
		}
		m.unlock(b, oldest, n)
		if out != 0 {
			break
		}
	}
	return out
}
