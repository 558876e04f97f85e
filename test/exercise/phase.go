package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// phase is a stretch of time.
type phase struct {
	name  string
	begin time.Time

	mu       sync.Mutex
	latency  []time.Duration
	failed   int
	stale    int
	examples []error // the first few of what failed or was stale
}

const maxExamples = 5

func (l *load) begin(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.phases = append(l.phases, &phase{name: name, begin: time.Now()})
	if name != "" {
		fmt.Printf("phase %s\n", name)
	}
}

// now is the phase under way.
func (l *load) now() *phase {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.phases[len(l.phases)-1]
}

func (p *phase) count(took time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = append(p.latency, took)
	if err != nil {
		p.failed++
		p.example(fmt.Errorf("FAILED after %v: %w", took.Round(time.Millisecond), err))
	}
}

func (p *phase) countStale(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stale++
	p.example(fmt.Errorf("STALE %w", err))
}

func (p *phase) example(err error) {
	if len(p.examples) < maxExamples {
		p.examples = append(p.examples, err)
	}
}

func (p *phase) operations() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.latency)
}

// row prints the phase as a line of the table.
func (p *phase) row(out io.Writer, end time.Time) {
	slices.Sort(p.latency)
	at := func(q float64) time.Duration {
		if len(p.latency) == 0 {
			return 0
		}
		return p.latency[min(len(p.latency)-1, int(q*float64(len(p.latency))))].Round(10 * time.Microsecond)
	}
	seconds := end.Sub(p.begin).Seconds()
	fmt.Fprintf(out, "%s\t%.1f\t%d\t%.0f\t%d\t%d\t%v\t%v\t%v\t\n", p.name, seconds, len(p.latency), float64(len(p.latency))/seconds,
		p.failed, p.stale, at(.5), at(.99), at(1))
}

// awaitLimit is how long await waits for its operations.
const awaitLimit = 2 * time.Minute

// control serves phases, waiting and the end.
func (l *load) control(stop func()) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /phase", func(_ http.ResponseWriter, r *http.Request) { l.begin(r.URL.Query().Get("name")) })
	mux.HandleFunc("POST /stop", func(http.ResponseWriter, *http.Request) { stop() })
	mux.HandleFunc("POST /await", func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(r.URL.Query().Get("operations"))
		if err == nil {
			err = l.await(r.Context(), n)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	})
	return mux
}

// await returns when the phase under way has n operations.
func (l *load) await(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, awaitLimit, errors.New("too few operations"))
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	p := l.now()
	for p.operations() < n {
		select {
		case <-ctx.Done():
			return fmt.Errorf("phase %s has %d operations of %d: %w", p.name, p.operations(), n, context.Cause(ctx))
		case <-tick.C:
		}
	}
	return nil
}
