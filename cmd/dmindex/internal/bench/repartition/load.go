package repartition

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	sdk "github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/workload"
)

const (
	loadBatch = 2048 // pairs that a worker puts at once
	// of the key space that are loaded side by side, so that all servers have work
	loadParts = 32
	loadLimit = 2 * time.Minute // of a batch: loading is no part of what is measured
)

// load puts all records over the network. Within each part of the key space they come in the order
// of their keys: then a leaf is written back with all that it got since, and not once for almost
// each of its records.
func (r *Run) load(ctx context.Context) error {
	options := *r.Remote
	options.Limit = loadLimit
	c, err := sdk.Connect(ctx, options)
	if err != nil {
		return err
	}
	defer c.Close()
	r.say("loads %d records", r.Records)
	began := time.Now()
	told := began
	stored, err := c.Load(ctx, loadOrder(r.Records, loadParts, loadBatch), sdk.LoadOptions{Batch: loadBatch, Parallel: r.Clients, Progress: func(stored uint64) {
		if time.Since(told) > 10*time.Second {
			told = time.Now()
			r.say("%d records", stored)
		}
	}})
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	r.say("%d records in %v", stored, time.Since(began).Round(time.Second))
	return nil
}

// loadOrder has the records 0 to n-1 in the order in which they are loaded: a batch from each of so
// many parts of the key space, then the next from each, until all parts are through.
func loadOrder(n uint64, parts, batch int) iter.Seq[sdk.Pair] {
	scrambled := make([]uint64, n)
	for i := range scrambled {
		scrambled[i] = workload.Scramble(uint64(i))
	}
	slices.Sort(scrambled)
	k := workload.Uint64Keys
	return func(yield func(sdk.Pair) bool) {
		length := (len(scrambled) + parts - 1) / parts
		for from := 0; from < length; from += batch {
			for part := range slices.Chunk(scrambled, length) {
				for _, x := range part[min(from, len(part)):min(from+batch, len(part))] {
					if !yield(sdk.Pair{Key: k.AppendScrambled(nil, x), Value: workload.AppendValue(nil, 8, workload.Unscramble(x), 0)}) {
						return
					}
				}
			}
		}
	}
}
