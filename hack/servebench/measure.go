package main

import (
	"fmt"
	"os"
	"slices"
	"time"
)

// figure is what came of one side of one row.
type figure struct {
	Row    string    `json:"row"`
	Side   string    `json:"side"`
	Anchor string    `json:"anchor"`
	Rates  []float64 `json:"rates"`       // operations a second, of each round
	Others []float64 `json:"anchorRates"` // of the anchor
	Ratio  float64   `json:"ratio"`       // median of the rounds' ratios
	Goal   float64   `json:"goal,omitempty"`
	Counts *counts   `json:"counts,omitempty"` // of one more run
}

// measure runs the rounds of a row.
func measure(m *machine, r row, report *report) error {
	sides := r.of(m.o)
	operations := max(int(float64(r.operations)*m.o.scale), 1000)
	report.begin(r, operations)
	figures := map[string]*figure{}
	for _, name := range sides {
		figures[name] = &figure{Row: r.name, Side: name, Anchor: r.anchor, Goal: r.goal[name]}
	}
	if r.base != nil {
		for _, f := range figures {
			f.Anchor = "the same servers over RESP"
			if r.cgroups {
				f.Anchor = "one server"
			}
		}
	}
	for range m.o.rounds {
		anchor := 0.0
		if r.base == nil {
			elapsed, err := m.ask(&r, r.anchor, operations, r.run)
			if err != nil {
				return err
			}
			anchor = float64(operations) / elapsed.Seconds()
		}
		for _, name := range sides {
			if r.base != nil {
				elapsed, err := m.ask(&r, name, operations, r.base)
				if err != nil {
					return err
				}
				anchor = float64(operations) / elapsed.Seconds()
			}
			elapsed, err := m.ask(&r, name, operations, r.run)
			if err != nil {
				return err
			}
			f := figures[name]
			f.Rates, f.Others = append(f.Rates, float64(operations)/elapsed.Seconds()), append(f.Others, anchor)
		}
	}
	if r.base == nil {
		f := &figure{Row: r.name, Side: r.anchor}
		for _, other := range figures {
			f.Rates, f.Others, f.Ratio = other.Others, other.Others, 1
		}
		if err := m.count(&r, f, operations); err != nil {
			return err
		}
		report.add(f)
	}
	for _, name := range sides {
		f := figures[name]
		ratios := make([]float64, len(f.Rates))
		for i := range ratios {
			ratios[i] = f.Rates[i] / f.Others[i]
		}
		f.Ratio = median(ratios)
		if err := m.count(&r, f, operations); err != nil {
			return err
		}
		report.add(f)
	}
	return nil
}

// settle is left to what a run leaves to do in the background, such as writing pages back.
const settle = 100 * time.Millisecond

// ask is one run against a target.
func (m *machine) ask(r *row, name string, operations int, run func(*machine, *target, int) (time.Duration, error)) (time.Duration, error) {
	t, err := m.target(name)
	if err == nil {
		err = m.load(t, r.keys, set)
	}
	if err != nil {
		return 0, err
	}
	time.Sleep(settle)
	elapsed, err := run(m, t, operations)
	if err != nil {
		return 0, fmt.Errorf("%s: %w; %s", name, err, m.logs(t))
	}
	return elapsed, m.ctx.Err()
}

// count runs a row once more and counts what the servers do; with -profile, the run is profiled
// instead.
func (m *machine) count(r *row, f *figure, operations int) error {
	t, err := m.target(f.Side)
	if err != nil || r.cgroups { // other servers are measured
		return err
	}
	if m.o.profile != "" {
		if err := os.MkdirAll(m.o.profile, 0o755); err != nil {
			return err
		}
		return m.takeProfiles(r, t, operations)
	}
	counter, err := startCounting(m, t)
	if err != nil {
		return err
	}
	_, err = m.ask(r, f.Side, operations, r.run)
	c, failed := counter.end(operations)
	if err == nil {
		f.Counts, err = c, failed
	}
	return err
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}
