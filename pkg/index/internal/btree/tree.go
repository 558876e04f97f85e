package btree

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/combine"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/meta"
	"github.com/dmindex/dmindex/pkg/index/internal/nodecache"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/sum/siphash"
)

// Config is what a design makes its tree of.
type Config struct {
	Design  index.Design
	Options index.Options

	// Layout checks options and fills in defaults.
	Layout func(index.Options) (fence.Layout, error)

	// Leaves returns the format of leaves for a layout that Layout has returned. The tree keeps l.
	Leaves func(l *fence.Layout) Leaves

	// Entries returns the codec of what leaves and blocks hold; nil = that of the layout.
	Entries func(l *fence.Layout) *item.Codec

	// Cache is nil where all clients share all leaves.
	Cache LeafCache

	// NoHints says that the leaf cache notes nothing about leaves: copies of level 1 are smaller.
	NoHints bool

	// Paths lets the cache of inner nodes keep copies as long as it has children of theirs, and
	// lets the design cool them (CoolPath); nil = it does not.
	Paths PathCache

	// Techniques are those of package pool that the design's switches turn off.
	Techniques pool.Techniques

	// DelegateReads lets sessions of one client READ a node together (package combine).
	DelegateReads bool

	// ArenaBytes returns how much of a session's arena the design needs for its own buffers; nil =
	// nothing.
	ArenaBytes func(l *fence.Layout) int
}

// Tree is an open tree of one client.
type Tree struct {
	config    Config
	leaves    Leaves
	leafHead  int       // how much of a leaf leaves.Open looks at
	leafCache LeafCache // nil where all clients share all leaves
	Lay       fence.Layout
	Pool      *pool.Pool
	Env       env.Env
	cache     *nodecache.Cache
	root      atomic.Pointer[rootRef]
	reads     *combine.Reads // nil: sessions READ alone

	sessions op.Sessions
	mu       env.Mutex
	merger   *merger       // guarded by mu
	settlers []*settler    // those that are idle; guarded by mu
	worded   WordedLeaves  // nil = leaves have no lock words
	strips   *pool.Strips  // of worded
	perLeaf  atomic.Int64  // how many pairs scans of sessions found in a leaf; 0 = none yet
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

// Open opens the tree of a design in p, or creates it. The pool stays the caller's.
func Open(p *pool.Pool, c Config) (*Tree, error) {
	t, err := open(p, c)
	if err != nil {
		return nil, fmt.Errorf("open a %s index: %w", c.Design.Name, err)
	}
	return t, nil
}

func open(p *pool.Pool, c Config) (*Tree, error) {
	lay, err := c.Layout(c.Options)
	if err != nil {
		return nil, err
	}
	if e := c.entries(&lay); max(lay.NodeBytes, blocks.Size(e, e.MaxValue)) > p.MostNodeBytes() {
		return nil, fmt.Errorf("nodes of %d bytes, or values of %d, do not fit chunks of %d", lay.NodeBytes, lay.MaxValue, p.ChunkBytes())
	}
	bound := c.Options.CacheBytes
	if bound == 0 {
		bound = DefaultCacheBytes
	}
	t := &Tree{config: c, leafCache: c.Cache, Pool: p, Env: p.Env(), mu: p.Env().NewMutex()}
	t.sessions.Init(t.Env)
	if c.DelegateReads {
		t.reads = combine.NewReads(t.Env)
	}
	p.SetMarks(blocks.Marks)
	ps, err := p.NewSession(2*fence.MaxNodeBytes + 64<<10)
	if err != nil {
		return nil, op.Failure(err, false)
	}
	ps.Begin() // it ends with the session
	root, err := t.openSuperblock(ps, lay, &c.Options)
	if err = errors.Join(err, ps.Close()); err != nil {
		return nil, op.Failure(err, false)
	}
	t.leaves = c.Leaves(&t.Lay)
	t.leafHead = t.Lay.NodeBytes
	if headed, ok := t.leaves.(HeadedLeaves); ok {
		t.leafHead = min(t.leafHead, headed.HeadBytes())
	}
	if err := t.openWords(); err != nil {
		return nil, err
	}
	t.cache = newCache(t.Env, bound, t.Lay.NodeBytes)
	if c.Paths != nil {
		t.cache.PathAware(paths{c.Paths})
	}
	s, err := t.NewSession()
	if err != nil {
		return nil, err
	}
	s.Begin()
	_, err = s.learnRoot(root, nil)
	if err := errors.Join(err, s.Close()); err != nil {
		return nil, err
	}
	return t, nil
}

// entries is the codec of what leaves and blocks hold.
func (c *Config) entries(l *fence.Layout) *item.Codec {
	if c.Entries == nil {
		return &l.Codec
	}
	return c.Entries(l)
}

// HasLeafCache reports whether leaves have owners.
func (t *Tree) HasLeafCache() bool { return t.leafCache != nil }

// openSuperblock reads the superblock, or makes it and the first leaf, and sets t.lay. It returns
// the root.
func (t *Tree) openSuperblock(ps *pool.Session, lay fence.Layout, given *index.Options) (pool.Addr, error) {
	have, root, err := meta.Open(ps, &meta.Request{
		Design: t.config.Design.Name, Want: storedOptions(&lay), AnyNode: given.NodeBytes == 0, AnyInline: given.InlineBytes == 0,
		AnyNeighbourhood: given.Neighbourhood == 0,
		Create: func(secret [2]uint64) (pool.Addr, error) {
			lay.SetSecret(siphash.Key{K0: secret[0], K1: secret[1]})
			return t.firstLeaf(ps, lay)
		},
		Discard: func(a pool.Addr) { t.Pool.Free(a, lay.NodeBytes) },
	})
	if err != nil {
		return pool.Nil, err
	}
	if t.Lay, err = t.config.Layout(have.Index()); err != nil {
		return pool.Nil, fmt.Errorf("options in the superblock: %w: %w", err, index.ErrFormat)
	}
	t.Lay.SetSecret(siphash.Key{K0: have.Secret[0], K1: have.Secret[1]})
	return root, nil
}

// firstLeaf makes the leaf of an empty index.
func (t *Tree) firstLeaf(ps *pool.Session, lay fence.Layout) (pool.Addr, error) {
	b, err := ps.Buffer(lay.NodeBytes)
	if err != nil {
		return pool.Nil, err
	}
	if _, ok := t.config.Leaves(&lay).(WordedLeaves); ok {
		if _, err := t.Pool.DeclareStrip(lay.NodeBytes); err != nil {
			return pool.Nil, err
		}
	}
	a, err := t.Pool.Allocate(lay.NodeBytes, pool.Nil)
	if err != nil {
		return pool.Nil, err
	}
	h := fence.Header{Version: unit.NewVersion(t.Env), Rightmost: true, Low: lay.Bottom, High: lay.NoHigh()}
	ps.Write(pool.Sole, a, b[:t.config.Leaves(&lay).BuildEmpty(b, a, &h)])
	return a, ps.Post()
}

// storedOptions are those that the superblock keeps.
func storedOptions(l *fence.Layout) meta.Options {
	return meta.Options{Uint64: l.Uint64, MaxKeyBytes: l.MaxKey, MaxValueBytes: l.MaxValue, InlineBytes: l.Inline, NodeBytes: l.NodeBytes, Neighbourhood: l.Neighbourhood}
}

// Stats implements index.Index.
func (t *Tree) Stats() index.Stats {
	stats := t.sessions.Stats(t.Pool, t.reads)
	stats.Merges, stats.Misled, stats.CacheBytes = t.merges.Load(), t.misled.Load(), uint64(t.cache.Bytes())
	return stats
}

// Close implements index.Index.
func (t *Tree) Close() error {
	if err := t.sessions.Close(); err != nil {
		return fmt.Errorf("close a %s index: %w", t.config.Design.Name, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.closeSettlers()
	if t.merger != nil {
		err = errors.Join(err, t.merger.close())
	}
	return err
}
