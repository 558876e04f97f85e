package blink

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// stored are the options that the superblock keeps.
type stored struct {
	Uint64        bool `json:"uint64"`
	MaxKeyBytes   int  `json:"maxKeyBytes"`
	MaxValueBytes int  `json:"maxValueBytes"`
	InlineBytes   int  `json:"inlineBytes"`
	NodeBytes     int  `json:"nodeBytes"`
}

// Tree is an open tree of one client.
type Tree = tree

type tree struct {
	name  string // of the design
	keep  Keeper
	lay   layout
	with  techniques
	pool  *pool.Pool
	env   env.Env
	cache *cache
	root  atomic.Pointer[rootRef]

	sessions op.Sessions
	mu       env.Mutex
	merger   *merger       // guarded by mu
	ascents  atomic.Uint64 // leaves that were added at the right end, in a design with subtrees
	merges   atomic.Uint64 // nodes that were merged into their left siblings
	misled   atomic.Uint64 // nodes that began above the key that was looked for
}

// rootRef is the root as last read. It may be old: it then still leads to every key by way of siblings.
type rootRef struct {
	addr  pool.Addr
	level uint8
	stamp uint64 // like that of an inner node's copy
}

// Open opens the tree of a design in p, or creates it. The pool stays the caller's. keep is nil where all clients share all leaves.
func Open(p *pool.Pool, o index.Options, design string, keep Keeper) (*Tree, error) {
	lay, err := newLayout(o)
	if err != nil {
		return nil, fmt.Errorf("open a %s index: %w", design, err)
	}
	if uint64(max(lay.nodeBytes, blocks.Size(&lay.Codec, lay.MaxValue))) > p.ChunkBytes() {
		return nil, fmt.Errorf("open a %s index: nodes of %d bytes, or values of %d, do not fit chunks of %d", design, lay.nodeBytes, lay.MaxValue, p.ChunkBytes())
	}
	bound := o.CacheBytes
	if bound == 0 {
		bound = DefaultCacheBytes
	}
	with, err := techniquesOf(design, o.Switches, p)
	if err != nil {
		return nil, fmt.Errorf("open a %s index: %w", design, err)
	}
	t := &tree{name: design, keep: keep, with: with, pool: p, env: p.Env(), mu: p.Env().NewMutex()}
	t.sessions.Init(t.env)
	p.SetMarks(blocks.Marks)
	ps, err := p.NewSession(2*maxNodeBytes + 64<<10)
	if err != nil {
		return nil, fmt.Errorf("open a %s index: %w", design, op.Failure(err, false))
	}
	ps.Begin() // it ends with the session
	root, err := t.openSuperblock(ps, lay, &o)
	if err = errors.Join(err, ps.Close()); err != nil {
		return nil, fmt.Errorf("open a %s index: %w", design, op.Failure(err, false))
	}
	t.lay.hints = keep != nil
	t.cache = newCache(t.env, bound, t.lay.nodeBytes)
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

// openSuperblock reads the superblock, or makes it and the first leaf, and sets t.lay. It returns the root.
func (t *tree) openSuperblock(ps *pool.Session, lay layout, given *index.Options) (pool.Addr, error) {
	sb, root, err := ps.ReadSuperblock()
	if err == nil && root == pool.Nil {
		if root, err = t.create(ps, lay); err == nil {
			sb, root, err = ps.ReadSuperblock()
		}
	}
	if err != nil {
		return pool.Nil, err
	}
	if sb.Design != t.name {
		return pool.Nil, fmt.Errorf("the index is of design %q, not %q: %w", sb.Design, t.name, index.ErrFormat)
	}
	var have stored
	if err := json.Unmarshal(sb.Options, &have); err != nil {
		return pool.Nil, fmt.Errorf("options in the superblock: %w: %w", err, index.ErrFormat)
	}
	want := lay.stored()
	if given.NodeBytes == 0 {
		want.NodeBytes = have.NodeBytes
	}
	if given.InlineBytes == 0 {
		want.InlineBytes = have.InlineBytes
	}
	if have != want {
		return pool.Nil, fmt.Errorf("the index was created with %v, not %v: %w", have, want, index.ErrFormat)
	}
	if t.lay, err = newLayout(have.options()); err != nil {
		return pool.Nil, fmt.Errorf("options in the superblock: %w: %w", err, index.ErrFormat)
	}
	return root, nil
}

// create makes the first leaf, complete, and then the superblock that names it. If another client was faster its root counts and this leaf is
// given back: nobody ever saw its address.
func (t *tree) create(ps *pool.Session, lay layout) (pool.Addr, error) {
	options, err := json.Marshal(lay.stored())
	if err != nil {
		return pool.Nil, err
	}
	b, err := ps.Buffer(lay.nodeBytes)
	if err != nil {
		return pool.Nil, err
	}
	addr, err := t.pool.Allocate(lay.nodeBytes, pool.Nil)
	if err != nil {
		return pool.Nil, err
	}
	h := header{version: unit.NewVersion(t.env), rightmost: true, low: lay.Bottom, high: lay.NoHigh()}
	ps.Write(addr, b[:buildLeaf(b, &lay, addr, &h, &pairs{lay: &lay}, 0, 0)])
	if err := ps.Post(); err != nil {
		return pool.Nil, err
	}
	root, err := ps.CreateSuperblock(t.name, options, addr)
	if err == nil && root != addr {
		t.pool.Free(addr, lay.nodeBytes)
	}
	return root, err
}

func (l *layout) stored() stored {
	return stored{Uint64: l.Uint64, MaxKeyBytes: l.MaxKey, MaxValueBytes: l.MaxValue, InlineBytes: l.Inline, NodeBytes: l.nodeBytes}
}

func (s stored) options() index.Options {
	return index.Options{Uint64: s.Uint64, MaxKeyBytes: s.MaxKeyBytes, MaxValueBytes: s.MaxValueBytes, InlineBytes: s.InlineBytes, NodeBytes: s.NodeBytes}
}

// String is how error messages show options.
func (s stored) String() string {
	kind := "bytes"
	if s.Uint64 {
		kind = "uint64"
	}
	return fmt.Sprintf("%s keys of at most %d bytes, values of at most %d, those up to %d in their leaves, and nodes of %d",
		kind, s.MaxKeyBytes, s.MaxValueBytes, s.InlineBytes, s.NodeBytes)
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
		CacheBytes:    uint64(t.cache.bytes.Load()),
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
