package bench

import (
	"math"
	"math/bits"
	"time"
)

// Histogram counts durations in buckets that grow with them: exact below 2^subBits ns, above that
// 2^subBits buckets for each power of two. A quantile is the middle of its bucket, so it is off by
// at most 1 in 2^(subBits+1), 0.4%.
type Histogram struct {
	counts [buckets]uint32
	total  uint64
	sum    time.Duration
}

const (
	subBits = 7
	// longest is what everything longer counts as: 2^40 ns, 18 minutes.
	longest = 1<<40 - 1
	buckets = (40 - subBits + 1) << subBits
)

// Record counts a duration.
func (h *Histogram) Record(d time.Duration) {
	h.counts[bucketOf(d)]++
	h.total++
	h.sum += d
}

func bucketOf(d time.Duration) int {
	v := uint64(min(max(d, 0), longest))
	shift := max(bits.Len64(v)-subBits-1, 0)
	return shift<<subBits + int(v>>shift)
}

// bounds of a bucket: from low to below high.
func bounds(bucket int) (low, high time.Duration) {
	if bucket < 2<<subBits {
		return time.Duration(bucket), time.Duration(bucket + 1)
	}
	shift := bucket>>subBits - 1
	from := bucket - shift<<subBits
	return time.Duration(from << shift), time.Duration((from + 1) << shift)
}

// add adds the counts of o.
func (h *Histogram) add(o *Histogram) {
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.total += o.total
	h.sum += o.sum
}

// Above is how many durations are longer than d, to the width of its bucket.
func (h *Histogram) Above(d time.Duration) (n uint64) {
	for _, count := range h.counts[bucketOf(d)+1:] {
		n += uint64(count)
	}
	return n
}

// Quantile is a time that a share q of all durations does not exceed; 0 if there are none.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.total == 0 {
		return 0
	}
	rank := max(1, min(h.total, uint64(q*float64(h.total)+0.9999999)))
	seen := uint64(0)
	for i, n := range h.counts {
		if seen += uint64(n); seen >= rank {
			low, high := bounds(i)
			return low + (high-low)/2
		}
	}
	return longest
}

// Tail is points of time in microseconds and the share of durations that are longer, downwards to
// rarest.
func (h *Histogram) Tail(rarest float64) (points [][2]float64) {
	left := h.total
	share, step := 1.0, 0.97
	for i, n := range h.counts {
		if n == 0 {
			continue
		}
		low, _ := bounds(i)
		if now := float64(left) / float64(h.total); len(points) == 0 || now <= share*step {
			share = now
			points = append(points, [2]float64{float64(max(low, 1)) / float64(time.Microsecond), math.Max(now, rarest)})
			if now <= rarest {
				return points
			}
		}
		left -= uint64(n)
	}
	return append(points, [2]float64{points[len(points)-1][0], math.Max(1/float64(h.total), rarest)})
}
