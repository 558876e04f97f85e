// Package lfu counts how often nodes are looked for that a cache does not have, so that the cache
// can tell what is worth having (TinyLFU: Einziger, Friedman, Manes, ACM TOS 13(4), 2017). The
// counts are few: a node has two of them, by its address, which it shares with others.
package lfu

import (
	"math"

	"github.com/dmindex/dmindex/pkg/pool"
)

// Most is the highest count.
const Most = 255

// Hash spreads addresses of nodes, which are multiples of 64.
func Hash(a pool.Addr) uint64 { return uint64(a) >> 6 * 0x9E3779B97F4A7C15 }

// Sketch is the counts. Not safe for concurrent use.
type Sketch struct{ counts []uint8 }

// New makes a sketch of n counts, of a byte each.
func New(n int) Sketch { return Sketch{make([]uint8, n)} }

// Count is what is counted of a: the lower one of its counts is nearer to the truth.
func (s *Sketch) Count(a pool.Addr) uint8 {
	i, j := s.at(a)
	return min(s.counts[i], s.counts[j])
}

// Raise lets Count say at least n of a.
func (s *Sketch) Raise(a pool.Addr, n uint8) {
	i, j := s.at(a)
	s.counts[i], s.counts[j] = max(s.counts[i], n), max(s.counts[j], n)
}

// Miss counts that a was looked for in vain and says how often it was by now.
func (s *Sketch) Miss(a pool.Addr) uint8 {
	n := min(Most-1, s.Count(a)) + 1
	s.Raise(a, n)
	return n
}

// Halve halves all counts, so that what was looked for long ago counts for less.
func (s *Sketch) Halve() {
	for i := range s.counts {
		s.counts[i] /= 2
	}
}

// Bytes is the memory of the counts.
func (s *Sketch) Bytes() int { return len(s.counts) }

func (s *Sketch) at(a pool.Addr) (i, j uint64) {
	h, n := Hash(a)*0xC2B2AE3D27D4EB4F, uint64(len(s.counts))
	return h >> 32 * n >> 32, h & math.MaxUint32 * n >> 32
}
