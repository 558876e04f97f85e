package count

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Kind is how requests ended, as metrics tell them apart.
type Kind uint8

const (
	OK    Kind = iota
	Miss       // not found, exists, or another value: an answer all the same
	Error      // everything else
	outcomeKinds
)

// Names are those of the kinds, as metrics have them.
var Names = [outcomeKinds]string{"ok", "miss", "error"}

// MaxSlots bounds the slots of a front end, as a Tally has a bit for each.
const MaxSlots = 64 * dirtyWords

const dirtyWords = 2

// Tally counts the requests of one pipeline or batch without sharing anything; publish adds them to
// what is shared.
type Tally struct {
	Slot  int // what is counted next
	n     [MaxSlots][outcomeKinds]uint32
	total uint64
	dirty [dirtyWords]uint64 // bit a slot
}

// Count counts a request under Slot.
func (t *Tally) Count(kind Kind) {
	t.n[t.Slot][kind]++
	t.dirty[uint(t.Slot)/64] |= 1 << (uint(t.Slot) % 64)
	t.total++
}

// Total is how many requests were counted since Publish.
func (t *Tally) Total() uint64 { return t.total }

// Recount counts a request of a slot as another kind than it was counted as.
func (t *Tally) Recount(slot int, was, is Kind) {
	t.n[slot][was]--
	t.n[slot][is]++
}

// Front is what one front end counted.
type Front struct {
	N       [MaxSlots][outcomeKinds]atomic.Uint64
	Latency Histogram
	Sizes   Sizes // of pipelines and batches
	Sum     *Counters
}

// Pipelines is how many pipelines or batches there were, and how many requests they had together.
func (f *Front) Pipelines() (n, requests uint64) {
	for i := range f.Sizes.Buckets {
		n += f.Sizes.Buckets[i].Load()
	}
	for i := range f.Latency.Buckets {
		requests += f.Latency.Buckets[i].Load()
	}
	return n, requests
}

// Sizes counts pipelines or batches by powers of two of their requests: bucket i has those of more
// than 1<<(i-1) requests and at most 1<<i.
type Sizes struct{ Buckets [SizeBuckets]atomic.Uint64 }

// SizeBuckets is how many there are; the last one has no end.
const SizeBuckets = 13

func (s *Sizes) observe(n uint64) {
	s.Buckets[min(bits.Len64(n-1), SizeBuckets-1)].Add(1)
}

// Publish adds the tally to f and clears it. took is how long the requests took, as their sender
// saw it: all of a pipeline are answered together.
func (t *Tally) Publish(f *Front, took time.Duration) {
	if t.total == 0 {
		return
	}
	failed := uint64(0)
	for word, dirty := range t.dirty {
		for ; dirty != 0; dirty &= dirty - 1 {
			slot := 64*word + bits.TrailingZeros64(dirty)
			for kind := range t.n[slot] {
				if n := t.n[slot][kind]; n > 0 {
					f.N[slot][kind].Add(uint64(n))
					t.n[slot][kind] = 0
					if Kind(kind) == Error {
						failed += uint64(n)
					}
				}
			}
		}
	}
	f.Sum.Operations.Add(t.total)
	if failed > 0 {
		f.Sum.Errors.Add(failed)
	}
	f.Latency.observe(took, t.total)
	f.Sizes.observe(t.total)
	t.total, t.dirty = 0, [dirtyWords]uint64{}
}

// Histogram counts durations by powers of two of a microsecond: bucket i has those below 1 µs << i.
type Histogram struct {
	Buckets [HistogramBuckets]atomic.Uint64
	Sum     atomic.Uint64 // nanoseconds
}

// HistogramBuckets is how many there are; the last but one ends at 8 s.
const HistogramBuckets = 25

func (h *Histogram) observe(d time.Duration, n uint64) {
	bucket := bits.Len64(uint64(max(d, 0) / time.Microsecond))
	h.Buckets[min(bucket, HistogramBuckets-1)].Add(n)
	h.Sum.Add(uint64(max(d, 0)) * n)
}
