package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/dmindex/dmindex/client"
)

// index is what the exercise needs of the SDK's client.
type index interface {
	Get(ctx context.Context, key []byte) ([]byte, error)
	Put(ctx context.Context, key, value []byte) error
}

// load is a running exercise.
type load struct {
	index   index
	limit   time.Duration // of one operation
	writers [][]*entry    // the keys of each writer
	keys    []*entry      // of all writers

	mu     sync.Mutex
	phases []*phase // the last one is under way
}

// entry is a key that one writer counts up.
type entry struct {
	key   []byte
	acked atomic.Uint64 // the highest value whose write was acknowledged
	tried uint64        // the highest value that was sent; the writer's own
}

func newLoad(i index, prefix string, writers, keys, spread int, limit time.Duration) *load {
	l := &load{index: i, limit: limit}
	for w := range writers {
		var own []*entry
		for k := range keys {
			own = append(own, &entry{key: keyOf(prefix, w, k, keys, spread)})
		}
		l.writers = append(l.writers, own)
		l.keys = append(l.keys, own...)
	}
	l.begin("start")
	return l
}

// keyOf is a key of a writer. Those of each writer lie all over the lowest spread 256ths of the key
// space: with all of it, every compute server has some of them.
func keyOf(prefix string, writer, key, keys, spread int) []byte {
	return fmt.Appendf([]byte{byte(key * spread / keys)}, "%s%02d/%06d", prefix, writer, key)
}

// run writes and reads until ctx ends. Operations under way then are finished. rate is how many
// operations begin in a second, as far as they come back in time; 0 = no limit.
func (l *load) run(ctx context.Context, readers, rate int) {
	var wg sync.WaitGroup
	workers := len(l.writers) + readers
	for _, keys := range l.writers {
		wg.Go(func() {
			for pace := newPace(workers, rate); pace.wait(ctx); {
				l.write(keys[rand.IntN(len(keys))])
			}
		})
	}
	for range readers {
		wg.Go(func() {
			for pace := newPace(workers, rate); pace.wait(ctx); {
				l.read(l.keys[rand.IntN(len(l.keys))])
			}
		})
	}
	wg.Wait()
}

// pace lets one worker begin its share of the operations.
type pace struct {
	ticker *time.Ticker // nil: no limit
}

func newPace(workers, rate int) pace {
	if rate == 0 {
		return pace{}
	}
	return pace{ticker: time.NewTicker(time.Duration(workers) * time.Second / time.Duration(rate))}
}

// wait reports whether another operation may begin, once it may.
func (p pace) wait(ctx context.Context) bool {
	if p.ticker == nil {
		return ctx.Err() == nil
	}
	select {
	case <-ctx.Done():
		p.ticker.Stop()
		return false
	case <-p.ticker.C:
		return ctx.Err() == nil
	}
}

func (l *load) write(e *entry) {
	e.tried++
	value := binary.BigEndian.AppendUint64(nil, e.tried)
	if l.timed(func(ctx context.Context) error { return l.index.Put(ctx, e.key, value) }) {
		e.acked.Store(e.tried)
	}
}

func (l *load) read(e *entry) {
	least := e.acked.Load()
	var got uint64
	ok := l.timed(func(ctx context.Context) (err error) {
		got, err = l.value(ctx, e)
		return err
	})
	if ok && got < least {
		l.now().countStale(fmt.Errorf("%q: value %d, acknowledged before: %d", e.key, got, least))
	}
}

// value is what the index has for a key, 0 if it has nothing.
func (l *load) value(ctx context.Context, e *entry) (uint64, error) {
	b, err := l.index.Get(ctx, e.key)
	switch {
	case errors.Is(err, client.ErrNotFound):
		return 0, nil
	case err != nil:
		return 0, err
	case len(b) != 8:
		return 0, fmt.Errorf("value of %q has %d bytes", e.key, len(b))
	}
	return binary.BigEndian.Uint64(b), nil
}

// timed runs one operation and books it under the phase in which it ended.
func (l *load) timed(op func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(context.Background(), l.limit)
	defer cancel()
	begin := time.Now()
	err := op(ctx)
	l.now().count(time.Since(begin), err)
	return err == nil
}

// finish reads every acknowledged write back and prints what happened. It fails if anything failed,
// was stale or is lost.
func (l *load) finish(ctx context.Context, out io.Writer) error {
	l.begin("")
	lost, err := l.readBack(ctx)
	if err != nil {
		return err
	}
	for _, text := range lost {
		fmt.Fprintln(out, "LOST", text)
	}
	l.begin("written again")
	stuck, slowest := l.rewrite(out)
	l.begin("")
	failed, stale := 0, 0
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "phase\tseconds\toperations\tper second\tfailed\tstale\tp50\tp99\tmax\t")
	for i, p := range l.phases[:len(l.phases)-3] { // not what came after the load
		p.row(table, l.phases[i+1].begin)
		failed += p.failed
		stale += p.stale
	}
	table.Flush()
	for _, p := range l.phases {
		for _, err := range p.examples {
			fmt.Fprintf(out, "%s: %v\n", p.name, err)
		}
	}
	fmt.Fprintf(out, "failed requests: %d, stale reads: %d, keys read back: %d, acknowledged writes lost: %d\n", failed, stale, len(l.keys), len(lost))
	fmt.Fprintf(out, "keys written again: %d, failed: %d, slowest: %v\n", len(l.keys), stuck, slowest.Round(time.Millisecond))
	if failed+stale+len(lost)+stuck > 0 {
		return errors.New("not all went well")
	}
	return nil
}

// rewrite writes every key once more. It returns how many writes failed and how long the slowest
// took: who died during the load must not have left anything locked.
func (l *load) rewrite(out io.Writer) (stuck int, slowest time.Duration) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, keys := range l.writers {
		wg.Go(func() {
			for _, e := range keys {
				before, begin := e.acked.Load(), time.Now()
				l.write(e)
				took := time.Since(begin)
				mu.Lock()
				slowest = max(slowest, took)
				if e.acked.Load() == before {
					if stuck++; stuck <= maxExamples {
						fmt.Fprintf(out, "STUCK %q: not written within %v\n", e.key, took.Round(time.Millisecond))
					}
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return stuck, slowest
}

// readBack compares every key with what was acknowledged and lists what is lost.
func (l *load) readBack(ctx context.Context) (lost []string, err error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	next := make(chan *entry)
	for range 16 {
		wg.Go(func() {
			for e := range next {
				text, failed := l.check(ctx, e)
				mu.Lock()
				if failed != nil {
					err = failed
				}
				if text != "" {
					lost = append(lost, text)
				}
				mu.Unlock()
			}
		})
	}
	for _, e := range l.keys {
		next <- e
	}
	close(next)
	wg.Wait()
	return lost, err
}

// check says what is wrong with the key's value. A write that failed may or may not have taken
// effect.
func (l *load) check(ctx context.Context, e *entry) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, l.limit)
	defer cancel()
	got, err := l.value(ctx, e)
	if err != nil {
		return "", fmt.Errorf("read back %q: %w", e.key, err)
	}
	if least := e.acked.Load(); got < least || got > e.tried {
		return fmt.Sprintf("%q: value %d, acknowledged %d, last tried %d", e.key, got, least, e.tried), nil
	}
	return "", nil
}
