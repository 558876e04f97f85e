package btree

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/loader"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/keyrange"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Bulk load. The caller's goroutine cuts the stream of pairs into leaves, as the design makes them,
// and these into inner nodes, bottom-up, and decides where each node lies; sessions of their own
// make the images and WRITE them, many in one list (package loader). Nobody can find what they
// write, until the first leaf, which is the root of the empty index, is rewritten as the root of
// the new tree, in its place and under its lock: the whole load takes effect by that one Rewrite.
// So a loader that dies leaves an index that is empty, or after the repair of that node complete.

// Fill is how full nodes are made, in percent (the paper's evaluation, section 5).
const Fill = 80

// maxLoaders bounds the sessions of one bulk load.
const maxLoaders = 64

// LeafLoader makes the leaves of a bulk load.
type LeafLoader interface {
	// Start is called first. b is the load's.
	Start(b *Builder) error

	// Add takes the next pair, whose key is above all before.
	Add(key, value []byte) error

	// Finish ends the last leaf. alone reports that it is leaf 0 of the batch, which was not added
	// to that: it has all pairs, and no place yet.
	Finish() (alone bool, err error)

	// Empties returns nil if the leaf at a, of which b was READ, is the whole of an index and has
	// no pairs; else ErrNotEmpty. Open has opened it.
	Empties(a pool.Addr, b []byte) error
}

// Builder is a bulk load under way: it makes the inner nodes above leaves.
type Builder struct {
	*loader.Load
	t *Tree
	s *Session // its operation replaces the empty leaf

	last  []byte // key of the last pair
	pairs int

	levels   []*rising
	servers  []uint16 // of memory
	turns    []int    // of servers, by level: see place
	subtrees int      // nodes of level 2 that were filled
	// on the server where nodes of the subtree lie that is being filled; Nil = on the next one
	home pool.Addr
}

// rising is an inner node that is being filled.
type rising struct {
	Draft
	addr  pool.Addr // Nil = it is the first of its level, and the root if it stays alone
	bytes int       // of its children and separators, without a common prefix
}

// Load implements BulkLoad of index.Index. newLeaves makes what a batch has for leaves.
func (t *Tree) Load(source index.Pairs, parallel int, leaves LeafLoader, newLeaves func() loader.Leaves) error {
	ld, err := t.newBuilder(min(max(1, parallel), maxLoaders), newLeaves)
	if err != nil {
		return fmt.Errorf("bulk load: %w", err)
	}
	err = ld.run(source, leaves)
	closing := errors.Join(ld.s.Close(), ld.Close())
	if err != nil { // a load that took effect has not failed, however its sessions end
		return fmt.Errorf("bulk load: %w", errors.Join(err, closing))
	}
	return nil
}

// newBuilder makes a builder with its sessions at work.
func (t *Tree) newBuilder(parallel int, newLeaves func() loader.Leaves) (*Builder, error) {
	ld := &Builder{t: t, servers: t.Pool.Servers()}
	var err error
	if ld.s, err = t.NewSession(); err != nil {
		return nil, err
	}
	var all []loader.Session
	for range parallel {
		s, err := t.NewSession()
		if err != nil {
			err = errors.Join(err, ld.s.Close())
			for _, s := range all {
				err = errors.Join(err, s.Close())
			}
			return nil, err
		}
		all = append(all, loader.Session{Op: &s.Op, Blocks: &s.Blocks, Ring: s.Ring, Close: s.Close})
	}
	ld.Load = loader.New(t.Pool, all, newLeaves)
	return ld, nil
}

// run loads and publishes; on an error before that it gives back what was allocated.
func (ld *Builder) run(source index.Pairs, leaves LeafLoader) error {
	ld.s.Begin()
	err := ld.s.emptyIndex(leaves)
	ld.s.End()
	if err != nil {
		return err
	}
	if err := leaves.Start(ld); err != nil {
		return err
	}
	var failed error
	err = source(func(key, value []byte) bool {
		failed = ld.add(key, value, leaves)
		return failed == nil
	})
	if failed != nil {
		err = failed
	}
	var top *rising
	if err == nil && ld.pairs > 0 {
		top, err = ld.finish(leaves)
	}
	if e := ld.Wait(); err == nil {
		err = e
	}
	published := false
	if err == nil && ld.pairs > 0 {
		published, err = ld.publish(top, leaves)
	}
	if !published {
		ld.GiveBack(&ld.s.Op)
	}
	return err
}

// publish replaces the empty leaf in an operation of its own: nothing that was READ before the
// source took its time is used. published says that this took effect, or may have.
func (ld *Builder) publish(top *rising, leaves LeafLoader) (published bool, err error) {
	ld.s.Begin()
	defer ld.s.End()
	if top == nil {
		if err := ld.WriteBlocks(&ld.s.Blocks); err != nil {
			return false, err
		}
	}
	return ld.s.replaceEmpty(top, leaves, ld.Batch)
}

// add passes the next pair on.
func (ld *Builder) add(key, value []byte, leaves LeafLoader) error {
	if err := ld.t.Lay.CheckPair(key, value); err != nil {
		return err
	}
	if ld.pairs > 0 && !item.Below(ld.last, key) {
		return fmt.Errorf("key %s comes after key %s, keys must ascend: %w", keyrange.Quote(key), keyrange.Quote(ld.last), index.ErrUnsorted)
	}
	if err := leaves.Add(key, value); err != nil {
		return err
	}
	ld.last = append(ld.last[:0], key...)
	ld.pairs++
	return nil
}

// Env returns that of the tree.
func (ld *Builder) Env() env.Env { return ld.t.Env }

// Last returns the key of the last pair that was added.
func (ld *Builder) Last() []byte { return ld.last }

// AllocateLeaf takes a node for the next leaf.
func (ld *Builder) AllocateLeaf() (pool.Addr, error) { return ld.allocate(0, nil) }

// allocate takes a node for a level; children are those that it has, if they are known.
func (ld *Builder) allocate(level int, children []pool.Addr) (pool.Addr, error) {
	a, err := ld.Load.Allocate(ld.t.Lay.NodeBytes, ld.place(level, children))
	if err != nil {
		return pool.Nil, err
	}
	if ld.home == pool.Nil && level < SubtreeLevels {
		ld.home = a
	}
	return a, nil
}

// Raise makes the leaf at a, which begins at low, the next child of level 1.
func (ld *Builder) Raise(low []byte, a pool.Addr) error { return ld.raise(1, low, a) }

// raise makes a node, which begins at low, the next child on a level.
func (ld *Builder) raise(level int, low []byte, child pool.Addr) error {
	if level > len(ld.levels) {
		ld.levels = append(ld.levels, &rising{Draft: Draft{Level: uint8(level)}})
	}
	r, lay := ld.levels[level-1], &ld.t.Lay
	low = bytes.Clone(low)
	if len(r.Children) > 0 {
		// Were it to end here, the fences would have this prefix in common.
		skip := 0
		if !lay.Uint64 {
			skip = item.CommonPrefix(r.Low, low)
		}
		size := fence.RoundUp(fence.HeaderBytes+len(r.Low)+len(low)) + r.bytes - len(r.Separators)*skip
		if len(r.Children) > 1 && size > lay.NodeBytes*Fill/100 {
			ld.leaveHome(level)
			next, err := ld.allocate(level, nil)
			if err != nil {
				return err
			}
			r.High, r.Sibling = low, next
			if err := ld.closeInner(r); err != nil {
				return err
			}
			*r = rising{Draft: Draft{Level: uint8(level)}, addr: next}
		}
	}
	if len(r.Children) == 0 {
		r.Low = low
	} else {
		r.Separators = append(r.Separators, low)
		r.bytes += len(low)
	}
	r.Children = append(r.Children, child)
	if r.bytes += childBytes; !lay.Uint64 {
		r.bytes += 2
	}
	return nil
}

// closeInner hands over r, whose high fence and sibling are set, and raises it. With less of a
// prefix in common than its children have among themselves it may be too large for one node: then
// it becomes several.
func (ld *Builder) closeInner(r *rising) (err error) {
	if r.addr == pool.Nil {
		if r.addr, err = ld.allocate(int(r.Level), r.Children); err != nil {
			return err
		}
	}
	lay := &ld.t.Lay
	for r.Draft.Bytes(lay) > lay.NodeBytes {
		at := 1
		for ; at < len(r.Children)-1; at++ {
			if more, _, _ := r.parts(at + 1); more.Bytes(lay) > lay.NodeBytes*Fill/100 {
				break
			}
		}
		left, right, _ := r.parts(at)
		next, err := ld.allocate(int(r.Level), right.Children)
		if err != nil {
			return err
		}
		left.Sibling = next
		if err := ld.emit(left, r.addr); err != nil {
			return err
		}
		r.Draft, r.addr = *right, next
	}
	return ld.emit(&r.Draft, r.addr)
}

// emit hands over an inner node that is complete.
func (ld *Builder) emit(d *Draft, a pool.Addr) error {
	version := unit.NewVersion(ld.t.Env)
	ld.Batch.AddImage(a, ld.t.Lay.NodeBytes, func(b []byte) int { return d.Build(b, &ld.t.Lay, a, version) })
	return ld.raise(int(d.Level)+1, d.Low, a)
}

// finish ends what is open on every level and returns the inner node that shall be the root; nil if
// all pairs are in the first leaf, which the batch then still has.
func (ld *Builder) finish(leaves LeafLoader) (*rising, error) {
	alone, err := leaves.Finish()
	if alone || err != nil {
		return nil, err
	}
	for i := 0; ; i++ {
		r := ld.levels[i]
		r.Rightmost, r.High, r.Sibling = true, ld.t.Lay.NoHigh(), pool.Nil
		if r.addr == pool.Nil && r.Draft.Bytes(&ld.t.Lay) <= ld.t.Lay.NodeBytes {
			return r, ld.HandOver()
		}
		if err := ld.closeInner(r); err != nil {
			return nil, err
		}
	}
}
