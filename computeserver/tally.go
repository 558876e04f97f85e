package computeserver

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// outcomeKind is how requests ended, as metrics tell them apart.
type outcomeKind uint8

const (
	outcomeOK    outcomeKind = iota
	outcomeMiss              // not found, or exists: an answer all the same
	outcomeError             // everything else
	outcomeKinds
)

var outcomeNames = [outcomeKinds]string{"ok", "miss", "error"}

// maxSlots is more than there are commands.
const maxSlots = 32

// tally counts the requests of one pipeline or batch without sharing anything; publish adds them to
// what is shared.
type tally struct {
	slot  int // what is counted next
	n     [maxSlots][outcomeKinds]uint32
	total uint64
	dirty uint32 // bit a slot
}

func (t *tally) count(kind outcomeKind) {
	t.n[t.slot][kind]++
	t.dirty |= 1 << t.slot
	t.total++
}

// recount counts a request of a slot as another kind than it was counted as.
func (t *tally) recount(slot int, was, is outcomeKind) {
	t.n[slot][was]--
	t.n[slot][is]++
}

// front is what one front end counted.
type front struct {
	n       [maxSlots][outcomeKinds]atomic.Uint64
	latency histogram
	core    *counters
}

// publish adds the tally to f and clears it. took is how long the requests took, as their sender
// saw it: all of a pipeline are answered together.
func (t *tally) publish(f *front, took time.Duration) {
	if t.total == 0 {
		return
	}
	failed := uint64(0)
	for dirty := t.dirty; dirty != 0; dirty &= dirty - 1 {
		slot := bits.TrailingZeros32(dirty)
		for kind := range t.n[slot] {
			if n := t.n[slot][kind]; n > 0 {
				f.n[slot][kind].Add(uint64(n))
				t.n[slot][kind] = 0
				if outcomeKind(kind) == outcomeError {
					failed += uint64(n)
				}
			}
		}
	}
	f.core.operations.Add(t.total)
	if failed > 0 {
		f.core.errors.Add(failed)
	}
	f.latency.observe(took, t.total)
	t.total, t.dirty = 0, 0
}

// histogram counts durations by powers of two of a microsecond: bucket i has those below 1 µs << i.
type histogram struct {
	buckets [histogramBuckets]atomic.Uint64
	sum     atomic.Uint64 // nanoseconds
}

const histogramBuckets = 25 // the last but one ends at 8 s

func (h *histogram) observe(d time.Duration, n uint64) {
	bucket := bits.Len64(uint64(max(d, 0) / time.Microsecond))
	h.buckets[min(bucket, histogramBuckets-1)].Add(n)
	h.sum.Add(uint64(max(d, 0)) * n)
}
