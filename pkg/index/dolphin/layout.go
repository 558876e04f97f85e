package dolphin

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/sum/siphash"
)

// layout is what the bytes of an index depend on. It does not change while the index is open.
type layout struct {
	item.Codec
	art.Layout
	size    int  // bytes of a leaf
	words   bool // values are words at the end of their leaf
	most    int  // bytes of the largest record, with its value
	keysEnd int  // where records end is said before; the leaf's size, where keys differ in length

	secret siphash.Key // all zero until the index has one; no size depends on it
}

const (
	// defaultInline is the longest value that lies in its leaf, unless the options say otherwise
	defaultInline = 64
	// defaultLeaf is the size of a leaf with short keys and values. Inner nodes of a type take as
	// much, as the largest ones do, up to whose size leaves with longer ones grow: so what leaves
	// gave up can be inner nodes
	defaultLeaf = 1 << 10
	maxLeaf     = 64 << 10
	leastLeaf   = 256
	// usualRecords is how many records of the largest size a leaf of default size has room for, and
	// leastRecords any leaf: a split makes room for one more then
	usualRecords = 8
	leastRecords = 2
)

// newLayout checks options and fills in defaults.
func newLayout(o index.Options) (l layout, err error) {
	if l.Codec, err = item.NewCodec(o); err != nil {
		return l, err
	}
	if o.Neighbourhood != 0 {
		return l, fmt.Errorf("neighbourhoods of %d: the design has none, leave them out", o.Neighbourhood)
	}
	if o.InlineBytes == 0 {
		l.SetInline(min(defaultInline, l.MaxValue))
	}
	if l.MaxValue > blocks.MaxValue {
		return l, fmt.Errorf("values of at most %d bytes: the limit is %d", l.MaxValue, blocks.MaxValue)
	}
	l.words = !l.Blocks && l.MaxValue <= wordBytes
	inCell := l.Inline
	if l.Blocks {
		inCell = max(inCell, item.ReferenceBytes)
	}
	if l.MaxKey > mostKey || inCell > mostCell {
		return l, fmt.Errorf("keys of at most %d bytes, and values in leaves of at most %d: the limits are %d and %d", l.MaxKey, inCell, mostKey, mostCell)
	}
	l.most = wordBytes + padded(l.MaxKey) + wordBytes
	if !l.words {
		l.most += padded(inCell)
	}
	head := headBytes(l.MaxKey, l.MaxKey)
	l.size = o.NodeBytes
	if l.size == 0 {
		l.size = max(defaultLeaf, art.AllocatedFor(head+usualRecords*l.most))
		if largest := art.AllocatedFor(art.Direct.Bytes()); l.size > defaultLeaf && l.size < largest {
			l.size = largest
		}
	}
	if l.size%64 != 0 || l.size < leastLeaf || l.size > maxLeaf {
		return l, fmt.Errorf("leaves of %d bytes: a multiple of 64 from %d to %d, or 0", l.size, leastLeaf, maxLeaf)
	}
	if least := art.AllocatedFor(head + leastRecords*l.most); l.size < least {
		return l, fmt.Errorf("leaves of %d bytes: with keys of at most %d and %d bytes of a value in a leaf a split makes no room in less than %d; make leaves larger, or keys or inline values shorter",
			l.size, l.MaxKey, inCell, least)
	}
	// A bound can be a prefix of another one, whatever the keys are.
	l.Ends, l.LeafBytes, l.LoneLeaves = true, l.size, true
	l.keysEnd = l.size
	if l.words && l.Uint64 {
		l.keysEnd = 0
		for head := headBytes(0, 0); head <= headBytes(l.MaxKey, l.MaxKey); head += wordBytes {
			l.keysEnd = max(l.keysEnd, head+2*wordBytes*((l.size-head)/(3*wordBytes))+wordBytes)
		}
	}
	return l, nil
}

// padded is n rounded up to whole words.
func padded(n int) int { return (n + wordBytes - 1) &^ (wordBytes - 1) }
