package simenv

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// progressVariable is how often, at most, a process says on its standard error which seed it has
// come to, as a Go duration: a run of thousands of seeds is silent for long.
const progressVariable = "DMINDEX_SIM_PROGRESS"

var progress struct {
	once  sync.Once
	every time.Duration // 0 = never

	mu   sync.Mutex
	last time.Time
}

// showProgress is called when a world of this seed begins.
func showProgress(seed uint64) {
	p := &progress
	p.once.Do(func() {
		p.every, _ = time.ParseDuration(os.Getenv(progressVariable))
		p.last = time.Now()
	})
	if p.every <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); now.Sub(p.last) >= p.every {
		p.last = now
		fmt.Fprintf(os.Stderr, "seed %d begins\n", seed)
	}
}
