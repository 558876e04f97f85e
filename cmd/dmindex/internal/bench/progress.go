package bench

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// progressMask says after how many operations a client asks whether a line is due: those whose
// number has none of these bits.
const progressMask = 1<<10 - 1

// progress writes a line about a phase every second, and one at its end.
type progress struct {
	out       io.Writer
	what      string
	simulated bool
	length    uint64
	began     time.Duration // of the cluster's time

	mu          sync.Mutex
	first, last time.Time
}

func newProgress(out io.Writer, what string, simulated bool, began time.Duration, length uint64) *progress {
	now := time.Now()
	return &progress{out: out, what: what, simulated: simulated, length: length, began: began, first: now, last: now}
}

// at is called now and then with the cluster's time and how many operations were begun.
func (p *progress) at(now time.Duration, n uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := time.Now(); t.Sub(p.last) >= time.Second {
		p.last = t
		p.line(now, n)
	}
}

func (p *progress) line(now time.Duration, n uint64) {
	took := now - p.began
	fmt.Fprintf(p.out, "%s: %d of %d operations in %.1f s", p.what, n, p.length, time.Since(p.first).Seconds())
	if p.simulated {
		fmt.Fprintf(p.out, ", %.3f ms of simulated time", took.Seconds()*1e3)
	}
	if took > 0 {
		fmt.Fprintf(p.out, ", %.3g million a second", float64(n)/took.Seconds()/1e6)
	}
	fmt.Fprintln(p.out)
}
