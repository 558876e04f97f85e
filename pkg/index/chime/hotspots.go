package chime

import (
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/pool"
)

// hotspots says in which slots of their leaves entries lie that are looked up often (section 4.3):
// an entry of 16 bytes for each, as the paper has it.
//
//	first word    address of the leaf
//	second word   bits 0-15 the slot, 16-31 a fingerprint of the key, 32-63 how often it was hit
//
// Entries of a leaf and fingerprint share a bucket of four, one cache line, in which the one with
// the smallest count makes room. All of it is hints: sessions read and write words side by side,
// and the two words of an entry may belong to different ones. The address that a speculative READ
// follows comes from a descent, not from here: so a leaf that was reclaimed, and is another one by
// now, is met only by who comes there by its address, as everybody does. The slot is checked
// against the key when it was READ.
type hotspots struct {
	buckets []bucket
	mask    uint64

	speculated, speculatedRight atomic.Uint64 // speculative READs
}

type bucket [bucketEntries][2]atomic.Uint64

const (
	bucketEntries = 4
	bucketBytes   = 16 * bucketEntries

	// mostHotspots bounds the bytes of the buffer, as in the paper's evaluation; hotShare is its
	// part of the index cache.
	mostHotspots = 30 << 20
	hotShare     = 4
)

// newHotspots makes a buffer of so many bytes at most; nil if that is none.
func newHotspots(bytes int) *hotspots {
	n := uint64(1)
	if bytes < bucketBytes {
		return nil
	}
	for 2*n*bucketBytes <= uint64(bytes) {
		n *= 2
	}
	return &hotspots{buckets: make([]bucket, n), mask: n - 1}
}

// bytes is the size of the buffer.
func (h *hotspots) bytes() int {
	if h == nil {
		return 0
	}
	return len(h.buckets) * bucketBytes
}

func (h *hotspots) bucket(a pool.Addr, fp uint16) *bucket {
	x := (uint64(a)>>6 + uint64(fp)*0xD6E8FEB86659FD93) * 0x9E3779B97F4A7C15
	return &h.buckets[x>>32&h.mask]
}

// hottest returns the slot of the leaf at a that is hottest of those with a fingerprint: the lower
// bits of a hash, of which the upper ones decide the home. ok is false if there is none.
func (h *hotspots) hottest(a pool.Addr, fp uint16) (slot int, ok bool) {
	if h == nil {
		return 0, false
	}
	b, most := h.bucket(a, fp), uint64(0)
	for i := range b {
		w := b[i][1].Load()
		if pool.Addr(b[i][0].Load()) == a && uint16(w>>16) == fp && w>>32 > most {
			slot, ok, most = int(uint16(w)), true, w>>32
		}
	}
	return slot, ok
}

// recordLookup notes that the entry in a slot of the leaf at a was looked up.
func (h *hotspots) recordLookup(a pool.Addr, slot int, fp uint16) {
	if h == nil {
		return
	}
	b := h.bucket(a, fp)
	least, word := 0, b[0][1].Load()
	for i := range b {
		w := b[i][1].Load()
		same := pool.Addr(b[i][0].Load()) == a
		switch {
		case same && uint16(w) == uint16(slot) && uint16(w>>16) == fp:
			if w>>32 < 1<<32-1 {
				b[i][1].Store(w + 1<<32)
			}
			return
		case same && (uint16(w) == uint16(slot) || uint16(w>>16) == fp):
			// another key is in that slot by now, or the key is in another one
			b[i][1].Store(uint64(uint16(slot)) | uint64(fp)<<16 | 1<<32)
			return
		case w>>32 < word>>32:
			least, word = i, w
		}
	}
	if word>>32 > 1 {
		// The least frequently used one goes when it was not hit as often as others wanted its
		// place. The count is that of the word that was looked at: others may have lowered it
		// since, and it would wrap if it were lowered again.
		b[least][1].Store(word - 1<<32)
		return
	}
	b[least][0].Store(uint64(a))
	b[least][1].Store(uint64(uint16(slot)) | uint64(fp)<<16 | 1<<32)
}
