// Package dolphin is Dolphin, a range index with radix inner nodes over B+ leaves on disaggregated
// memory. docs/design/dolphin.md has the formats, each remote request, what others may see after
// it, and why that is safe.
//
// Inner nodes, descents, and changes of inner nodes are in package art. The place of a leaf in the
// tree is the lower bound of its range.
//
//	leaf.go     the format of leaves
//	find.go     how the leaf of a key is found, and lookups
//	write.go    changes of one pair
//	record.go   how records change, and what readers see of it
//	combine.go  changes that one session makes for several
//	share.go    updates that go on side by side, and how others shut them out
//	replace.go  how other leaves take the place of one
package dolphin

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/index/internal/combine"
	"github.com/dmindex/dmindex/pkg/index/internal/meta"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/sum"
	"github.com/dmindex/dmindex/pkg/sum/siphash"
)

// Name of the design.
const Name = "dolphin"

func init() {
	index.Register(index.Design{Name: Name, Number: 5, SharesAll: true, Switches: switches, Open: Open})
}

// DefaultCacheBytes bounds the cache of inner nodes unless Options say otherwise.
const DefaultCacheBytes = 64 << 20

// Tree is an open index of one client.
type Tree struct {
	art.Tree
	lay    layout
	with   techniques
	active op.Sessions
	reads  *combine.Reads // READs that sessions make together; nil = none
	strips *pool.Strips
	usual  atomic.Int64 // pairs that scans of its sessions found in a leaf; 0 = none yet
}

// Open opens the index in p, or creates it. The pool stays the caller's.
func Open(p *pool.Pool, o index.Options) (index.Index, error) {
	t, err := open(p, o)
	if err != nil {
		return nil, fmt.Errorf("open a %s index: %w", Name, err)
	}
	return t, nil
}

func open(p *pool.Pool, o index.Options) (*Tree, error) {
	lay, err := newLayout(o)
	if err != nil {
		return nil, err
	}
	with, err := techniquesOf(o.Switches)
	if err != nil {
		return nil, err
	}
	if most := max(art.RootBytes, lay.size); most > p.MostNodeBytes() {
		return nil, fmt.Errorf("nodes of %d bytes do not fit chunks of %d", most, p.ChunkBytes())
	}
	t := &Tree{with: with}
	t.Tree.Init(p, with.Techniques)
	t.active.Init(t.Env)
	if with.readDelegation {
		t.reads = combine.NewReads(t.Env)
	}
	t.InitSweeps(Name, t.walkAll)
	p.SetMarks(art.Marks)
	p.GiveUpInDoubt()
	ps, err := p.NewSession(art.Direct.Bytes() + 64<<10)
	if err != nil {
		return nil, op.Failure(err, false)
	}
	ps.Begin() // it ends with the session
	err = t.openSuperblock(ps, &lay, &o)
	if err = errors.Join(err, ps.Close()); err != nil {
		return nil, op.Failure(err, false)
	}
	bound := o.CacheBytes
	if bound == 0 {
		bound = DefaultCacheBytes
	}
	t.OpenCache(bound)
	return t, nil
}

// openSuperblock reads the superblock, or makes it and the root. Lock words are declared when the
// size of leaves is known, and before the first node of any size is made.
func (t *Tree) openSuperblock(ps *pool.Session, lay *layout, given *index.Options) error {
	want := meta.Options{Uint64: lay.Uint64, MaxKeyBytes: lay.MaxKey, MaxValueBytes: lay.MaxValue, InlineBytes: lay.Inline, NodeBytes: lay.size}
	have, root, err := meta.Open(ps, &meta.Request{
		Design: Name, Want: want, AnyNode: given.NodeBytes == 0, AnyInline: given.InlineBytes == 0,
		Create: func(secret [2]uint64) (pool.Addr, error) {
			if err := t.declare(lay.size); err != nil {
				return pool.Nil, err
			}
			return t.FirstNode(ps, sum.NewKey(secretOf(secret)))
		},
		Discard: func(a pool.Addr) { t.Pool.Free(a, art.RootBytes) },
	})
	if err != nil {
		return err
	}
	if t.lay, err = newLayout(have.Index()); err != nil {
		return fmt.Errorf("options in the superblock: %w: %w", err, index.ErrFormat)
	}
	if err := t.declare(t.lay.size); err != nil {
		return err
	}
	t.lay.secret = secretOf(have.Secret)
	t.lay.Sums = sum.NewKey(t.lay.secret)
	t.Pool.SetRebuild(t.shutAfterDeath)
	if _, ok := art.Pack(root); !ok {
		return art.Beyond(root)
	}
	t.SetRoot(root, t.lay.Layout, t.lay.MaxKey)
	return nil
}

// secretOf is the secret of an index as package siphash has it.
func secretOf(secret [2]uint64) siphash.Key { return siphash.Key{K0: secret[0], K1: secret[1]} }

// declare declares the lock words of leaves of a size.
func (t *Tree) declare(size int) (err error) {
	if t.strips == nil {
		t.strips, err = t.Pool.DeclareStrip(size)
	}
	return err
}

// Stats implements index.Index.
func (t *Tree) Stats() index.Stats {
	stats := t.active.Stats(t.Pool, t.reads)
	stats.Merges, stats.CacheBytes = t.Merges.Load(), uint64(t.Cache.Bytes())
	return stats
}

// Close implements index.Index.
func (t *Tree) Close() error {
	t.EndSweeps()
	if err := t.active.Close(); err != nil {
		return fmt.Errorf("close a %s index: %w", Name, err)
	}
	return nil
}
