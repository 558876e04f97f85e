// Package slottedtree is a B-link tree with slotted leaves: lookups, changes of pairs, scans and
// bulk loads in the memory servers, as Sherman does them (sections 4.3 to 4.5). Inner nodes and
// changes of structure are package btree's; the leaf's bytes are package slotted's.
//
// Three designs use it. Sherman is it, with its techniques as switches. P-Sherman is it with owners
// of leaves (own.go). DEX has it do what its cache of leaves cannot: changes for which a leaf has
// no room, replays, divisions at the ends of ranges, and scans. A design with leaves of another
// format does not use it, but package btree.
package slottedtree

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/checker"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/loader"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Config is what a design makes its tree of.
type Config struct {
	Design  index.Design
	Options index.Options

	// Cache is nil where all clients share all leaves.
	Cache btree.LeafCache

	// ArenaBytes returns how much of a session's arena the design needs; nil = nothing.
	ArenaBytes func(l *fence.Layout) int

	// NoHints is that of btree.Config.
	NoHints bool

	// Paths are those of btree.Config.
	Paths btree.PathCache

	// Techniques are those of package pool that the design's switches turn off.
	Techniques pool.Techniques

	// WholeLeaves makes a change of one entry write all of the leaf back, as FG does: without
	// two-level versions (section 4.4).
	WholeLeaves bool

	// Combine lets the holder of a leaf's lock carry out the changes of sessions that wait for it
	// (combine.go). Not with a Cache, which changes some leaves without their locks, unless Own is
	// set; and not with WholeLeaves.
	Combine bool

	// Own: the Cache keeps no leaves, but knows which are this client's. They are changed without
	// locks of the memory servers (own.go). Not with WholeLeaves.
	Own bool

	// DelegateReads is that of btree.Config.
	DelegateReads bool
}

// Tree is an open tree of one client. It implements index.Index, index.Checker and index.Surveyor.
type Tree struct {
	*btree.Tree
	wholeLeaves bool
	combines    bool
	own         bool
}

// Open opens the tree of a design in p, or creates it. The pool stays the caller's.
func Open(p *pool.Pool, c Config) (*Tree, error) {
	t, err := btree.Open(p, btree.Config{
		Design: c.Design, Options: c.Options, Cache: c.Cache, Techniques: c.Techniques, ArenaBytes: c.ArenaBytes, NoHints: c.NoHints, Paths: c.Paths,
		DelegateReads: c.DelegateReads,
		Layout:        slotted.NewLayout,
		Leaves:        func(l *fence.Layout) btree.Leaves { return &leaves{lay: l} },
	})
	if err != nil {
		return nil, err
	}
	return &Tree{Tree: t, wholeLeaves: c.WholeLeaves, combines: c.Combine && !c.WholeLeaves && (c.Cache == nil || c.Own), own: c.Own}, nil
}

// Layout is that of the tree's nodes.
func (t *Tree) Layout() *fence.Layout { return &t.Lay }

// Session implements index.Index.
func (t *Tree) Session() (index.Session, error) {
	s, err := t.NewSession()
	if err != nil {
		return nil, err
	}
	return s, nil
}

// BulkLoad implements index.Index.
func (t *Tree) BulkLoad(source index.Pairs, parallel int) error {
	return t.Load(source, parallel, &leafLoader{lay: &t.Lay}, func() loader.Leaves { return newBatch(&t.Lay) })
}

// Check implements index.Checker.
func (t *Tree) Check() (index.Structure, error) { return t.Tree.Check(new(leafChecker)) }

// Verifies implements index.Checker.
func (t *Tree) Verifies(a pool.Addr, node []byte) bool {
	return t.Tree.Verifies(a, node) || t.Lay.Blocks && blocks.Verify(a, node)
}

// leafChecker implements btree.LeafChecker.
type leafChecker struct{ pairs slotted.Pairs }

// CheckLeaf implements btree.LeafChecker.
func (c *leafChecker) CheckLeaf(s *btree.Session, r *checker.Report, a pool.Addr, b []byte) (bool, error) {
	var l slotted.Leaf
	p := &c.pairs
	if !l.Open(s.Lay, a, b) || !l.Collect(p) {
		return false, nil
	}
	p.Sort()
	for i := range p.List {
		key, value := p.Pair(i)
		if item.Below(key, l.Low) || l.Above(key) {
			r.Fault("leaf %v of %x to %x has key %x", a, l.Low, l.High, key)
		}
		if i > 0 && !item.Below(p.Key(i-1), key) {
			r.Fault("leaf %v has key %x twice", a, key)
		}
		length := len(value)
		if at, ok := blocks.ReferenceIn(&l.Lay.Codec, p.Entry(i)); ok {
			if length = at.Length; length > l.Lay.MaxValue {
				r.Fault("leaf %v has a value of %d bytes", a, length)
				continue
			}
			if err := r.Block(a, &at, &s.Blocks); err != nil {
				return true, err
			}
		}
		r.Pair(len(key), length)
	}
	var used slotted.HeapMap
	for i := range l.Count {
		w := l.SlotWord(i)
		first, end := slotted.SlotOffset(w)/fence.Grain, (slotted.SlotOffset(w)+slotted.SlotLength(w)+fence.Grain-1)/fence.Grain
		if slotted.SlotLength(w) != 0 && used.Next(first, end, true) != end {
			r.Fault("leaf %v: the entry of slot %d lies over another one", a, i)
		}
		used.Mark(first, end-first)
	}
	return true, nil
}

// explain says what failed. The answers of package index are returned bare elsewhere.
func explain(what string, err error) error { return fmt.Errorf("%s: %w", what, err) }
