package slottedtree

import (
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
)

// Session implements index.Session.
type Session struct {
	btree.Session
	op.Direct
	t *Tree

	made    []byte        // the entry of the change under way, if it is made already
	scratch []byte        // an entry on its way into a leaf
	old     []byte        // a value that Modify tells of
	heap    slotted.Space // what is in use of Node
	pairs   slotted.Pairs
	scan    scanned
	batch   *round  // of LookupBatch; nil before the first one
	growing growing // a leaf on its way to several
	group   group   // of changes that it carries out

	needsLock bool // of the next leaf, also if it is this client's; see own.go
}

// NewSession makes a session.
func (t *Tree) NewSession() (*Session, error) {
	s := &Session{t: t, scratch: make([]byte, slotted.MaxEntryBytes)}
	if err := t.OpenSession(&s.Session); err != nil {
		return nil, err
	}
	s.pairs.List = make([]slotted.EntryAt, 0, t.Lay.NodeBytes/slotted.SlotBytes)
	return s, nil
}
