package btree

import (
	"bytes"

	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// CutLeaves is how a LeafLoader fills leaves.
type CutLeaves interface {
	// BeginLeaf begins a leaf: what the batch gets next is in it.
	BeginLeaf()

	// EndLeaf ends it, with these fences and this sibling, as the next one of the batch, and
	// returns its number there.
	EndLeaf(low, high []byte, sibling pool.Addr) int
}

// Cutter cuts the stream of pairs of a bulk load into leaves, for a LeafLoader, which has it in it
// and says where. A leaf is added to the batch when its sibling has a place. The first leaf has no
// place before there is another one: if it stays alone it takes that of the empty index.
type Cutter struct {
	*Builder
	leaves CutLeaves
	leaf   pool.Addr // being filled; Nil = the first one
	low    []byte    // its low fence
}

// Begin begins the first leaf of b.
func (c *Cutter) Begin(b *Builder, leaves CutLeaves) error {
	c.Builder, c.leaves, c.leaf, c.low = b, leaves, pool.Nil, bytes.Clone(b.t.Lay.Bottom)
	return c.begin()
}

// Low is the low fence of the leaf that is being filled.
func (c *Cutter) Low() []byte { return c.low }

// EntryOf makes the entry of a pair in dst. A long value gets a block, near the leaf.
func (c *Cutter) EntryOf(codec *item.Codec, dst, key, value []byte) ([]byte, error) {
	if !codec.InBlock(len(value)) {
		return codec.PutEntry(dst, key, value), nil
	}
	r, err := c.PutBlock(codec, value, c.leaf)
	if err != nil {
		return nil, err
	}
	return r.PutEntry(codec, dst, key), nil
}

// Cut ends the leaf that is being filled before key, which comes next, and begins another one.
func (c *Cutter) Cut(key []byte) (err error) {
	high := c.t.Lay.Separator(c.Last(), key)
	if c.leaf == pool.Nil {
		if c.leaf, err = c.AllocateLeaf(); err != nil {
			return err
		}
	}
	next, err := c.AllocateLeaf()
	if err != nil {
		return err
	}
	if err := c.end(high, next); err != nil {
		return err
	}
	c.leaf, c.low = next, append(c.low[:0], high...)
	return c.begin()
}

// begin hands the batch over if it is full.
func (c *Cutter) begin() error {
	if err := c.MayHandOver(); err != nil {
		return err
	}
	c.leaves.BeginLeaf()
	return nil
}

// end adds the leaf, which has its place, to the batch.
func (c *Cutter) end(high []byte, sibling pool.Addr) error {
	c.Batch.AddLeaf(c.leaves.EndLeaf(c.low, high, sibling), c.leaf, unit.NewVersion(c.Env()))
	return c.Raise(c.low, c.leaf)
}

// Finish implements LeafLoader.
func (c *Cutter) Finish() (alone bool, err error) {
	high := c.t.Lay.NoHigh()
	if c.leaf == pool.Nil {
		c.leaves.EndLeaf(c.low, high, pool.Nil)
		return true, nil
	}
	return false, c.end(high, pool.Nil)
}
