package client

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
)

// LoadOptions say how to load many pairs.
type LoadOptions struct {
	// Batch is how many pairs one worker puts at once. Default 256.
	Batch int
	// Parallel is how many workers put. Default 8.
	Parallel int
	// KeepExisting leaves a key that is there with its value; it counts as stored. So nothing that
	// somebody else stores is replaced. Default: the pair's value replaces it.
	KeepExisting bool
	// Progress is called after each batch with how many pairs are stored; by one goroutine at a
	// time. Default: not called.
	Progress func(stored uint64)
}

// Load puts all pairs, as fast as the servers take them, and returns how many were stored. It ends
// with the first error; pairs before it may then be missing, and pairs after it may be stored. Each
// pair must stay as it is until its batch is stored. Of pairs with the same key any may win.
func (c *Client) Load(ctx context.Context, pairs iter.Seq[Pair], o LoadOptions) (stored uint64, err error) {
	if o.Batch <= 0 {
		o.Batch = 256
	}
	if o.Parallel <= 0 {
		o.Parallel = 8
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	batches := make(chan []Pair)
	var workers sync.WaitGroup
	var count atomic.Uint64
	var telling sync.Mutex
	for range o.Parallel {
		workers.Go(func() {
			for batch := range batches {
				if ctx.Err() != nil {
					continue
				}
				if err := c.putMany(ctx, batch, o.KeepExisting); err != nil {
					stop(err)
					continue
				}
				count.Add(uint64(len(batch)))
				if o.Progress != nil {
					telling.Lock()
					o.Progress(count.Load())
					telling.Unlock()
				}
			}
		})
	}
	batch := make([]Pair, 0, o.Batch)
	for p := range pairs {
		if batch = append(batch, p); len(batch) == o.Batch {
			batches <- batch
			batch = make([]Pair, 0, o.Batch)
		}
		if ctx.Err() != nil {
			break
		}
	}
	if len(batch) > 0 {
		batches <- batch
	}
	close(batches)
	workers.Wait()
	return count.Load(), context.Cause(ctx)
}
