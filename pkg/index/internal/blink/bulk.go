package blink

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/keyrange"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Bulk load. The caller's goroutine cuts the stream of pairs into leaves and these into inner
// nodes, bottom-up, and decides where each node lies; sessions of their own make the images and
// WRITE them, many in one list. Nobody can find what they write, until the first leaf, which is the
// root of the empty index, is rewritten as the root of the new tree, in its place and under its
// lock: the whole load takes effect by that one Rewrite. So a loader that dies leaves an index that
// is empty, or after the repair of that node complete.

// fill is how full nodes are made, in percent (the paper's evaluation, section 5).
const fill = 80

// maxLoaders bounds the sessions of one bulk load.
const maxLoaders = 64

// loader is a bulk load under way.
type loader struct {
	t *tree
	// its operation goes on from before the first node is allocated until the last one is linked
	s       *session
	writers []*loadWriter
	turn    int    // of writers
	b       *batch // being filled

	last  []byte // key of the last pair
	pairs int
	entry []byte

	// being filled; Nil = the first one: its place depends on whether there is another
	leaf   pool.Addr
	low    []byte // its low fence
	start  int    // in b.bytes and b.items
	from   int
	filled slotted.Load

	levels            []*rising
	servers, subtrees int // of memory; nodes of level 2 that were filled
	// on the server where nodes of the subtree lie that is being filled; Nil = on the next one
	home   pool.Addr
	made   []pool.Addr // every node that was allocated
	blocks []madeBlocks
}

// madeBlocks are the blocks of one size that were allocated.
type madeBlocks struct {
	size int
	at   []pool.Addr
}

// rising is an inner node that is being filled.
type rising struct {
	draft
	addr  pool.Addr // Nil = it is the first of its level, and the root if it stays alone
	bytes int       // of its children and separators, without a common prefix
}

// BulkLoad implements index.Index.
func (t *tree) BulkLoad(source index.Pairs, parallel int) error {
	ld, err := t.newLoader(min(max(1, parallel), maxLoaders))
	if err == nil {
		err = ld.run(source)
	}
	var closing error
	if ld != nil {
		closing = ld.close()
	}
	if err != nil { // a load that took effect has not failed, however its sessions end
		return fmt.Errorf("bulk load: %w", errors.Join(err, closing))
	}
	return nil
}

// run loads and publishes; on an error before that it gives back what was allocated.
func (ld *loader) run(source index.Pairs) error {
	ld.s.Begin()
	defer ld.s.End()
	old, err := ld.s.onlyLeaf()
	if err != nil {
		return err
	}
	var failed error
	err = source(func(key, value []byte) bool {
		failed = ld.add(key, value)
		return failed == nil
	})
	if failed != nil {
		err = failed
	}
	var top *rising
	if err == nil && ld.pairs > 0 {
		top, err = ld.finish()
	}
	if e := ld.wait(); err == nil {
		err = e
	}
	if err == nil && top == nil {
		err = ld.s.Blocks.WriteAll(ld.b.blocks, ld.b.values)
	}
	published := false
	if err == nil && ld.pairs > 0 {
		published, err = ld.s.replaceEmpty(old, top, ld.b)
	}
	if !published {
		ld.giveBack()
	}
	return err
}

// add takes the next pair.
func (ld *loader) add(key, value []byte) error {
	lay := &ld.t.lay
	if err := lay.CheckPair(key, value); err != nil {
		return err
	}
	if ld.pairs > 0 && !item.Below(ld.last, key) {
		return fmt.Errorf("key %s comes after key %s, keys must ascend: %w", keyrange.Quote(key), keyrange.Quote(ld.last), index.ErrUnsorted)
	}
	e, err := ld.entryOf(key, value)
	if err != nil {
		return err
	}
	grown := ld.filled
	grown.Add(len(e))
	// The high fence is not known yet, but how long it can be.
	room := lay.NodeBytes - fence.RoundUp(fence.HeaderBytes+len(ld.low)+lay.MaxKey)
	if ld.filled.Count > 0 && grown.Used() > room*fill/100 {
		if err := ld.closeLeaf(lay.Separator(ld.last, key)); err != nil {
			return err
		}
		grown = slotted.Load{}
		grown.Add(len(e))
	}
	ld.filled = grown
	ld.b.items = append(ld.b.items, slotted.EntryAt{Off: uint32(len(ld.b.bytes) - ld.start), N: uint16(len(e))})
	ld.b.bytes = append(ld.b.bytes, e...)
	ld.last = append(ld.last[:0], key...)
	ld.pairs++
	return nil
}

// entryOf makes the entry of a pair. A long value gets a block, which joins the batch: its leaf is
// in that one, or in a later one.
func (ld *loader) entryOf(key, value []byte) ([]byte, error) {
	lay := &ld.t.lay
	if len(value) <= lay.Inline {
		return lay.PutEntry(ld.entry, key, value), nil
	}
	a, size, err := blocks.Allocate(&lay.Codec, ld.t.pool, len(value), ld.leaf)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(ld.blocks, func(m madeBlocks) bool { return m.size == size })
	if i < 0 {
		i = len(ld.blocks)
		ld.blocks = append(ld.blocks, madeBlocks{size: size})
	}
	ld.blocks[i].at = append(ld.blocks[i].at, a)
	r := blocks.ReferTo(a, size, value)
	ld.b.blocks = append(ld.b.blocks, r)
	ld.b.values = append(ld.b.values, value...)
	return r.PutEntry(&lay.Codec, ld.entry, key), nil
}

// closeLeaf ends the leaf that is being filled at a fence, and begins the next one.
func (ld *loader) closeLeaf(high []byte) (err error) {
	if ld.leaf == pool.Nil {
		if ld.leaf, err = ld.allocate(0, nil); err != nil {
			return err
		}
	}
	next, err := ld.allocate(0, nil)
	if err != nil {
		return err
	}
	ld.b.leaf(ld, high, next)
	if err := ld.raise(1, ld.low, ld.leaf); err != nil {
		return err
	}
	ld.leaf, ld.low = next, append(ld.low[:0], high...)
	return ld.beginLeaf()
}

// beginLeaf hands the batch over if it is full.
func (ld *loader) beginLeaf() error {
	if err := ld.mayHandOver(); err != nil {
		return err
	}
	ld.from, ld.start = len(ld.b.items), len(ld.b.bytes)
	// no entry lies at offset 0 (pairs.at)
	ld.b.bytes = append(ld.b.bytes, make([]byte, fence.Grain)...)
	return nil
}

// allocate takes a node for a level; children are those that it has, if they are known.
func (ld *loader) allocate(level int, children []pool.Addr) (pool.Addr, error) {
	a, err := ld.t.pool.Allocate(ld.t.lay.NodeBytes, ld.place(level, children))
	if err != nil {
		return pool.Nil, op.Failure(err, false)
	}
	if ld.home == pool.Nil && level < SubtreeLevels {
		ld.home = a
	}
	ld.made = append(ld.made, a)
	return a, nil
}

// raise makes a node, which begins at low, the next child on a level.
func (ld *loader) raise(level int, low []byte, child pool.Addr) error {
	if level > len(ld.levels) {
		ld.levels = append(ld.levels, &rising{draft: draft{level: uint8(level)}})
	}
	r, lay := ld.levels[level-1], &ld.t.lay
	low = bytes.Clone(low)
	if len(r.children) > 0 {
		// Were it to end here, the fences would have this prefix in common.
		skip := 0
		if !lay.Uint64 {
			skip = item.CommonPrefix(r.low, low)
		}
		size := fence.RoundUp(fence.HeaderBytes+len(r.low)+len(low)) + r.bytes - len(r.seps)*skip
		if len(r.children) > 1 && size > lay.NodeBytes*fill/100 {
			ld.leaveHome(level)
			next, err := ld.allocate(level, nil)
			if err != nil {
				return err
			}
			r.high, r.sibling = low, next
			if err := ld.closeInner(r); err != nil {
				return err
			}
			*r = rising{draft: draft{level: uint8(level)}, addr: next}
		}
	}
	if len(r.children) == 0 {
		r.low = low
	} else {
		r.seps = append(r.seps, low)
		r.bytes += len(low)
	}
	r.children = append(r.children, child)
	if r.bytes += childBytes; !lay.Uint64 {
		r.bytes += 2
	}
	return nil
}

// closeInner hands over r, whose high fence and sibling are set, and raises it. With less of a
// prefix in common than its children have among themselves it may be too large for one node: then
// it becomes several.
func (ld *loader) closeInner(r *rising) (err error) {
	if r.addr == pool.Nil {
		if r.addr, err = ld.allocate(int(r.level), r.children); err != nil {
			return err
		}
	}
	lay := &ld.t.lay
	for r.draft.bytes(lay) > lay.NodeBytes {
		at := 1
		for ; at < len(r.children)-1; at++ {
			if more, _, _ := r.parts(at + 1); more.bytes(lay) > lay.NodeBytes*fill/100 {
				break
			}
		}
		left, right, _ := r.parts(at)
		next, err := ld.allocate(int(r.level), right.children)
		if err != nil {
			return err
		}
		left.sibling = next
		if err := ld.emit(left, r.addr); err != nil {
			return err
		}
		r.draft, r.addr = *right, next
	}
	return ld.emit(&r.draft, r.addr)
}

// emit hands over an inner node that is complete.
func (ld *loader) emit(d *draft, a pool.Addr) error {
	ld.b.inner(d, &ld.t.lay, a, unit.NewVersion(ld.t.env))
	return ld.raise(int(d.level)+1, d.low, a)
}

// finish closes what is open on every level and returns the inner node that shall be the root; nil
// if all pairs are in the first leaf, which ld.b then still has.
func (ld *loader) finish() (*rising, error) {
	if ld.leaf == pool.Nil {
		ld.b.leaf(ld, ld.t.lay.NoHigh(), pool.Nil)
		return nil, nil
	}
	ld.b.leaf(ld, ld.t.lay.NoHigh(), pool.Nil)
	if err := ld.raise(1, ld.low, ld.leaf); err != nil {
		return nil, err
	}
	for i := 0; ; i++ {
		r := ld.levels[i]
		r.rightmost, r.high, r.sibling = true, ld.t.lay.NoHigh(), pool.Nil
		if r.addr == pool.Nil && r.draft.bytes(&ld.t.lay) <= ld.t.lay.NodeBytes {
			return r, ld.handOver()
		}
		if err := ld.closeInner(r); err != nil {
			return nil, err
		}
	}
}

// giveBack frees what was allocated and is known to nobody, but for nodes and blocks that a session
// which died may still be writing to.
func (ld *loader) giveBack() {
	for _, m := range append(ld.blocks, madeBlocks{ld.t.lay.NodeBytes, ld.made}) {
		for _, a := range m.at {
			doubt := ld.s.PS.Err() != nil && ld.b.has(a)
			for _, w := range ld.writers {
				doubt = doubt || w.s.PS.Err() != nil && w.b.has(a)
			}
			if !doubt {
				ld.t.pool.Free(a, m.size)
			}
		}
	}
}

// newLoader makes a loader with its sessions at work.
func (t *tree) newLoader(parallel int) (*loader, error) {
	ld := &loader{t: t, servers: len(t.pool.Servers()), entry: make([]byte, slotted.MaxEntryBytes), low: bytes.Clone(t.lay.Bottom)}
	var err error
	if ld.s, err = t.newSession(); err != nil {
		return nil, err
	}
	for range parallel {
		s, err := t.newSession()
		if err != nil {
			return ld, err
		}
		w := &loadWriter{s: s, idle: t.env.NewEvent(), work: t.env.NewEvent(), group: env.NewWaitGroup(t.env)}
		w.b = newBatch(&t.lay, len(s.ring))
		w.group.Go("bulk load", w.run)
		ld.writers = append(ld.writers, w)
	}
	ld.b = newBatch(&t.lay, len(ld.writers[0].s.ring))
	return ld, ld.beginLeaf()
}
