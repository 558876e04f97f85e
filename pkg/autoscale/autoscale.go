// Package autoscale decides how many compute servers there shall be, from what they say of their
// load. It is pure: nothing here does I/O, keeps time or starts anything.
package autoscale

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Spec is what is asked for.
type Spec struct {
	Min, Max int // servers

	// OperationsPerSecond is how many a server shall do, on average; 0 = that is no measure.
	OperationsPerSecond float64

	// CacheMisses is in how many of 100 operations a server may have to ask memory servers, on
	// average; 0 = that is no measure. More servers have more cache.
	CacheMisses float64

	// Up and Down are the stabilisation windows: there are made more servers only if more were
	// wanted all the time for so long, and fewer if fewer were.
	Up, Down time.Duration
}

// Observed is what is seen.
type Observed struct {
	Now      time.Duration // by a clock that never goes back
	Replicas int           // that there shall be, so far
	Settled  bool          // there are as many, they are ready, and no ranges move
	Said     int           // servers that said their load
	Rate     float64       // operations a second of all that did
	// the share of these operations that the cache did not spare a memory server
	Misses float64
}

// Memory is what is remembered from one decision to the next. Without it, as after a restart, no
// servers are taken away before a whole window is over. A value.
type Memory struct {
	since, last time.Duration // of what is known without a gap
	wanted      []wanted      // oldest first; at most about marks of them
	newest      int           // what was wanted last

	settled time.Duration // since when nothing moves
	moving  bool

	pressed     int // that many servers had too little cache,
	pressedRate float64
	pressedAt   time.Duration
}

// wanted is how many servers were wanted from a time on, until the next one.
type wanted struct {
	at        time.Duration
	low, high int
}

// Limits of decisions.
const (
	tolerance = 0.1         // of a target
	marks     = 60          // into which a window is divided
	gap       = time.Minute // without a look: what was before counts no more
	warm      = time.Minute // that caches take to be of use after ranges moved
	// that a number of servers with too little cache is remembered, as long as there is about as
	// much to do
	memorable = 2 * time.Hour
	fewest    = 10               // operations a second; with less, the misses say nothing
	longest   = time.Hour        // window
	shortest  = 10 * time.Second // between two marks
)

// Decide says how many servers there shall be now, and why if that is another number than so far.
func Decide(s Spec, o Observed, m Memory) (replicas int, reason string, next Memory) {
	next = m.noteLook(o)
	want, why := s.wanted(o, &next)
	next.note(s, o.Now, want)
	switch bounded := min(max(o.Replicas, s.Min), s.Max); {
	case bounded != o.Replicas:
		return bounded, fmt.Sprintf("%d to %d are allowed", s.Min, s.Max), next
	case !o.Settled:
		return o.Replicas, "", next
	}
	if up := next.leastWanted(s, o.Now); up > o.Replicas {
		next.moving = true
		if why == pressure {
			next.pressed, next.pressedRate, next.pressedAt = o.Replicas, o.Rate, o.Now
		}
		return up, s.explain(o, why), next
	}
	if down := next.mostWanted(s, o.Now); down < o.Replicas {
		next.moving = true
		return down, s.explain(o, why), next
	}
	return o.Replicas, "", next
}

// measure is what a number of servers is wanted for.
type measure uint8

const (
	operations measure = iota
	pressure
)

func (s Spec) explain(o Observed, why measure) string {
	if why == pressure || s.OperationsPerSecond == 0 {
		return fmt.Sprintf("%.0f%% of the operations miss the cache, the target is %.0f%%, of %.0f operations a second", 100*o.Misses, s.CacheMisses, o.Rate)
	}
	return fmt.Sprintf("%.0f operations a second, the target is %.0f a server", o.Rate, s.OperationsPerSecond)
}

// wanted is how many servers would be right for what is seen, within the bounds.
func (s Spec) wanted(o Observed, m *Memory) (n int, why measure) {
	n = s.Min
	if s.OperationsPerSecond > 0 {
		n = int(min(math.Ceil(o.Rate/s.OperationsPerSecond), float64(s.Max)))
		if ratio := o.Rate / s.OperationsPerSecond / float64(o.Replicas); math.Abs(ratio-1) <= tolerance {
			n = o.Replicas
		}
	}
	if s.CacheMisses > 0 {
		if c := s.wantCache(o, m); c > n {
			n, why = c, pressure
		}
	}
	if o.Said < o.Replicas {
		n = max(n, o.Replicas) // who knows what the others do
	}
	return min(max(n, s.Min), s.Max, 2*o.Replicas), why
}

// wantCache is how many servers would have cache enough: more if there are too many misses, one
// less if there are hardly any. Caches are not judged before they are warm.
func (s Spec) wantCache(o Observed, m *Memory) int {
	ratio := 100 * o.Misses / s.CacheMisses
	n := o.Replicas
	switch {
	case o.Rate < fewest:
		n = s.Min
	case !o.Settled || o.Now-m.settled < warm:
	case ratio > 1+tolerance:
		// what that is good for is seen when it is warm
		n = min(int(math.Ceil(float64(o.Replicas)*ratio)), o.Replicas+max(1, o.Replicas/4))
	case ratio < 0.5:
		n--
	}
	if m.pressed > 0 && o.Now-m.pressedAt < memorable && o.Rate > m.pressedRate/2 {
		n = max(n, m.pressed+1)
	}
	return n
}

// noteLook notes that there was a look, and whether anything moves.
func (m Memory) noteLook(o Observed) Memory {
	if len(m.wanted) == 0 || o.Now-m.last > gap {
		m.since, m.wanted = o.Now, nil
		m.settled = o.Now
	}
	if !o.Settled || m.moving {
		m.settled = o.Now
	}
	m.moving = !o.Settled
	m.last = o.Now
	return m
}

// note adds what is wanted.
func (m *Memory) note(s Spec, now time.Duration, n int) {
	window := min(max(s.Up, s.Down), longest)
	m.newest = n
	m.wanted = slices.Clone(m.wanted)
	first := 0
	for first+1 < len(m.wanted) && m.wanted[first+1].at <= now-window {
		first++ // the next one was wanted then already
	}
	m.wanted = m.wanted[first:]
	if k := len(m.wanted); k > 0 && now-m.wanted[k-1].at < max(window/marks, shortest) {
		w := &m.wanted[k-1]
		w.low, w.high = min(w.low, n), max(w.high, n)
		return
	}
	m.wanted = append(m.wanted, wanted{now, n, n})
}

// leastWanted is the least number that was wanted within the window of scaling up; no more than
// that is made. 0 while that is not known.
func (m *Memory) leastWanted(s Spec, now time.Duration) int {
	if now-m.since < s.Up {
		return 0
	}
	if s.Up == 0 {
		return m.newest
	}
	least := math.MaxInt
	for i, w := range m.wanted {
		if i+1 == len(m.wanted) || m.wanted[i+1].at > now-s.Up {
			least = min(least, w.low)
		}
	}
	return least
}

// mostWanted is the greatest number that was wanted within the window of scaling down; no fewer are
// left. While that is not known, it is more than any.
func (m *Memory) mostWanted(s Spec, now time.Duration) int {
	if now-m.since < s.Down {
		return math.MaxInt
	}
	most := 0
	for i, w := range m.wanted {
		if i+1 == len(m.wanted) || m.wanted[i+1].at > now-s.Down {
			most = max(most, w.high)
		}
	}
	return most
}
