package slotted

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
)

const (
	// MaxEntryBytes is the size of the largest entry: a slot word has 12 bits for a length in
	// bytes.
	MaxEntryBytes = 1<<12 - 1

	defaultNode = 1 << 10
	leastInline = 64  // what leaves are made large enough for
	mostInline  = 256 // and what they are not made larger for
)

// NewLayout checks options and fills in defaults.
func NewLayout(o index.Options) (l fence.Layout, err error) {
	if l.Codec, err = item.NewCodec(o); err != nil {
		return l, err
	}
	if o.Neighbourhood != 0 {
		return l, errors.New("the design has no neighbourhoods")
	}
	if l.NodeBytes = o.NodeBytes; l.MaxValue > blocks.MaxValue {
		return l, fmt.Errorf("values of at most %d bytes: %d are possible", l.MaxValue, blocks.MaxValue)
	}
	if o.InlineBytes == 0 {
		defaultInline(&l)
	}
	if l.MaxKey > MaxEntryBytes || l.LongestEntry() > MaxEntryBytes {
		return l, fmt.Errorf("keys of %d bytes and values of %d in their entries: an entry has at most %d bytes together with %d of its own",
			l.MaxKey, l.Inline, MaxEntryBytes, l.EntryBytes(0, 0))
	}
	least := LeastNode(&l)
	if l.NodeBytes == 0 {
		l.NodeBytes = defaultNodeFor(least)
	}
	if l.NodeBytes < least || l.NodeBytes > fence.MaxNodeBytes || l.NodeBytes%64 != 0 {
		return l, fmt.Errorf("nodes of %d bytes: keys of %d and values of %d bytes need a multiple of 64 from %d to %d",
			l.NodeBytes, l.MaxKey, l.MaxValue, (least+63)&^63, fence.MaxNodeBytes)
	}
	return l, nil
}

// defaultInline sets the inline size that a design without a wish has: all values, if they are
// short; else what fits leaves that are large enough for short ones, and entries beside the longest
// key. A longer value costs a lookup a round trip more, but a larger leaf costs all of them.
func defaultInline(l *fence.Layout) {
	l.SetInline(min(l.MaxValue, mostInline))
	if !l.Blocks && l.LongestEntry() <= MaxEntryBytes {
		return
	}
	node := l.NodeBytes
	if node == 0 {
		l.SetInline(min(leastInline, l.MaxValue))
		node = defaultNodeFor(LeastNode(l))
	}
	for n := mostInline; n > 0; n -= fence.Grain {
		if l.SetInline(min(n, l.MaxValue)); LeastNode(l) <= node && l.LongestEntry() <= MaxEntryBytes {
			return
		}
	}
}

func defaultNodeFor(least int) int { return max(defaultNode, 1<<bits.Len(uint(least-1))) }

// LeastNode returns the smallest node in which a split always makes room. Let m be the largest
// entry with its slot and K the longest fence. Splitting what fills a node and one entry more near
// the middle leaves at most (node+m)/2 + m/2 on a side, and that must fit beside two fences: node
// >= 2m + 4K + what is fixed. An inner node of that size has room for more than four children.
func LeastNode(l *fence.Layout) int {
	m := fence.RoundUp(l.LongestEntry()) + SlotBytes
	return max(fence.MinNodeBytes, 2*m+4*fence.RoundUp(l.MaxKey)+2*fence.HeaderBytes)
}
