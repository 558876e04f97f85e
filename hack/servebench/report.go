package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
)

// report prints figures as they come, and saves them at the end.
type report struct {
	o       *options
	Rounds  int               `json:"rounds"`
	Cores   int               `json:"cores"`
	Keys    int               `json:"keys"`
	Figures []*figure         `json:"figures"`
	Left    map[string]string `json:"leftOut,omitempty"`
}

func newReport(o *options) *report {
	fmt.Printf("ratios: median of %d rounds, each side beside its anchor; %d cores for servers and clients together; %d keys\n", o.rounds, runtime.NumCPU(), o.keys)
	fmt.Println("counts: an operation, of all servers of the side, in a run that is not timed")
	return &report{o: o, Rounds: o.rounds, Cores: runtime.NumCPU(), Keys: o.keys, Left: map[string]string{}}
}

func (r *report) begin(row row, operations int) {
	fmt.Printf("\n%s: %s; %d operations a run\n", row.name, row.what, operations)
	fmt.Printf("  %-14s %10s %10s %7s %6s %8s %8s %8s %8s %5s %9s %9s %8s %8s\n", "side", "ops/s", "anchor/s", "ratio", "goal", "cpu us", "user", "memory", "client", "busy", "syscalls", "switches", "allocs", "trips")
}

func (r *report) add(f *figure) {
	goal := ""
	if f.Goal > 0 {
		goal = fmt.Sprintf("%.2f", f.Goal)
	}
	fmt.Printf("  %-14s %10.0f %10.0f %7.2f %6s", f.Side, median(f.Rates), median(f.Others), f.Ratio, goal)
	if c := f.Counts; c != nil {
		fmt.Printf(" %8.2f %8.2f %8.2f %8.2f %5.2f %9.3f %9.3f %8.2f %8.3f", c.Processor, c.User, c.Memory, c.Client, c.Busy, c.SystemCalls, c.Switches, c.Allocations, c.Trips)
	}
	fmt.Println()
	if c := f.Counts; c != nil && r.o.verbs {
		fmt.Printf("  %-14s %v\n", "", c.Verbs)
	}
	r.Figures = append(r.Figures, f)
}

func (r *report) leftOut(row row, why string) {
	fmt.Printf("\n%s: left out: %s\n", row.name, why)
	r.Left[row.name] = why
}

func (r *report) save() error {
	if r.o.json == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(r.o.json, append(text, '\n'), 0o644)
}
