// Package papers repeats the experiments of the designs' papers, and compares designs with each
// other: which runs these are, what the papers say of them, and the tables that show both.
package papers

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench"
)

// Experiment is what --figure names.
type Experiment interface {
	// Do does the experiment again and writes our figures beside the paper's. base says all of a
	// run that the experiment does not.
	Do(ctx context.Context, base bench.Run, out io.Writer) ([]*bench.Result, error)
	// Defaults changes what base has by the defaults of flags: given says of which this is not so.
	Defaults(base *bench.Run, given func(flag string) bool)
	// Sets reports whether the experiment says itself what a flag of the command would say.
	Sets(flag string) bool
}

// comparisons are all experiments that compare variants of designs.
var comparisons = slices.Concat(shermanFigures, dexFigures, smartFigures, chimeFigures, dolphinFigures, fiveFigures, claimComparisons)

// LookupFigure finds an experiment by name; the error lists those that there are.
func LookupFigure(name string) (Experiment, error) {
	var names []string
	for i := range comparisons {
		if comparisons[i].Name == name {
			return &comparisons[i], nil
		}
		names = append(names, comparisons[i].Name)
	}
	switch name {
	case ClaimsFigure:
		return &claimsFigure{papers: slices.Concat(smartClaims, chimeClaims, dexClaims, dolphinClaims)}, nil
	case ProcessorFigure:
		return &processorMeasure, nil
	case fiveCrash.name:
		return &fiveCrash, nil
	}
	return nil, fmt.Errorf("unknown figure %q: there are %s", name, strings.Join(append(names, ClaimsFigure, fiveCrash.name, ProcessorFigure), ", "))
}

// setByAll reports whether every experiment that compares something says itself what a flag would.
func setByAll(flag string) bool {
	return slices.Contains([]string{"design", "transport", "workload", "distribution", "scan", "switch", "cache-bytes", "cache-percent", "bulk-load"}, flag)
}

// defaults are how many servers of each kind, clients, records and operations an experiment has.
func defaults(base *bench.Run, given func(flag string) bool, servers, clients int, records uint64, ops int) {
	if !given("servers") {
		base.MemoryServers, base.ComputeServers = servers, servers
	}
	if !given("clients") {
		base.Clients = clients
	}
	if !given("records") {
		base.Records = records
	}
	if !given("ops") {
		base.Ops = ops
	}
}
