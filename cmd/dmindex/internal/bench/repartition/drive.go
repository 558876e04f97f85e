package repartition

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/workload"
)

// drive is the clients of a repartition run. Items are drawn by their popularity among all. Each
// client writes items of its own (those whose number modulo the number of clients is its own), one
// batch after the other, so the last write of an item that was answered is known.
type drive struct {
	r *Run
	c *sdk.Client
	// by item: the last batch of its client that wrote it and was answered; 0 = none
	written   []uint32
	uncertain workload.ItemSet // items that a batch wrote which failed

	began    atomic.Int64 // of the measurement, in Unix nanoseconds; 0 = not yet
	slices   []atomic.Uint64
	batches  atomic.Uint64
	answered atomic.Uint64 // operations, also before the measurement
	failed   atomic.Uint64
	longest  atomic.Int64
	mu       sync.Mutex
	firstErr error
	workers  sync.WaitGroup
	end      context.CancelFunc
}

// mostSlices bounds how long is measured.
const mostSlices = 20 * 60 * 5

func newDrive(r *Run, c *sdk.Client) *drive {
	return &drive{r: r, c: c, written: make([]uint32, r.Records), uncertain: workload.NewItemSet(r.Records), slices: make([]atomic.Uint64, mostSlices)}
}

func (d *drive) start(ctx context.Context) {
	ctx, d.end = context.WithCancel(ctx)
	for w := range d.r.Clients {
		d.workers.Go(func() { d.work(ctx, w) })
	}
}

// stop ends the clients, each after the batch that it has under way.
func (d *drive) stop() {
	d.end()
	d.workers.Wait()
}

func (d *drive) measureFrom(t time.Time) { d.began.Store(t.UnixNano()) }
func (d *drive) since() time.Duration    { return time.Since(time.Unix(0, d.began.Load())) }

// work sends batches until the context ends: every other one writes.
func (d *drive) work(ctx context.Context, w int) {
	random := rand.New(rand.NewPCG(d.r.Seed, uint64(w)))
	choose, k := workload.NewChooser(d.r.Distribution, d.r.Records), workload.Uint64Keys
	items := make([]uint64, d.r.Batch)
	for batch := uint32(1); ctx.Err() == nil; batch++ {
		write := batch%2 == 0
		for i := range items {
			items[i] = choose.Next(random, d.r.Records)
			if write {
				items[i] = d.own(items[i], w)
			}
		}
		begin := time.Now()
		err := d.send(&k, items, batch, write)
		d.count(begin, len(items), err)
	}
}

// own is an item of a client beside a given one.
func (d *drive) own(item uint64, w int) uint64 {
	n := uint64(d.r.Clients)
	if item = item - item%n + uint64(w); item >= d.r.Records {
		item -= n
	}
	return item
}

// send does a batch. It does not end early: what it writes is to be known.
func (d *drive) send(k *workload.Keys, items []uint64, batch uint32, write bool) error {
	if write {
		pairs := make([]sdk.Pair, len(items))
		for i, item := range items {
			pairs[i] = sdk.Pair{Key: k.Append(nil, item), Value: workload.AppendValue(nil, 8, item, uint64(batch))}
		}
		err := d.c.PutMany(context.Background(), pairs)
		d.wrote(items, batch, err)
		return err
	}
	list := make([][]byte, len(items))
	for i, item := range items {
		list[i] = k.Append(nil, item)
	}
	values, err := d.c.GetMany(context.Background(), list)
	if err != nil {
		return err
	}
	for i, item := range items {
		if _, ok := workload.WriterOf(values[i], 8, item, false); !ok {
			return fmt.Errorf("item %d: %w: %x", item, workload.ErrForeign, values[i])
		}
	}
	return nil
}

// wrote notes how a batch ended that wrote items.
func (d *drive) wrote(items []uint64, batch uint32, err error) {
	for _, item := range items {
		if err == nil {
			d.written[item] = batch
		} else {
			d.uncertain.Add(item)
		}
	}
}

// count adds a batch to what is measured.
func (d *drive) count(begin time.Time, n int, err error) {
	began := d.began.Load()
	if err != nil { // before that, too
		d.failed.Add(1)
		d.mu.Lock()
		if d.firstErr == nil {
			d.firstErr = err
		}
		d.mu.Unlock()
		return
	}
	d.answered.Add(uint64(n))
	if began == 0 || begin.UnixNano() < began {
		return
	}
	took := time.Since(begin)
	if slice := d.since() / SliceLength; slice >= 0 && int(slice) < len(d.slices) {
		d.slices[slice].Add(uint64(n))
	}
	d.batches.Add(1)
	for {
		most := d.longest.Load()
		if int64(took) <= most || d.longest.CompareAndSwap(most, int64(took)) {
			return
		}
	}
}

// report adds what was counted.
func (d *drive) report(res *Result) {
	last := 0
	for i := range d.slices {
		if d.slices[i].Load() > 0 {
			last = i
		}
	}
	for i := range last { // the last one is not whole
		res.Slices = append(res.Slices, d.slices[i].Load())
	}
	res.Batches, res.Failed, res.FirstErr, res.Longest = d.batches.Load(), d.failed.Load(), d.firstErr, time.Duration(d.longest.Load())
	res.Recovered = res.recovery()
}

// check looks for the last acknowledged write of every item that was written.
func (d *drive) check(ctx context.Context) (checked uint64, err error) {
	var n atomic.Uint64
	err = inParallel(d.r.Clients, func(w int) error {
		const batch = 500
		k := workload.Uint64Keys
		var list [][]byte
		var items []uint64
		look := func() error {
			values, err := d.c.GetMany(ctx, list)
			if err != nil {
				return err
			}
			for i, item := range items {
				if err := d.judge(item, values[i]); err != nil {
					return err
				}
			}
			n.Add(uint64(len(items)))
			list, items = list[:0], items[:0]
			return nil
		}
		for item := uint64(w); item < d.r.Records; item += uint64(d.r.Clients) {
			if d.written[item] == 0 && !d.uncertain.Has(item) {
				continue
			}
			if list, items = append(list, k.Append(nil, item)), append(items, item); len(items) == batch {
				if err := look(); err != nil {
					return err
				}
			}
		}
		if len(items) == 0 {
			return nil
		}
		return look()
	})
	return n.Load(), err
}

// judge reports whether value is what an item must have in the end: that of the last batch that was
// answered, or of a later one that failed.
func (d *drive) judge(item uint64, value []byte) error {
	writer, ok := workload.WriterOf(value, 8, item, true)
	if !ok {
		return fmt.Errorf("item %d: %w: %x", item, workload.ErrForeign, value)
	}
	if uint32(writer) != d.written[item] && (uint32(writer) < d.written[item] || !d.uncertain.Has(item)) {
		return fmt.Errorf("item %d: the value of batch %d is there, and %w: batch %d was answered", item, writer, workload.ErrLost, d.written[item])
	}
	return nil
}

// inParallel calls do for each of n workers, and joins their errors.
func inParallel(n int, do func(worker int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for w := range n {
		all.Go(func() { errs[w] = do(w) })
	}
	all.Wait()
	return errors.Join(errs...)
}
