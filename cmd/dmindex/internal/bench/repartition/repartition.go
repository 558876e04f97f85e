// Package repartition measures the addition of a compute server while clients read and write.
package repartition

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/dmindex/dmindex/api/config"
	sdk "github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/attach"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/workload"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/local"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Run is a run in which a compute server comes to those that there are, while clients read
// and write: figure 10 of DEX's paper. Everything is real: memory servers, compute servers with the
// ownership protocol, clients that reach them over the network, partition.Step, and the clock.
type Run struct {
	Design        string
	Transport     string // one of Transports but "sim"
	MemoryServers int
	From          int // compute servers that own ranges at first; one more comes
	Records       uint64
	Distribution  workload.Distribution
	CacheBytes    int // of each compute server
	Clients       int // that send one batch after the other
	Batch         int // operations of a batch; half of the batches write
	Seed          uint64
	Progress      io.Writer
	// an index that is there, in place of servers in this process; nil = these. It says what
	// CacheBytes, MemoryServers and From are by itself
	Remote *sdk.Options
	Loaded bool // with Remote: the records are there, of an earlier run

	// load before anything is measured, measured before the change, and after it
	Settle, Before, After time.Duration
}

// Result is what such a run measured.
type Result struct {
	Run       *Run
	Scaled    local.Scaled
	At        time.Duration // when the change began, since the measurement did
	Slices    []uint64      // operations that were answered, in each SliceLength of the measurement
	Batches   uint64
	Failed    uint64 // batches
	FirstErr  error  // of those
	Longest   time.Duration
	Checked   uint64  // items whose last acknowledged write was looked for at the end
	CacheUsed uint64  // bytes of the caches of all compute servers, before the change
	HitRatio  float64 // the share of operations that found their leaf there
	// from the change on until throughput is 90 % of what it was before; 0 = it never was
	Recovered time.Duration
}

// SliceLength is how long throughput is summed up for.
const SliceLength = 50 * time.Millisecond

// Of records that are bulk loaded, in bytes: an item's part of a leaf that is 80 % full, and its
// part of inner nodes.
const loadedBytes = 34

// Check refuses runs that make no sense.
func (r *Run) Check() error {
	design, err := index.Lookup(r.Design)
	switch {
	case err != nil:
		return err
	case design.SharesAll:
		return fmt.Errorf("--repartition: the ranges of design %s have no owners; try --design dex", r.Design)
	case r.Transport == "sim" || !slices.Contains(bench.Transports, r.Transport):
		return fmt.Errorf("--repartition happens in real time: give --transport shm, tcp or ibv, not %q", r.Transport)
	case r.Records < 1000 || r.Records > 1<<32-1:
		return fmt.Errorf("%d records: 1000 to %d are possible", r.Records, uint64(1<<32-1))
	case r.Remote == nil && (r.From < 1 || r.From > 63 || r.MemoryServers < 1 || r.MemoryServers > 64):
		return fmt.Errorf("%d memory servers and %d compute servers: 1 to 64 and 1 to 63 are possible", r.MemoryServers, r.From)
	case r.Clients < 1 || r.Clients > 1000 || r.Batch < 1 || r.Batch > 1000:
		return fmt.Errorf("%d clients with batches of %d: 1 to 1000 of each are possible", r.Clients, r.Batch)
	}
	if r.Remote != nil {
		return nil
	}
	need := r.memoryNeeded()*uint64(r.MemoryServers) + uint64(r.CacheBytes)*uint64(r.From+1) + r.Records*12
	if available, ok := bench.AvailableMemory(); ok && need > available {
		return fmt.Errorf("%d records and %d caches of %s need about %s of memory, %s are free on this machine: give fewer --records", r.Records, r.From+1, bench.FormatBytes(uint64(r.CacheBytes)), bench.FormatBytes(need), bench.FormatBytes(available))
	}
	return nil
}

// memoryNeeded is what one memory server has to hold.
func (r *Run) memoryNeeded() uint64 {
	return r.Records*loadedBytes*5/4/uint64(r.MemoryServers) + bench.LargeChunk*uint64(4*r.From+12) + 16<<20
}

// Do does the run.
func (r *Run) Do(ctx context.Context) (*Result, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	if r.Remote != nil {
		return r.doRemote(ctx)
	}
	l, err := local.Start(local.Config{
		Listen: "127.0.0.1:0", ListenRPC: "127.0.0.1:0", Transport: r.Transport, Design: r.Design, MemoryServers: r.MemoryServers, ComputeServers: r.From + 1, Owners: r.From,
		CacheBytes: r.CacheBytes, MemoryBytes: r.memoryNeeded(), KeyType: config.KeyUint64, MaxKeyBytes: 8, MaxValueBytes: 8, Routing: config.RoutingOwner,
		Version: "bench", Logger: slog.New(slog.DiscardHandler), Fill: r.fill,
	})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- l.Run(ctx, func() { close(ready) }) }()
	var result *Result
	select {
	case <-ready:
		result, err = r.measureLocal(ctx, l)
	case err := <-ended:
		return nil, fmt.Errorf("repartition: %w", err)
	}
	stop()
	if err = errors.Join(err, <-ended); err != nil {
		return nil, fmt.Errorf("repartition: %w", err)
	}
	return result, nil
}

// say writes a line about what goes on.
func (r *Run) say(format string, args ...any) {
	fmt.Fprintf(r.Progress, "repartition, caches of %s: %s\n", bench.FormatBytes(uint64(r.CacheBytes)), fmt.Sprintf(format, args...))
}

// fill loads all records at once, as a client of its own that then gives everything back.
func (r *Run) fill(ctx context.Context, ix *config.Index) (err error) {
	m, err := attach.New(ix, "loader", attach.Fabric{Provider: r.Transport}, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	x, err := m.Open(0, pool.DefaultLimit)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	owner := x.Index.(index.Partitioned)
	if err := owner.Take(pool.Holding{Epoch: 1}); err != nil {
		return err
	}
	r.say("loads %d records", r.Records)
	scrambled := make([]uint64, r.Records)
	for i := range scrambled {
		scrambled[i] = workload.Scramble(uint64(i))
	}
	slices.Sort(scrambled)
	k := workload.Uint64Keys
	var key, value []byte
	err = x.BulkLoad(func(yield func(key, value []byte) bool) error {
		for _, n := range scrambled {
			key, value = k.AppendScrambled(key[:0], n), workload.AppendValue(value[:0], 8, workload.Unscramble(n), 0)
			if !yield(key, value) {
				break
			}
		}
		return ctx.Err()
	}, 2)
	if err != nil {
		return err
	}
	_, err = owner.Give(nil, nil)
	return err
}

// measureLocal is measure with the servers of this process.
func (r *Run) measureLocal(ctx context.Context, l *local.Local) (*Result, error) {
	c, err := sdk.Connect(ctx, sdk.Options{Endpoints: l.RPC[:r.From], Insecure: true})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return r.measure(ctx, c, func(ctx context.Context) (local.Scaled, error) { return l.Scale(ctx, r.From+1) })
}

// measure lets clients work, and scales during it.
func (r *Run) measure(ctx context.Context, c *sdk.Client, scale func(context.Context) (local.Scaled, error)) (*Result, error) {
	r.say("fills the caches")
	if err := r.warm(ctx, c); err != nil {
		return nil, err
	}
	d := newDrive(r, c)
	d.start(ctx)
	r.say("%d clients send batches of %d; %v until it is measured", r.Clients, r.Batch, r.Settle)
	res := &Result{Run: r}
	err := wait(ctx, r.Settle)
	if err == nil {
		d.measureFrom(time.Now())
		if err = d.before(ctx, res); err == nil {
			if res.Scaled, err = scale(ctx); err == nil {
				res.At = d.since() - res.Scaled.Took
				r.say("%d ranges moved in %v", movesOf(&res.Scaled), res.Scaled.Took.Round(time.Millisecond))
				err = wait(ctx, r.After)
			}
		}
	}
	d.stop()
	if err != nil {
		return nil, err
	}
	d.report(res)
	if res.Checked, err = d.check(ctx); err != nil {
		return nil, fmt.Errorf("content: %w", err)
	}
	return res, nil
}

// warm looks keys up all over the key space, about two for each leaf.
func (r *Run) warm(ctx context.Context, c *sdk.Client) error {
	const batch = 500
	n := r.Records / 12
	step := ^uint64(0) / n
	return inParallel(r.Clients, func(worker int) error {
		k, list := workload.Uint64Keys, make([][]byte, 0, batch)
		for i := uint64(worker); i < n; i += uint64(r.Clients) {
			if list = append(list, k.AppendScrambled(nil, i*step)); len(list) == batch || i+uint64(r.Clients) >= n {
				if _, err := c.GetMany(ctx, list); err != nil {
					return err
				}
				list = list[:0]
			}
		}
		return nil
	})
}

// before measures what is measured before the change.
func (d *drive) before(ctx context.Context, res *Result) error {
	_, hits, err := caches(ctx, d.c)
	if err != nil {
		return err
	}
	answered := d.answered.Load()
	if err := wait(ctx, d.r.Before); err != nil {
		return err
	}
	used, now, err := caches(ctx, d.c)
	res.CacheUsed, res.HitRatio = used, share(now-min(now, hits), d.answered.Load()-answered)
	return err
}

// caches says what the caches of all compute servers take, and how many operations have found their
// leaf there, as the servers say: all of them, of which a busy one is asked again.
func caches(ctx context.Context, c *sdk.Client) (bytes, hits uint64, err error) {
	const tries = 5
	for range tries {
		bytes, hits, err = 0, 0, ctx.Err()
		for _, s := range c.Status(ctx) {
			if err = errors.Join(err, s.Err); s.Err == nil {
				bytes += s.Reply.CacheBytes
				hits += s.Reply.Load.GetCacheHits()
			}
		}
		if err == nil {
			break
		}
	}
	return bytes, hits, err
}

// share is hits of operations. Both are counted by themselves, while some are under way.
func share(hits, operations uint64) float64 {
	return min(1, float64(hits)/float64(max(1, operations)))
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
