// Package bench measures designs of package index: it lets clients of a simulated or real cluster
// work on a stream of operations, checks the content afterwards against what the stream wrote, and
// returns what it cost. The packages below make streams (workload), write results (report), repeat
// the papers' experiments (papers), and measure a change of compute servers (repartition).
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/workload"
	"github.com/dmindex/dmindex/pkg/index"
)

// Transports that a run can have: "sim" is the NIC model in virtual time.
var Transports = []string{"sim", "shm", "tcp", "ibv"}

// Run says what to measure. It is done once, by Do.
type Run struct {
	Label     string // what it is called in tables and plots; "" = the design and what is off of it
	Design    string
	Transport string // one of Transports
	Workload  workload.Workload
	// Distribution of the items that operations are on.
	Distribution workload.Distribution

	Records uint64 // items that are there at first
	Ops     int    // operations that are measured
	Warmup  int    // operations before those
	Clients int    // sessions, of all compute servers together

	// the records come by one bulk load, which makes nodes 80 % full; else by inserts of all
	// clients
	BulkLoad bool

	MemoryServers, ComputeServers int

	MemoryThreads int // of each simulated memory server, for calls; 0 = as many as the papers' have

	Uint64     bool // keys; else byte strings of KeyBytes
	KeyBytes   int
	ValueBytes int
	ScanFrom   int // shortest and longest scan
	ScanTo     int
	CacheBytes int // of each compute server; 0 = the design's default, or by CachePercent
	// CachePercent is the cache of each compute server in percent of the bytes of all leaves, as
	// they are after the load; 0 = by CacheBytes.
	CachePercent float64
	NodeBytes    int // of the design; 0 = its default

	Neighbourhood int // of CHIME; 0 = its default
	InlineBytes   int // longest value that lies in a leaf; 0 = the design's default
	Switches      map[string]bool
	Seed          uint64
	// how many times the measured processor time simulated operations take; 0 = 1
	ProcessorScale float64
	// million messages a second that the NIC of a simulated memory server passes in each direction;
	// 0 = the model's
	MessageRate float64

	Progress io.Writer // lines of what goes on
	Markdown bool      // how tables are written; else aligned text
}

// Result is what a run measured.
type Result struct {
	Run        *Run
	Throughput float64 // operations a second, of the cluster's time
	Latency    Histogram
	Took       time.Duration // of the cluster's time
	Ops        uint64
	Missed     uint64 // lookups and updates of items that were not there, as was to be expected
	Stats      index.Stats
	// of this process, while it measured: clients, and memory servers or the simulator
	CPU       time.Duration
	Calls     uint64  // two-sided calls: chunks
	ItemBytes float64 // memory of nodes for each item that is there in the end
	// operations of the busiest compute server over the mean, where ranges have owners; else 1
	Skew float64
	// READs of an operation with perfect static caches; 0 = none are needed, or it makes no sense
	Optimum optima
	Apart   float64 // operations a second of all compute servers, each while it had work
}

// Do does the run. ctx ends it early.
func (r *Run) Do(ctx context.Context) (result *Result, err error) {
	err = r.inCluster(ctx, func(b *bencher) (err error) {
		result, err = b.all()
		return err
	})
	return result, err
}

// inCluster calls do in the world of a cluster that is as the run says, and ends the cluster.
func (r *Run) inCluster(ctx context.Context, do func(b *bencher) error) error {
	design, err := r.check()
	if err != nil {
		return err
	}
	k, err := workload.NewKeys(r.KeyBytes)
	if err != nil {
		return err
	}
	b := newBencher(ctx, r, k)
	if !design.SharesAll {
		b.owners = &owners{keys: k, n: r.ComputeServers}
	}
	if r.Transport == "sim" {
		b.cluster, err = newSimulated(r, design)
	} else {
		b.cluster, err = newReal(r, design)
	}
	if err != nil {
		return err
	}
	err = b.cluster.run(func() error { return do(b) })
	if errors.Is(err, index.ErrPoolFull) {
		err = fmt.Errorf("%w (each memory server had %s; give more of them with --servers, or fewer --ops)", err, FormatBytes(r.memoryNeeded()))
	}
	if err = errors.Join(err, b.cluster.close()); err != nil {
		return fmt.Errorf("bench %s over %s, workload %s: %w", r.Design, r.Transport, r.Workload.Name, err)
	}
	return nil
}

// options of the index, with so many bytes of cache.
func (r *Run) options(cache int) index.Options {
	return index.Options{Uint64: r.Uint64, MaxKeyBytes: r.KeyBytes, MaxValueBytes: r.ValueBytes, CacheBytes: cache, NodeBytes: r.NodeBytes, Neighbourhood: r.Neighbourhood, InlineBytes: r.InlineBytes, Switches: r.Switches}
}

// bencher is a run under way.
type bencher struct {
	ctx     context.Context // ends the run early
	run     *Run
	keys    workload.Keys
	stream  *workload.Stream
	present workload.ItemSet // of items that were not there at first: who is there since
	// behind says of each operation that gave its item a value how many were begun, itself
	// included, from it on until it was answered: those after them began when it was over. 0 = it
	// gave it none.
	behind  []uint32
	doubt   map[uint64]bool // operations whose client died before it had an answer
	last    []uint64        // by item, for the check; see findLast
	cluster cluster
	members []member
	cache   int     // bytes of each compute server's, once it is loaded; 0 = the design's default
	owners  *owners // nil = every compute server serves every key
}

func newBencher(ctx context.Context, r *Run, k workload.Keys) *bencher {
	s := workload.NewStream(r.Workload, r.Distribution, r.Records, r.Warmup+r.Ops, r.ScanFrom, r.ScanTo, 2*r.Clients, r.Seed)
	return &bencher{ctx: ctx, run: r, keys: k, stream: s, present: workload.NewItemSet(s.Items), behind: make([]uint32, len(s.Ops)), doubt: map[uint64]bool{}}
}

// all is what happens in the cluster's world.
func (b *bencher) all() (_ *Result, err error) {
	defer func() { err = errors.Join(err, b.closeMembers()) }()
	if err := b.prepare(); err != nil {
		return nil, err
	}
	if _, err := b.part("warm up", 0, b.run.Warmup); err != nil {
		return nil, err
	}
	before, chunks, err := b.stats(b.members)
	if err != nil {
		return nil, err
	}
	cpu, err := cpuTime()
	if err != nil {
		return nil, err
	}
	p, err := b.part("measure", b.run.Warmup, len(b.stream.Ops))
	if err != nil {
		return nil, err
	}
	cpuAfter, err := cpuTime()
	if err != nil {
		return nil, err
	}
	after, chunksAfter, err := b.stats(b.members)
	if err != nil {
		return nil, err
	}
	res := &Result{Run: b.run, Throughput: p.throughput(), Took: p.took, Ops: uint64(b.run.Ops), Missed: p.missed,
		Stats: less(after, before), CPU: cpuAfter - cpu, Calls: chunksAfter - chunks, Skew: skew(p.queues), Apart: p.apart()}
	res.Latency = p.latency
	if res.Optimum, err = b.optimum(); err != nil {
		return nil, err
	}
	res.ItemBytes, err = b.check()
	return res, err
}

// stats of compute servers together. They are exact while no session is open.
func (b *bencher) stats(members []member) (sum index.Stats, chunks uint64, err error) {
	for _, m := range members {
		s := m.Stats()
		sum.Verbs.Sum(&s.Verbs)
		sum.Log.Sum(&s.Log)
		sum.Operations += s.Operations
		sum.Retries += s.Retries
		sum.LockConflicts += s.LockConflicts
		sum.Handovers += s.Handovers
		sum.Delegated += s.Delegated
		sum.Combined += s.Combined
		sum.Speculated += s.Speculated
		sum.SpeculatedRight += s.SpeculatedRight
		sum.CacheBytes += s.CacheBytes
		sum.CacheHits += s.CacheHits
		sum.CacheMisses += s.CacheMisses
	}
	chunks, err = b.cluster.chunks()
	return sum, chunks, err
}

// less is what was added between two stats. The size of the cache is the last one.
func less(after, before index.Stats) index.Stats {
	after.Verbs = after.Verbs.Sub(&before.Verbs)
	after.Log = after.Log.Sub(&before.Log)
	after.Operations -= before.Operations
	after.Retries -= before.Retries
	after.LockConflicts -= before.LockConflicts
	after.Handovers -= before.Handovers
	after.Delegated -= before.Delegated
	after.Combined -= before.Combined
	after.Speculated -= before.Speculated
	after.SpeculatedRight -= before.SpeculatedRight
	after.CacheHits -= before.CacheHits
	after.CacheMisses -= before.CacheMisses
	return after
}

// cpuTime is what this process had of processors. On a machine that others use it says more than
// the clock.
func cpuTime() (time.Duration, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("read the time on processors: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}
