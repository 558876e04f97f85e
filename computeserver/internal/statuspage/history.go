//env:real serves a page over the machine's network

package statuspage

import (
	"sync"
	"time"
)

// Every is the time between two samples, and Kept how many of them a History has: an hour of them.
const (
	Every = 10 * time.Second
	Kept  = 360
)

// Sample is what a compute server did since the sample before it.
type Sample struct {
	At         time.Time // when it was taken
	Operations float64   // requests of programs in a second
	Errors     float64   // of them, in a second
	P99        float64   // seconds; 0 = there was none
	HitRatio   float64   // 0 to 1; below 0 = nothing was looked for
}

// History has the last samples of a server. It is safe for concurrent use.
type History struct {
	mu      sync.Mutex
	samples []Sample // oldest first
}

// Add adds the newest sample, and drops the oldest one where there are Kept.
func (h *History) Add(s Sample) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.samples) == Kept {
		h.samples = append(h.samples[:0], h.samples[1:]...)
	}
	h.samples = append(h.samples, s)
}

// Samples returns a copy, oldest first.
func (h *History) Samples() []Sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Sample(nil), h.samples...)
}
