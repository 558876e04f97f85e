// Package sherman is Sherman, a write-optimized B-link tree on disaggregated memory (Wang, Lu, Shu:
// SIGMOD 2022). Package blink has the tree.
package sherman

import (
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blink"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Name of the design.
const Name = "sherman"

func init() {
	index.Register(index.Design{Name: Name, SharesAll: true, Switches: blink.Switches, Open: Open})
}

// Open opens the index in p, or creates it. The pool stays the caller's.
func Open(p *pool.Pool, o index.Options) (index.Index, error) {
	t, err := blink.Open(p, o, Name, nil)
	if err != nil {
		return nil, err
	}
	return t, nil
}
