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

// design is what the tree knows of it.
var design = index.Design{Name: Name, Number: 1, SharesAll: true, Switches: blink.Switches}

func init() {
	d := design
	d.Open = Open
	index.Register(d)
}

// Open opens the index in p, or creates it. The pool stays the caller's.
func Open(p *pool.Pool, o index.Options) (index.Index, error) {
	t, err := blink.Open(p, o, design, nil)
	if err != nil {
		return nil, err
	}
	return t, nil
}
