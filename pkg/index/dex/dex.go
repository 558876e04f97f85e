// Package dex is DEX, a B+-tree whose key ranges have owners (Lu, Huang, Liang, Wang, Lo: PVLDB
// 17(10), 2024). Only the owner of a range uses its leaves. It keeps leaves in its cache and
// changes them there. It appends a record of each change to its redo log before the change is
// answered, and writes the leaf back later. Inner nodes are shared by all clients. Package
// slottedtree changes the structure of the tree, in the memory servers. docs/design/dex.md has the
// protocol.
package dex

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/budget"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/bufferpool"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/offload"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/rowcache"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/valuecache"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/wal"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/ranges"
	"github.com/dmindex/dmindex/pkg/index/internal/slottedtree"
	"github.com/dmindex/dmindex/pkg/keyrange"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/redo"
)

// Name of the design.
const Name = "dex"

// design is what the tree knows of it. Numbers 2, 3 and 5 are for SMART, CHIME and Dolphin.
var design = index.Design{Name: Name, Number: 4, Switches: Switches, Executor: new(offload.Executor)}

func init() {
	d := design
	d.Open = Open
	index.Register(d)
}

// DefaultCacheBytes bounds the cache of a client, leaves and inner nodes, unless Options say
// otherwise.
const DefaultCacheBytes = 64 << 20

// mostLog bounds the ring of the redo log. The ring has half a chunk if that is less: the other
// half has room for the log of who comes after a client that died, in a full pool, too. The larger
// the ring, the more changes of a leaf share a write-back, and the longer a replay. Clients of
// releases before had formerLog at most.
const (
	mostLog   = 16 << 20
	formerLog = 4 << 20
)

// dex is an open index of one client.
type dex struct {
	tree   *slottedtree.Tree
	pool   *pool.Pool
	env    env.Env
	lay    *fence.Layout
	with   techniques
	hash   item.Hash // of keys, for what this client keeps of them
	cache  *bufferpool.Pool
	rows   rowcache.Cache
	values valuecache.Cache
	budget budget.Budget
	log    *redo.Log
	ref    []byte
	low    []byte // the lowest key

	ranges atomic.Pointer[ranges.Table]
	// held by Take, Give and BulkLoad, which change ranges or need all of them
	moves     env.Mutex
	wal       wal.Log
	presplits presplits
	garbage   blocks.Garbage                        // that this client's changes replaced
	torn      struct{ within, locked atomic.Int64 } // slots that replays repaired

	fetched atomic.Uint64 // leaves that were READ because the cache did not have them

	cleaner   pageCleaner
	collector redo.Collector
	mu        env.Mutex
	open      int // sessions
	closed    bool
}

// Open opens the index in p, or creates it. The caller keeps the pool. This client may use no key
// before [dex.Take].
func Open(p *pool.Pool, o index.Options) (index.Index, error) {
	with, err := techniquesOf(o.Switches)
	if err != nil {
		return nil, fmt.Errorf("open a dex index: %w", err)
	}
	x := &dex{pool: p, env: p.Env(), with: with, mu: p.Env().NewMutex(), moves: p.Env().NewMutex()}
	x.with.offloading = with.offloading && p.Calls()
	x.ranges.Store(ranges.Of())
	x.garbage.Start(x.env)
	bound := o.CacheBytes
	if bound == 0 {
		bound = DefaultCacheBytes
	}
	o.CacheBytes = bound / budget.InnerTable
	o.Switches = nil // the tree's are Sherman's
	config := slottedtree.Config{Design: design, Options: o, Cache: x, ArenaBytes: offload.CallBytes}
	if with.pathAware {
		config.Paths = x
	}
	if x.tree, err = slottedtree.Open(p, config); err != nil {
		return nil, err
	}
	x.lay = x.tree.Layout()
	if x.low = []byte{}; x.lay.Uint64 {
		x.low = make([]byte, 8)
	}
	x.hash = item.HashOf(x.lay.Secret)
	p.SetMarks(marks)
	shares := with.sharesOf(x.lay)
	frames := bound - x.budget.Start(x.env, shares, x.tree, bound, x.lay.NodeBytes)
	if x.lay.Blocks && with.entries {
		frames -= x.values.Start(x.env, x.hash, bound, x.lay.MaxValue, x.budget.Moves())
	}
	var inners bufferpool.InnerNodes
	if with.pathAware {
		inners = x.tree
	}
	var room rowcache.Room
	x.cache, room = cachesOf(x.env, x.with, shares, frames, x.lay.NodeBytes, inners, x.budget.LeafGhosts())
	x.rows.Start(x.env, x.hash, room)
	x.budget.Serve(x.cache, &x.rows, &x.values)
	if x.log, err = redo.CreateInTime(p, logRings(p)); err != nil {
		return nil, errors.Join(fmt.Errorf("open a dex index: %w", op.Failure(err, false)), x.tree.Close())
	}
	x.ref = x.log.Ref().Encode(nil)
	x.wal.Start(x.env, x.log, x.lay.MaxKey)
	if err := x.cleaner.start(x); err != nil {
		return nil, errors.Join(fmt.Errorf("open a dex index: %w", err), x.log.Close(true), x.tree.Close())
	}
	x.collector.Start(x.log, logRings(p))
	return x, nil
}

// logRings are the sizes that rings of clients have: this client's first.
func logRings(p *pool.Pool) []int {
	half := max(redo.MinBytes, int(p.ChunkBytes()/2)-pool.TableBytes(p.ChunkBytes())-redo.NodeBytes(0)) &^ 63
	if half <= formerLog {
		return []int{half}
	}
	return []int{min(mostLog, half), formerLog}
}

// marks implements pool.Marks.
func marks(a pool.Addr, head []byte) pool.Mark {
	if redo.Dead(head) {
		return pool.Over
	}
	return blocks.Marks(a, head)
}

// Log implements index.Partitioned.
func (x *dex) Log() []byte { return x.ref }

// Stats implements index.Index.
func (x *dex) Stats() index.Stats {
	s := x.tree.Stats()
	s.CacheBytes += uint64(x.cache.Bytes() + x.rows.Bytes() + x.values.Bytes())
	s.CacheHits = s.Operations - min(s.Operations, x.fetched.Load())
	s.Log = x.log.Posted()
	return s
}

// BulkLoad implements index.Index. This client must have taken all keys. The load is a record in
// the log, see BeforeLoad.
func (x *dex) BulkLoad(pairs index.Pairs, parallel int) error {
	x.moves.Lock()
	defer x.moves.Unlock()
	r, bottom := x.ranges.Load(), x.low
	if r.At(bottom) < 0 {
		return fmt.Errorf("bulk load: this client has not taken all keys: %w", index.ErrNotOwner)
	}
	if _, high := r.Around(bottom); len(high) > 0 {
		return fmt.Errorf("bulk load: this client has not taken the keys from %s on: %w", keyrange.Quote(high), index.ErrNotOwner)
	}
	if err := x.flushAll(true); err != nil {
		return fmt.Errorf("bulk load: %w", err)
	}
	return x.tree.BulkLoad(pairs, parallel)
}

// CoolLeaf implements btree.PathCache.
func (x *dex) CoolLeaf(hint uint32, a pool.Addr) { x.cache.CoolLeaf(hint, a) }

// Check implements index.Checker.
func (x *dex) Check() (index.Structure, error) {
	if err := x.flushAll(false); err != nil {
		return index.Structure{}, err
	}
	return x.tree.Check()
}

// Survey implements index.Surveyor.
func (x *dex) Survey(visit func(low []byte, bytes int) error) error { return x.tree.Survey(visit) }

// Verifies implements index.Checker.
func (x *dex) Verifies(a pool.Addr, node []byte) bool {
	return redo.IsHead(node) || x.tree.Verifies(a, node)
}

// Close implements index.Index. It writes back what can be written back. The log is freed, unless
// this client still holds ranges: the next owner then replays what is left in it, so a failed
// write-back is no error. If the memory servers know owners the log stays as well: a late call may
// still name it, and the adopter of its chunk frees it (redo, reclaim.go).
func (x *dex) Close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.open > 0 {
		return fmt.Errorf("close a dex index: %d sessions are open", x.open)
	}
	if x.closed {
		return nil
	}
	x.closed = true
	err := errors.Join(x.cleaner.stop(), x.collector.End())
	holds := x.ranges.Load().Len() > 0
	if flushed := x.flushAll(true); !holds {
		err = errors.Join(err, flushed)
	}
	return errors.Join(err, x.log.Close(!holds && err == nil && !x.pool.KnowsOwners()), x.tree.Close())
}
