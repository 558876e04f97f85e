package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/repartition"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/workload"
)

// doRepartition does figure 10 of DEX's paper, with each size of the caches. What was not given is
// the paper's, or as much of it as takes a few minutes.
func (f *benchFlags) doRepartition(ctx context.Context, out, progress io.Writer) error {
	for _, name := range []string{"figure", "workload", "scan", "switch", "cache-bytes", "cache-percent", "bulk-load", "key", "value", "ops", "warmup"} {
		if f.given(name) {
			return fmt.Errorf("--%s: --repartition says itself what it measures; leave it out", name)
		}
	}
	base := repartition.Run{
		Design: "dex", Transport: "shm", MemoryServers: 2, From: 3, Records: 10_000_000, Clients: 8, Batch: 64, Seed: f.seed, Progress: progress,
		Settle: 4 * time.Second, Before: 2 * time.Second, After: 6 * time.Second,
	}
	if f.given("design") {
		base.Design = f.designs[0]
	}
	if f.given("transport") {
		base.Transport = f.transports[0]
	}
	if f.secret != "" {
		if len(f.repartition) != 1 || f.given("servers") || f.given("design") || f.given("transport") {
			return fmt.Errorf("--secret: the index has its servers, design and transport; give the size of its caches alone, as in --repartition=64Mi")
		}
		options, err := client.FromSecret(f.secret)
		if err != nil {
			return err
		}
		base.Remote, base.Transport, base.Loaded = &options, "tcp", f.loaded
	} else if f.loaded {
		return fmt.Errorf("--loaded: servers of this process have nothing before they are loaded; leave it out, or name an index with --secret")
	}
	if f.given("clients") {
		base.Clients = f.clients[0]
	}
	if f.given("records") {
		base.Records = f.records
	}
	if len(f.designs) != 1 || len(f.transports) != 1 || len(f.clients) != 1 {
		return fmt.Errorf("--repartition takes one design, one transport and one number of clients")
	}
	var err error
	if f.given("servers") {
		if base.MemoryServers, base.From, err = twoNumbers(f.servers, "x"); err != nil {
			return fmt.Errorf("--servers %q: write memory servers x compute servers before the change, as in 2x3", f.servers)
		}
	}
	if base.Distribution, err = workload.ParseDistribution(orZipfian(f.distribution)); err != nil {
		return err
	}
	var runs []*repartition.Run
	for _, text := range f.repartition {
		r := base
		var cache sizeFlag
		if err := cache.Set(text); err != nil {
			return fmt.Errorf("--repartition: %w", err)
		}
		r.CacheBytes = int(cache)
		if err := r.Check(); err != nil {
			return err
		}
		runs = append(runs, &r)
	}
	var results []*repartition.Result
	for _, r := range runs {
		res, err := r.Do(ctx)
		if err != nil {
			return err
		}
		results = append(results, res)
	}
	if err := repartition.WriteTable(out, results); err != nil {
		return err
	}
	return toFiles(f, results, repartition.WriteJSON, repartition.WriteHTML)
}

func orZipfian(text string) string {
	if text == "" {
		return "zipfian:0.99"
	}
	return text
}
