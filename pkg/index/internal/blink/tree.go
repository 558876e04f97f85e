package blink

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/meta"
	"github.com/dmindex/dmindex/pkg/index/internal/nodecache"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Tree is an open tree of one client.
type Tree = tree

type tree struct {
	name   string    // of the design
	design byte      // its number
	leaves LeafCache // nil where all clients share all leaves
	lay    fence.Layout
	with   techniques
	pool   *pool.Pool
	env    env.Env
	cache  *nodecache.Cache
	root   atomic.Pointer[rootRef]

	sessions op.Sessions
	mu       env.Mutex
	merger   *merger       // guarded by mu
	ascents  atomic.Uint64 // leaves that were added at the right end, in a design with subtrees
	merges   atomic.Uint64 // nodes that were merged into their left siblings
	misled   atomic.Uint64 // nodes that began above the key that was looked for
}

// rootRef is the root as last read. It may be old: it then still leads to every key by way of
// siblings.
type rootRef struct {
	addr  pool.Addr
	level uint8
	stamp uint64 // like that of an inner node's copy
}

// Open opens the tree of a design in p, or creates it. The pool stays the caller's. leaves is nil
// where all clients share all leaves.
func Open(p *pool.Pool, o index.Options, d index.Design, leaves LeafCache) (*Tree, error) {
	design := d.Name
	lay, err := slotted.NewLayout(o)
	if err != nil {
		return nil, fmt.Errorf("open a %s index: %w", design, err)
	}
	if uint64(max(lay.NodeBytes, blocks.Size(&lay.Codec, lay.MaxValue))) > p.ChunkBytes() {
		return nil, fmt.Errorf("open a %s index: nodes of %d bytes, or values of %d, do not fit chunks of %d", design, lay.NodeBytes, lay.MaxValue, p.ChunkBytes())
	}
	bound := o.CacheBytes
	if bound == 0 {
		bound = DefaultCacheBytes
	}
	with, err := techniquesOf(design, o.Switches, p)
	if err != nil {
		return nil, fmt.Errorf("open a %s index: %w", design, err)
	}
	t := &tree{name: design, design: d.Number, leaves: leaves, with: with, pool: p, env: p.Env(), mu: p.Env().NewMutex()}
	t.sessions.Init(t.env)
	p.SetMarks(blocks.Marks)
	ps, err := p.NewSession(2*fence.MaxNodeBytes + 64<<10)
	if err != nil {
		return nil, fmt.Errorf("open a %s index: %w", design, op.Failure(err, false))
	}
	ps.Begin() // it ends with the session
	root, err := t.openSuperblock(ps, lay, &o)
	if err = errors.Join(err, ps.Close()); err != nil {
		return nil, fmt.Errorf("open a %s index: %w", design, op.Failure(err, false))
	}
	t.cache = newCache(t.env, bound, t.lay.NodeBytes)
	s, err := t.newSession()
	if err != nil {
		return nil, fmt.Errorf("open a %s index: %w", design, err)
	}
	s.Begin()
	_, err = s.learnRoot(root, nil)
	if err := errors.Join(err, s.Close()); err != nil {
		return nil, fmt.Errorf("open a %s index: %w", design, err)
	}
	return t, nil
}

// openSuperblock reads the superblock, or makes it and the first leaf, and sets t.lay. It returns
// the root.
func (t *tree) openSuperblock(ps *pool.Session, lay fence.Layout, given *index.Options) (pool.Addr, error) {
	have, root, err := meta.Open(ps, &meta.Request{
		Design: t.name, Want: storedOptions(&lay), AnyNode: given.NodeBytes == 0, AnyInline: given.InlineBytes == 0,
		Create:  func() (pool.Addr, error) { return t.firstLeaf(ps, lay) },
		Discard: func(a pool.Addr) { t.pool.Free(a, lay.NodeBytes) },
	})
	if err != nil {
		return pool.Nil, err
	}
	if t.lay, err = slotted.NewLayout(have.Index()); err != nil {
		return pool.Nil, fmt.Errorf("options in the superblock: %w: %w", err, index.ErrFormat)
	}
	return root, nil
}

// firstLeaf makes the leaf of an empty index.
func (t *tree) firstLeaf(ps *pool.Session, lay fence.Layout) (pool.Addr, error) {
	b, err := ps.Buffer(lay.NodeBytes)
	if err != nil {
		return pool.Nil, err
	}
	a, err := t.pool.Allocate(lay.NodeBytes, pool.Nil)
	if err != nil {
		return pool.Nil, err
	}
	h := fence.Header{Version: unit.NewVersion(t.env), Rightmost: true, Low: lay.Bottom, High: lay.NoHigh()}
	ps.Write(pool.Sole, a, b[:slotted.Build(b, &lay, a, &h, &slotted.Pairs{Lay: &lay}, 0, 0)])
	return a, ps.Post()
}

// storedOptions are those that the superblock keeps.
func storedOptions(l *fence.Layout) meta.Options {
	return meta.Options{Uint64: l.Uint64, MaxKeyBytes: l.MaxKey, MaxValueBytes: l.MaxValue, InlineBytes: l.Inline, NodeBytes: l.NodeBytes}
}

// Session implements index.Index.
func (t *tree) Session() (index.Session, error) { return t.newSession() }

// Stats implements index.Index.
func (t *tree) Stats() index.Stats {
	sum := t.sessions.Sum()
	conflicts, handovers := t.pool.Locks()
	return index.Stats{
		Verbs:         t.pool.Counters(),
		Operations:    sum.Operations,
		Retries:       sum.Retries,
		LockConflicts: conflicts,
		Merges:        t.merges.Load(),
		Reclaimed:     t.pool.Reclaimed(),
		Misled:        t.misled.Load(),
		Handovers:     handovers,
		CacheBytes:    uint64(t.cache.Bytes()),
		CacheHits:     sum.Hits,
		CacheMisses:   sum.Misses,
	}
}

// Close implements index.Index.
func (t *tree) Close() error {
	if err := t.sessions.Close(); err != nil {
		return fmt.Errorf("close a %s index: %w", t.name, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.merger != nil {
		return t.merger.close()
	}
	return nil
}
