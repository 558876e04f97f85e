package client

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
)

// LoadOptions say how to load many pairs.
type LoadOptions struct {
	// Batch is how many pairs one worker takes at once, as they follow each other, but no more than
	// 256 KiB of them; it stores them some at a time. Default 1024.
	Batch int
	// Parallel is how many workers put. Default 16.
	Parallel int
	// KeepExisting leaves a key that is there with its value; it counts as stored. So nothing that
	// somebody else stores is replaced. Default: the pair's value replaces it.
	KeepExisting bool
	// Progress is called now and then with how many pairs are stored; by one goroutine at a time.
	// Default: not called.
	Progress func(stored uint64)
}

// Load puts all pairs, as fast as the servers take them, and returns how many were stored. It ends
// with the first error; pairs before it may then be missing, and pairs after it may be stored. Each
// pair must stay as it is until its batch is stored. Of pairs with the same key any may win. When
// Load ends, by a panic of pairs too, nothing of it is under way.
func (c *Client) Load(ctx context.Context, pairs iter.Seq[Pair], o LoadOptions) (stored uint64, err error) {
	w := c.watch(ctx, "load", 0)
	defer func() { w.call.Keys = int(stored); w.reportCall(err) }()
	if o.Batch <= 0 {
		o.Batch = 1024
	}
	if o.Parallel <= 0 {
		o.Parallel = 16
	}
	began := c.view.Load() // all pairs go into one incarnation of the index
	ctx, stop := context.WithCancel(ctx)
	batches := make(chan []Pair)
	var workers sync.WaitGroup
	finish := sync.OnceFunc(func() { close(batches); workers.Wait() })
	defer finish()
	defer stop() // first: what is under way when pairs panics ends early
	var failed sync.Once
	var count atomic.Uint64
	var telling sync.Mutex
	told := uint64(0)
	for range o.Parallel {
		workers.Go(func() {
			for batch := range batches {
				// Once ctx has ended, this sends nothing and says so as any operation.
				failure := c.putInTurn(ctx, began, batch, o.KeepExisting, func(stored int) {
					n := count.Add(uint64(stored))
					if o.Progress != nil {
						telling.Lock()
						defer telling.Unlock()
						told = max(told, n)
						o.Progress(told)
					}
				})
				if failure != nil {
					failed.Do(func() { err = failure })
					stop()
				}
			}
		})
	}
	batch, size := make([]Pair, 0, o.Batch), 0
	for p := range pairs {
		batch, size = append(batch, p), size+len(p.Key)+len(p.Value)
		if ctx.Err() != nil {
			break // p is not stored, so the error of its batch tells of what was left out
		}
		if len(batch) == o.Batch || size >= loadBytes {
			batches <- batch
			batch, size = make([]Pair, 0, o.Batch), 0
		}
	}
	if len(batch) > 0 {
		batches <- batch
	}
	finish()
	return count.Load(), err
}

// loadBytes bounds the keys and values of a batch of Load.
const loadBytes = 256 << 10

// loadCall is how many pairs of Load go to a server in one call: as many as a server looks at
// together, since the leaves for those that are new are made together.
const loadCall = 256

// putInTurn stores pairs, at each server loadCall of them at a time and in their order, and says so
// each time. Pairs that are sorted lie next to each other in the index. Calls side by side would
// change the same leaf, wait for each other there, and divide it in the middle instead of at its
// end. Batches that run side by side are some way apart.
func (c *Client) putInTurn(ctx context.Context, began *view, pairs []Pair, keep bool, progress func(stored int)) error {
	tasks, err := putTasks(pairs, keep)
	if err != nil {
		return err
	}
	v := c.view.Load()
	usable, lists := make([]usability, len(v.m.Servers)), make([][]*task, len(v.m.Servers))
	for _, t := range tasks {
		c.assignServer(v, usable, t)
		lists[t.at] = append(lists[t.at], t)
	}
	turn := make([]*task, 0, min(len(tasks), loadCall*len(lists)))
	for {
		turn = turn[:0]
		for i, list := range lists {
			n := min(len(list), loadCall)
			turn, lists[i] = append(turn, list[:n]...), list[n:]
		}
		if len(turn) == 0 {
			return nil
		}
		c.runBy(ctx, began, turn, loadCall)
		if err := c.stored(turn); err != nil {
			return err
		}
		progress(len(turn))
	}
}
