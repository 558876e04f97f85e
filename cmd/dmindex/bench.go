package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/papers"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/report"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/workload"
)

// benchFlags are the flags of bench as they were given.
type benchFlags struct {
	designs, transports, workloads []string
	clients                        []int
	records                        uint64
	bulkLoad, loaded               bool
	ops, warmup, value             int
	servers, distribution, scan    string
	key                            keyFlag
	cacheBytes                     sizeFlag
	cachePercent                   float64
	switches                       []string
	seed                           uint64
	processorTime, messageRate     float64
	figure, json, html, secret     string
	markdown                       bool
	repartition                    []string
	given                          func(flag string) bool
	names                          []string // of the flags that were given
}

func benchCommand() *cobra.Command {
	f := benchFlags{key: keyFlag{config.KeyUint64, 8}}
	cmd := &cobra.Command{
		Use:     "bench",
		GroupID: "try",
		Short:   "Measure designs of the index, on a simulated fabric or in this process",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.given = cmd.Flags().Changed
			cmd.Flags().Visit(func(flag *pflag.Flag) { f.names = append(f.names, flag.Name) })
			for _, name := range []string{f.json, f.html} { // better now than after the runs
				if err := writable(name); err != nil {
					return err
				}
			}
			if len(f.repartition) > 0 {
				return f.doRepartition(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
			}
			if f.secret != "" {
				return errors.New("--secret: only --repartition measures an index that is there; leave it out")
			}
			if f.loaded {
				return errors.New("--loaded: only --repartition measures an index that is there; leave it out")
			}
			if f.figure != "" {
				return f.doFigure(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
			}
			runs, err := f.runs(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return f.do(cmd.Context(), cmd.OutOrStdout(), runs)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.designs, "design", []string{"dex"}, "designs to run, one after the other")
	flags.StringSliceVar(&f.transports, "transport", []string{"sim"}, "fabrics: "+strings.Join(bench.Transports, ", "))
	flags.StringSliceVar(&f.workloads, "workload", []string{"C"}, "workloads: YCSB's A to F and LOAD, DEX's insert-intensive, Sherman's write-only, write-intensive, read-intensive, range-only, range-write")
	flags.IntSliceVar(&f.clients, "clients", []int{4}, "sessions of all compute servers together; several numbers give a curve")
	flags.Uint64Var(&f.records, "records", 100_000, "number of items loaded before the run")
	flags.BoolVar(&f.bulkLoad, "bulk-load", false, "bulk load the items in key order into nodes that are 80 % full, as in Sherman's paper; without it they are inserted in random order")
	flags.IntVar(&f.ops, "ops", 100_000, "number of measured operations")
	flags.IntVar(&f.warmup, "warmup", -1, "number of operations before the measured ones; -1 = a fifth of them")
	flags.StringVar(&f.servers, "servers", "2x2", "number of memory servers x number of compute servers")
	flags.StringVar(&f.distribution, "distribution", "", "popularity of items: uniform, zipfian:THETA (or zipfian:THETA/RANKS) or latest; empty = zipfian:0.99, latest for workload D")
	flags.StringVar(&f.scan, "scan", "1-100", "length of scans: one number, or a range to draw from uniformly")
	flags.Var(&f.key, "key", "uint64, or bytes:N for text keys of N bytes")
	flags.IntVar(&f.value, "value", 8, "length of a value in bytes")
	flags.Var(&f.cacheBytes, "cache-bytes", "index cache of each compute server; 0 = the design's default")
	flags.Float64Var(&f.cachePercent, "cache-percent", 0, "index cache of each compute server, in percent of the bytes of all leaves after the load")
	flags.StringSliceVar(&f.switches, "switch", nil, "techniques of the design to switch, as in onChip=off,combine=on; all others stay on")
	flags.Uint64Var(&f.seed, "seed", 1, "seed of the operations and of the simulation")
	flags.Float64Var(&f.processorTime, "processor-time", 1, "with the sim transport: how many times the measured processor time operations take, to see what a figure owes to it")
	flags.Float64Var(&f.messageRate, "message-rate", 77, "with the sim transport: million messages a second that the NIC of a memory server passes in each direction, to see what a figure owes to it")
	flags.StringVar(&f.figure, "figure", "", "compare all designs: five is a summary, five-cache to five-processor are its parts, five-claims is what the papers say of each other beside what is measured here; or repeat an experiment of a paper, sherman-5 to dolphin-8 (a name that is not there is answered with the list); or with processor measure what operations take of processors, over shared memory; takes --records, --ops, --clients and --servers where the figure does not set them")
	flags.StringSliceVar(&f.repartition, "repartition", nil, "measure the addition of a compute server while clients read and write, in real time; the value is a list of cache sizes")
	flags.Lookup("repartition").NoOptDefVal = "256Mi,512Mi,1Gi"
	flags.StringVar(&f.secret, "secret", "", "with --repartition: measure a running index instead of servers in this process; the directory where its Secret NAME-conn is mounted. "+
		"The index must be empty and have Uint64 keys. The program says when to scale it")
	flags.BoolVar(&f.loaded, "loaded", false, "with --secret: the index already holds the records of an earlier run")
	flags.StringVar(&f.json, "json", "", "write the figures as JSON to this file")
	flags.BoolVar(&f.markdown, "markdown", false, "write tables as Markdown")
	flags.StringVar(&f.html, "html", "", "write a page with plots to this file")
	return cmd
}

// base is what all runs have in common.
func (f *benchFlags) base(progress io.Writer) (base bench.Run, err error) {
	base = bench.Run{
		Records: f.records, BulkLoad: f.bulkLoad, Ops: f.ops, Warmup: f.warmup, Uint64: f.key.kind == config.KeyUint64, KeyBytes: f.key.bytes,
		ValueBytes: f.value, CacheBytes: int(f.cacheBytes), CachePercent: f.cachePercent, Seed: f.seed, Progress: progress, Markdown: f.markdown,
	}
	if f.given("processor-time") {
		if base.ProcessorScale = f.processorTime; f.processorTime <= 0 {
			return base, errors.New("--processor-time: give a number above 0")
		}
	}
	if f.given("message-rate") {
		if base.MessageRate = f.messageRate; f.messageRate <= 0 {
			return base, errors.New("--message-rate: give a number above 0")
		}
	}
	if f.warmup == -1 {
		base.Warmup = f.ops / 5
	}
	if f.cachePercent != 0 {
		if f.cachePercent < 0 || f.cacheBytes != 0 {
			return base, errors.New("give --cache-percent above 0, or --cache-bytes; not both")
		}
	}
	if base.MemoryServers, base.ComputeServers, err = twoNumbers(f.servers, "x"); err != nil {
		return base, fmt.Errorf("--servers %q: write memory servers x compute servers, as in 8x8", f.servers)
	}
	if base.ScanFrom, base.ScanTo, err = twoNumbers(f.scan, "-"); err != nil {
		return base, fmt.Errorf("--scan %q: write the shortest and the longest length, as in 1-100, or one number", f.scan)
	}
	base.Switches, err = parseSwitches(f.switches)
	return base, err
}

// runs are all combinations of what was asked for.
func (f *benchFlags) runs(progress io.Writer) ([]*bench.Run, error) {
	base, err := f.base(progress)
	if err != nil {
		return nil, err
	}
	var runs []*bench.Run
	for _, design := range f.designs {
		for _, transport := range f.transports {
			for _, name := range f.workloads {
				for _, clients := range f.clients {
					r := base
					r.Design, r.Transport, r.Clients = design, transport, clients
					if r.Workload, err = workload.ByName(name); err != nil {
						return nil, err
					}
					if r.Distribution, err = workload.ParseDistribution(r.Workload.DistributionOr(f.distribution)); err != nil {
						return nil, err
					}
					if err := r.Check(); err != nil {
						return nil, err
					}
					runs = append(runs, &r)
				}
			}
		}
	}
	return runs, nil
}

// doFigure does an experiment. What was not given is the paper's, or as much of it as takes a few
// minutes.
func (f *benchFlags) doFigure(ctx context.Context, out, progress io.Writer) error {
	figure, err := papers.LookupFigure(f.figure)
	if err != nil {
		return err
	}
	for _, name := range f.names {
		if figure.Sets(name) {
			return fmt.Errorf("--%s: figure %s says itself what it measures; leave it out", name, f.figure)
		}
	}
	if len(f.clients) != 1 {
		return errors.New("--clients: a figure takes one number")
	}
	base, err := f.base(progress)
	if err != nil {
		return err
	}
	base.Clients = f.clients[0]
	if f.given("design") {
		base.Design = f.designs[0]
	}
	figure.Defaults(&base, f.given)
	results, err := figure.Do(ctx, base, out)
	if err != nil {
		return err
	}
	return toFiles(f, results, report.WriteJSON, report.WriteHTML)
}

// twoNumbers reads "AxB"; "A" is "AxA" where one number may stand for both.
func twoNumbers(text, between string) (a, b int, err error) {
	first, second, ok := strings.Cut(text, between)
	if !ok && between == "-" {
		second = first
	}
	if a, err = strconv.Atoi(first); err == nil {
		b, err = strconv.Atoi(second)
	}
	return a, b, err
}

// parseSwitches reads name=on and name=off.
func parseSwitches(list []string) (map[string]bool, error) {
	var switches map[string]bool
	for _, text := range list {
		name, value, _ := strings.Cut(text, "=")
		if value != "on" && value != "off" {
			return nil, fmt.Errorf("--switch %q: write name=on or name=off", text)
		}
		if switches == nil {
			switches = map[string]bool{}
		}
		switches[name] = value == "on"
	}
	return switches, nil
}

// do does the runs and reports them.
func (f *benchFlags) do(ctx context.Context, out io.Writer, runs []*bench.Run) error {
	var results []*bench.Result
	for _, r := range runs {
		res, err := r.Do(ctx)
		if err != nil {
			return err
		}
		results = append(results, res)
	}
	if err := report.WriteTable(out, results); err != nil {
		return err
	}
	return toFiles(f, results, report.WriteJSON, report.WriteHTML)
}

// toFiles writes the files that were asked for.
func toFiles[R any](f *benchFlags, results []R, asJSON, asHTML func(io.Writer, []R) error) error {
	if f.json != "" {
		if err := toFile(f.json, results, asJSON); err != nil {
			return err
		}
	}
	if f.html != "" {
		return toFile(f.html, results, asHTML)
	}
	return nil
}

// writable makes a file, if a name is given.
func writable(name string) error {
	if name == "" {
		return nil
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	return file.Close()
}

func toFile[R any](name string, results []R, write func(io.Writer, []R) error) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(file, results), file.Close())
}
