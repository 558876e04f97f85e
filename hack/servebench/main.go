// Command servebench measures the served path: indexes whose memory and compute servers are
// processes of their own, beside redis-server, with clients that ask both in turn. It prints
// ratios.
//
//	servebench [-rows set,get] [-sides dex-tcp,...] [-rounds 5] [-scale 1] [-json FILE] ...
//
// A row is one way of asking. In each round every side is asked once, one after the other, and the
// round's ratio is a side's rate over the anchor's of the same round; what is printed is the median
// of the rounds. After the rounds each side is asked once more, and the system calls, switches,
// processor time and allocations of its servers are counted; that run is not timed, because
// counting costs time.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// options are what the flags say.
type options struct {
	binary  string // of dmindex
	ycsb    string // of go-ycsb's driver; empty = those rows are left out
	rows    []string
	sides   []string
	rounds  int
	scale   float64 // of the operations of a run
	keys    int     // that are there before reads, and that changes draw from
	json    string
	profile string // directory for processor profiles of the first compute server; empty = none
	verbs   bool
	list    bool
}

func main() {
	var o options
	var rows, sides string
	flag.StringVar(&o.binary, "dmindex", "bin/dmindex", "program whose servers are measured")
	flag.StringVar(&o.ycsb, "ycsb", "", "go-ycsb's driver, as make builds it from hack/ycsb; empty = its rows are left out")
	flag.StringVar(&rows, "rows", "", "rows to measure, comma-separated; empty = all")
	flag.StringVar(&sides, "sides", "dex-tcp,dex-shm,sherman-tcp,sherman-shm,dex-tcp-expiry", "design-transport, design-tcp-2 where memory servers are kept twice, design-tcp-always, -5ms and -off where they have files, or design-transport-expiry for rows of indexes whose pairs may expire, comma-separated")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds of each row")
	flag.Float64Var(&o.scale, "scale", 1, "multiplies the operations of each run")
	flag.IntVar(&o.keys, "keys", 200_000, "keys that are read and changed")
	flag.StringVar(&o.json, "json", "", "write the figures to this file, too")
	flag.StringVar(&o.profile, "profile", "", "write processor profiles of the compute and memory servers into this directory")
	flag.BoolVar(&o.verbs, "verbs", false, "print the work requests of an operation by kind")
	flag.BoolVar(&o.list, "list", false, "list the rows and end")
	flag.Parse()
	if o.list {
		for _, r := range allRows() {
			fmt.Printf("%-10s %s\n", r.name, r.what)
		}
		return
	}
	o.rows, o.sides = list(rows), list(sides)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, &o); err != nil {
		fmt.Fprintln(os.Stderr, "servebench:", err)
		stop()
		os.Exit(1)
	}
}

func list(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// run measures the rows that were chosen, one after the other.
func run(ctx context.Context, o *options) error {
	if o.rounds < 1 || o.scale <= 0 || o.keys < 1000 {
		return fmt.Errorf("%d rounds, scale %g, %d keys: give at least 1 round, a scale above 0 and 1000 keys", o.rounds, o.scale, o.keys)
	}
	var chosen []row
	for _, r := range allRows() {
		if len(o.rows) == 0 || slices.Contains(o.rows, r.name) {
			chosen = append(chosen, r)
		}
	}
	for _, name := range o.rows {
		if !slices.ContainsFunc(chosen, func(r row) bool { return r.name == name }) {
			return fmt.Errorf("there is no row %q; -list lists them", name)
		}
	}
	for _, side := range o.sides {
		if o, ok := indexOf(side); !ok {
			return fmt.Errorf("side %q: write design-transport, such as dex-tcp", side)
		} else if o.copies == 2 && o.transport != "tcp" {
			return fmt.Errorf("side %q: memory is kept twice over tcp only: write %s-tcp%s", side, o.design, copied)
		} else if o.sync != "" && o.transport != "tcp" {
			return fmt.Errorf("side %q: memory is kept in files over tcp only: write %s-tcp, and how", side, o.design)
		}
	}
	m := &machine{ctx: ctx, o: o, ports: rand.IntN(lastPort)} // others may measure, too
	var err error
	if m.dir, err = os.MkdirTemp("", "servebench-"); err != nil {
		return err
	}
	defer os.RemoveAll(m.dir)
	defer m.close()
	report := newReport(o)
	for _, r := range chosen {
		if why := r.unfit(m); why != "" {
			report.leftOut(r, why)
			continue
		}
		if err := measure(m, r, report); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", r.name, err), report.save())
		}
	}
	return report.save()
}
