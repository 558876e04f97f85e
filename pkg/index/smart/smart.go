// Package smart is SMART, an adaptive radix tree on disaggregated memory (Luo and others: OSDI
// 2023, ACM TOS 20(3), 2024). docs/design/smart.md has the formats, each remote request, what
// others may see after it, and why that is safe.
//
// Inner nodes, descents, and changes of inner nodes are in package art.
//
//	layout.go   sizes of leaves
//	leaf.go     leaves
//	insert.go   insert (section 4.1.2)
//	update.go   in-place update
//	combine.go  changes of one leaf that are made together (section 4.2)
//	remove.go   delete
package smart

import (
	"errors"
	"fmt"

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
const Name = "smart"

func init() {
	index.Register(index.Design{Name: Name, Number: 2, SharesAll: true, Switches: switches, Open: Open})
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

	shortage shortage
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
	if most := max(art.RootBytes, lay.maxLeaf); most > p.MostNodeBytes() {
		return nil, fmt.Errorf("nodes of %d bytes do not fit chunks of %d", most, p.ChunkBytes())
	}
	t := &Tree{with: with}
	t.Tree.Init(p, with.Techniques)
	t.active.Init(t.Env)
	if with.readDelegation {
		t.reads = combine.NewReads(t.Env)
	}
	t.shortage.init(t.Env)
	t.InitSweeps(Name, t.walkAll)
	p.SetMarks(art.Marks)
	p.GiveUpInDoubt()
	ps, err := p.NewSession(art.Direct.Bytes() + 64<<10)
	if err != nil {
		return nil, op.Failure(err, false)
	}
	ps.Begin() // it ends with the session
	err = t.openSuperblock(ps, lay, &o)
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

// openSuperblock reads the superblock, or makes it and the root.
func (t *Tree) openSuperblock(ps *pool.Session, lay layout, given *index.Options) error {
	want := meta.Options{Uint64: lay.Uint64, MaxKeyBytes: lay.MaxKey, MaxValueBytes: lay.MaxValue, InlineBytes: lay.Inline, NodeBytes: lay.nodeSize}
	have, root, err := meta.Open(ps, &meta.Request{
		Design: Name, Want: want, AnyNode: given.NodeBytes == 0, AnyInline: given.InlineBytes == 0,
		Create:  func(secret [2]uint64) (pool.Addr, error) { return t.FirstNode(ps, sumsOf(secret)) },
		Discard: func(a pool.Addr) { t.Pool.Free(a, art.RootBytes) },
	})
	if err != nil {
		return err
	}
	if t.lay, err = newLayout(have.Index()); err != nil {
		return fmt.Errorf("options in the superblock: %w: %w", err, index.ErrFormat)
	}
	t.lay.Sums = sumsOf(have.Secret)
	if _, ok := art.Pack(root); !ok {
		return art.Beyond(root)
	}
	t.SetRoot(root, t.lay.Layout, t.lay.MaxKey)
	return nil
}

// sumsOf is the key of the sums of an index with a secret.
func sumsOf(secret [2]uint64) *sum.Key {
	return sum.NewKey(siphash.Key{K0: secret[0], K1: secret[1]})
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
