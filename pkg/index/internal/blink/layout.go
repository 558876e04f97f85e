// Package blink is a B-link tree on disaggregated memory, after Sherman (Wang, Lu, Shu: SIGMOD 2022): the node formats and the structure changes that
// designs share.
//
// Nodes of fixed size lie in the memory servers, and each has a sibling pointer and fence keys. Changes take a node's lock (hierarchical, in
// pkg/pool), one at a time; lookups and scans take none. Leaves are slotted and unsorted, and a change of one pair writes that
// entry and one slot word. docs/design/sherman.md says for each remote request what others may see after it and why that is safe. A
// design whose leaves have owners keeps some of them in a cache, dirty ones, too: see Keeper.
package blink

import (
	"fmt"
	"math/bits"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
)

// Limits of the formats: a slot word has 12 bits for an offset in units of 8 bytes, and 12 for a length in bytes.
const (
	maxNodeBytes  = 32 << 10
	minNodeBytes  = 256
	maxEntryBytes = 1<<12 - 1
	defaultNode   = 1 << 10
	leastInline   = 64  // what leaves are made large enough for
	mostInline    = 256 // and what they are not made larger for
	grain         = 8   // what offsets in a leaf count
)

// layout is what the formats of all nodes of one index depend on.
type layout struct {
	item.Codec
	nodeBytes int
	hints     bool // copies of inner nodes have room for a keeper's hints
}

// newLayout checks options and fills in defaults.
func newLayout(o index.Options) (l layout, err error) {
	if l.Codec, err = item.NewCodec(o); err != nil {
		return l, err
	}
	if l.nodeBytes = o.NodeBytes; l.MaxValue > blocks.MaxValue {
		return l, fmt.Errorf("values of at most %d bytes: %d are possible", l.MaxValue, blocks.MaxValue)
	}
	if o.InlineBytes == 0 {
		l.defaultInline()
	}
	if l.MaxKey > maxEntryBytes || l.LongestEntry() > maxEntryBytes {
		return l, fmt.Errorf("keys of %d bytes and values of %d in their entries: an entry has at most %d bytes together with %d of its own",
			l.MaxKey, l.Inline, maxEntryBytes, l.EntryBytes(0, 0))
	}
	least := l.leastNode()
	if l.nodeBytes == 0 {
		l.nodeBytes = defaultNodeFor(least)
	}
	if l.nodeBytes < least || l.nodeBytes > maxNodeBytes || l.nodeBytes%64 != 0 {
		return l, fmt.Errorf("nodes of %d bytes: keys of %d and values of %d bytes need a multiple of 64 from %d to %d",
			l.nodeBytes, l.MaxKey, l.MaxValue, (least+63)&^63, maxNodeBytes)
	}
	return l, nil
}

// defaultInline sets the inline size that a design without a wish has: all values, if they are short; else what fits leaves that are large enough for
// short ones. A longer value costs a lookup a round trip more, but a larger leaf costs all of them.
func (l *layout) defaultInline() {
	l.SetInline(min(l.MaxValue, mostInline))
	if !l.Blocks {
		return
	}
	node := l.nodeBytes
	if node == 0 {
		l.SetInline(leastInline)
		node = defaultNodeFor(l.leastNode())
	}
	for n := mostInline; n > 0; n -= grain {
		if l.SetInline(n); l.leastNode() <= node {
			return
		}
	}
}

func defaultNodeFor(least int) int { return max(defaultNode, 1<<bits.Len(uint(least-1))) }

// leastNode is the smallest node in which a split always makes room. Let m be the largest entry with its slot and K the longest
// fence. Splitting what fills a node and one entry more near the middle leaves at most (node+m)/2 + m/2 on a side, and that must
// fit beside two fences: node >= 2m + 4K + what is fixed. An inner node of that size has room for more than four children.
func (l *layout) leastNode() int {
	m := roundUp(l.LongestEntry()) + slotBytes
	return max(minNodeBytes, 2*m+4*roundUp(l.MaxKey)+2*HeaderBytes)
}

func roundUp(n int) int { return (n + grain - 1) &^ (grain - 1) }
