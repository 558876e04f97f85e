package smart

import (
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
)

// layout is what the bytes of an index depend on. It does not change while the index is open.
type layout struct {
	item.Codec
	art.Layout
	maxLeaf  int // bytes of the largest leaf
	maxRead  int // what is READ of a leaf at most; smaller ones may fill their memory better
	nodeSize int // what was asked for as the size of nodes: a leaf is not larger; 0 = any
}

const (
	// defaultInline is the longest value that lies in its leaf, unless the options say otherwise
	defaultInline = 256
	maxNodeBytes  = 64 << 10
)

// newLayout checks options and fills in defaults.
func newLayout(o index.Options) (l layout, err error) {
	if l.Codec, err = item.NewCodec(o); err != nil {
		return l, err
	}
	if o.Neighbourhood != 0 {
		return l, errors.New("the design has no neighbourhoods")
	}
	if o.InlineBytes == 0 {
		l.SetInline(min(defaultInline, l.MaxValue))
	}
	// with uint64 keys no key is a prefix of another one
	l.Ends, l.nodeSize = !l.Uint64, o.NodeBytes
	if l.MaxValue > blocks.MaxValue {
		return l, fmt.Errorf("values of at most %d bytes: the limit is %d", l.MaxValue, blocks.MaxValue)
	}
	largest := l.Inline
	if l.Blocks {
		largest = max(largest, referenceBytes)
	}
	most := newShape(l.MaxKey, largest)
	l.maxLeaf, l.maxRead = most.bytes(), most.allocated()
	limit := art.MostLeafBytes
	if o.NodeBytes != 0 {
		if o.NodeBytes < 0 || o.NodeBytes > maxNodeBytes || o.NodeBytes%8 != 0 {
			return l, fmt.Errorf("nodes of %d bytes: a multiple of 8 up to %d, or 0", o.NodeBytes, maxNodeBytes)
		}
		limit = min(limit, o.NodeBytes)
	}
	if l.maxLeaf > limit {
		return l, fmt.Errorf("a leaf of a key of %d bytes and a value of %d in it has %d, at most %d are possible", l.MaxKey, largest, l.maxLeaf, limit)
	}
	l.MostLeaf = uint8(art.LeafCode(l.maxRead))
	return l, nil
}
