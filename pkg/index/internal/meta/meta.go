// Package meta has the options that an index was created with, as its superblock keeps them. Every
// client of an index opens it with the same ones.
package meta

import (
	"encoding/json"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Options are those that decide the format of an index. All are set: defaults are filled in.
type Options struct {
	Uint64        bool `json:"uint64"`
	MaxKeyBytes   int  `json:"maxKeyBytes"`
	MaxValueBytes int  `json:"maxValueBytes"`
	InlineBytes   int  `json:"inlineBytes"`
	NodeBytes     int  `json:"nodeBytes"`
	// of CHIME; 0 = the default, or the design has none
	Neighbourhood int `json:"neighbourhood,omitempty"`

	// Secret is that of the index; Open sets it
	Secret [2]uint64 `json:"-"`
}

// Index returns the options as package index has them.
func (o Options) Index() index.Options {
	return index.Options{
		Uint64: o.Uint64, MaxKeyBytes: o.MaxKeyBytes, MaxValueBytes: o.MaxValueBytes,
		InlineBytes: o.InlineBytes, NodeBytes: o.NodeBytes, Neighbourhood: o.Neighbourhood,
	}
}

// String is how error messages show options.
func (o Options) String() string {
	kind := "bytes"
	if o.Uint64 {
		kind = "uint64"
	}
	s := fmt.Sprintf(
		"%s keys of at most %d bytes, values of at most %d, those up to %d in their leaves, and nodes of %d",
		kind, o.MaxKeyBytes, o.MaxValueBytes, o.InlineBytes, o.NodeBytes)
	if o.Neighbourhood != 0 {
		s += fmt.Sprintf(" with neighbourhoods of %d", o.Neighbourhood)
	}
	return s
}

// Request is what a client opens an index with.
type Request struct {
	Design string
	Want   Options

	// AnyNode, AnyInline and AnyNeighbourhood: the client gave no size of nodes, no inline size, or
	// no neighbourhood. Then it takes those of the index, if there is one already.
	AnyNode, AnyInline, AnyNeighbourhood bool

	// Create makes the first node of a new index, whose secret this is, complete, and returns its
	// address. No other client knows it.
	Create func(secret [2]uint64) (pool.Addr, error)

	// Discard gives that node back: another client was faster, and its root counts.
	Discard func(pool.Addr)
}

// Open reads the superblock of an index, or creates the index. It returns the options that count
// and the root. ErrFormat: the index is of another design, or has other options.
func Open(ps *pool.Session, r *Request) (have Options, root pool.Addr, err error) {
	sb, root, err := ps.ReadSuperblock()
	if err == nil && root == pool.Nil {
		if root, err = create(ps, r); err == nil {
			sb, root, err = ps.ReadSuperblock()
		}
	}
	if err != nil {
		return have, pool.Nil, err
	}
	if sb.Design != r.Design {
		return have, pool.Nil, fmt.Errorf("the index is of design %q, not %q: %w",
			sb.Design, r.Design, index.ErrFormat)
	}
	if err := json.Unmarshal(sb.Options, &have); err != nil {
		return have, pool.Nil, fmt.Errorf("options in the superblock: %w: %w", err, index.ErrFormat)
	}
	want := r.Want
	if r.AnyNode {
		want.NodeBytes = have.NodeBytes
	}
	if r.AnyInline {
		want.InlineBytes = have.InlineBytes
	}
	if r.AnyNeighbourhood {
		want.Neighbourhood = have.Neighbourhood
	}
	if have != want {
		return have, pool.Nil, fmt.Errorf("the index was created with %v, not %v: %w",
			have, want, index.ErrFormat)
	}
	have.Secret = sb.Secret
	return have, root, nil
}

// create makes the first node, complete, and then the superblock that names it. If another client
// was faster, its root counts.
func create(ps *pool.Session, r *Request) (pool.Addr, error) {
	options, err := json.Marshal(r.Want)
	if err != nil {
		return pool.Nil, err
	}
	secret, err := ps.DecideSecret()
	if err != nil {
		return pool.Nil, err
	}
	ps.Begin() // until the node is written it may look like one that was given back
	defer ps.End()
	first, err := r.Create(secret)
	if err != nil {
		return pool.Nil, err
	}
	root, err := ps.CreateSuperblock(r.Design, options, first)
	if err == nil && root != first {
		r.Discard(first)
	}
	return root, err
}
