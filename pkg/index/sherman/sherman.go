// Package sherman is Sherman, a write-optimized B-link tree on disaggregated memory (Wang, Lu, Shu:
// SIGMOD 2022). Its inner nodes are package btree's. Its leaves, and the operations on them, are
// packages slotted's and slottedtree's, since DEX has them too. What is here is its techniques.
package sherman

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/slottedtree"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Name of the design.
const Name = "sherman"

// design is what the tree knows of it.
var design = index.Design{Name: Name, Number: 1, SharesAll: true, Switches: switches}

func init() {
	d := design
	d.Open = Open
	index.Register(d)
}

// Open opens the index in p, or creates it. The pool stays the caller's.
func Open(p *pool.Pool, o index.Options) (index.Index, error) {
	with, err := techniquesOf(o.Switches, p)
	if err != nil {
		return nil, fmt.Errorf("open a %s index: %w", Name, err)
	}
	t, err := slottedtree.Open(p, slottedtree.Config{
		Design: design, Options: o,
		Techniques:    pool.Techniques{Apart: !with.combine, Flat: !with.hierarchical},
		WholeLeaves:   !with.twoLevelVersions,
		Combine:       with.writeCombining,
		DelegateReads: with.readDelegation,
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}
