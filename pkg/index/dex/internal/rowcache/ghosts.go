package rowcache

import "sync/atomic"

// ghosts has for each bucket parts of the hashes of the four entries that were evicted last.
type ghosts []uint64

const (
	ghostBits  = 16
	GhostCount = 64 / ghostBits
	// a bucket with few entries has fewer ghosts: one for so many
	entriesOfGhost = 5
)

// of is the word of bucket i; nil if there are none.
func (g ghosts) of(i uint64) *uint64 {
	if g == nil {
		return nil
	}
	return &g[i]
}

// ghostOf is the ghost of an entry with this head.
func ghostOf(head uint64) uint64 { return head>>40&(1<<ghostBits-1) | 1 }

// haunt makes an evicted entry a ghost. Under the bucket's lock.
func haunt(g *uint64, head uint64) {
	if g != nil {
		atomic.StoreUint64(g, atomic.LoadUint64(g)<<ghostBits|ghostOf(head))
	}
}

// find reports whether an entry is one of the last so many ghosts, and removes it.
func (g ghosts) find(i, head uint64, last int) bool {
	w := atomic.LoadUint64(&g[i])
	for shift := 0; shift < last*ghostBits; shift += ghostBits {
		if w>>shift&(1<<ghostBits-1) == ghostOf(head) {
			return atomic.CompareAndSwapUint64(&g[i], w, w&^((1<<ghostBits-1)<<shift))
		}
	}
	return false
}

// has reports whether an entry is one of the ghosts.
func (g ghosts) has(i, head uint64) bool {
	for w := atomic.LoadUint64(&g[i]); w != 0; w >>= ghostBits {
		if w&(1<<ghostBits-1) == ghostOf(head) {
			return true
		}
	}
	return false
}

// Ghost reports whether the entry of key is one of the last that its bucket evicted, and removes it
// from those. stands is for how many entries such a ghost stands, times GhostCount.
func (e *Cache) Ghost(key []byte) (stands int, was bool) {
	if e.ghosts == nil || !e.some.Load() {
		return 0, false
	}
	p := e.Place(key)
	if !e.ghosts.has(p.Bucket, p.head) {
		return 0, false
	}
	n, b := 0, e.at(p.Bucket) // entries
	for at := BucketBegin; at < len(b) && n < mostEntries; n++ {
		head := atomic.LoadUint64(&b[at])
		if head == 0 {
			break
		}
		at += extent(head)
	}
	last := min(GhostCount, max(1, n/entriesOfGhost))
	return n * GhostCount / last, e.ghosts.find(p.Bucket, p.head, last)
}

// IsGhost reports whether the entry of key is one of the last that its bucket evicted.
func (e *Cache) IsGhost(key []byte) bool {
	p := e.Place(key)
	return e.ghosts.has(p.Bucket, p.head)
}
