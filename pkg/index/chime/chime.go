// Package chime is CHIME, a B+ tree with hopscotch leaves on disaggregated memory (Luo et al.: SOSP
// 2024). Its inner nodes, and changes of structure, are package btree's. What is here is the leaf,
// and operations that READ and WRITE pieces of it. docs/design/chime.md says for each remote
// request what others may see after it, and why that is safe.
package chime

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/loader"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Name of the design.
const Name = "chime"

// design is what the tree knows of it.
var design = index.Design{Name: Name, Number: 3, SharesAll: true, Switches: switches}

func init() {
	d := design
	d.Open = Open
	index.Register(d)
}

// tree is an open index of one client. It implements index.Index, index.Checker and index.Surveyor.
type tree struct {
	*btree.Tree
	shape
	with     techniques
	indirect bool      // keys lie in blocks
	hot      *hotspots // nil = without speculative reads
}

// Open opens the index in p, or creates it. The pool stays the caller's.
func Open(p *pool.Pool, o index.Options) (index.Index, error) {
	with, err := techniquesOf(o.Switches)
	if err != nil {
		return nil, fmt.Errorf("open a %s index: %w", Name, err)
	}
	t := &tree{with: with}
	if with.speculativeRead {
		if o.CacheBytes == 0 {
			o.CacheBytes = btree.DefaultCacheBytes
		}
		t.hot = newHotspots(min(mostHotspots, o.CacheBytes/hotShare))
		o.CacheBytes -= t.hot.bytes()
	}
	t.Tree, err = btree.Open(p, btree.Config{
		Design: design, Options: o,
		Layout:     newLayout,
		Leaves:     func(l *fence.Layout) btree.Leaves { return newLeaves(l) },
		Entries:    codecOf,
		ArenaBytes: batchBytes,

		DelegateReads: with.readDelegation,
	})
	if err != nil {
		return nil, err
	}
	t.shape, t.indirect = shapeOf(&t.Lay), indirect(&t.Lay)
	return t, nil
}

// Stats implements index.Index. The index cache is that of inner nodes and the hotspot buffer.
func (t *tree) Stats() index.Stats {
	st := t.Tree.Stats()
	if t.hot != nil {
		st.CacheBytes += uint64(t.hot.bytes())
		st.Speculated, st.SpeculatedRight = t.hot.speculated.Load(), t.hot.speculatedRight.Load()
	}
	return st
}

// Session implements index.Index.
func (t *tree) Session() (index.Session, error) {
	s, err := t.newSession()
	if err != nil {
		return nil, err
	}
	return s, nil
}

// BulkLoad implements index.Index.
func (t *tree) BulkLoad(source index.Pairs, parallel int) error {
	return t.Load(source, parallel, newLeafLoader(&t.shape), func() loader.Leaves { return &batch{shape: &t.shape} })
}

// Check implements index.Checker.
func (t *tree) Check() (index.Structure, error) { return t.Tree.Check(&leafChecker{t: t}) }

// Verifies implements index.Checker.
func (t *tree) Verifies(a pool.Addr, node []byte) bool {
	return t.Tree.Verifies(a, node) || t.codec.Blocks && blocks.Verify(a, node)
}

// explain says what failed. The answers of package index are returned bare elsewhere.
func explain(what string, err error) error { return fmt.Errorf("%s: %w", what, err) }
