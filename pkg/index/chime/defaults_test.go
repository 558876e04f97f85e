package chime

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
)

// TestDefaultsFitEveryLength: an index whose options name no size of nodes can be made for keys and
// values of every length, and opened again with the options that its superblock then has.
func TestDefaultsFitEveryLength(t *testing.T) {
	for _, value := range []int{0, 1, 8, 100, 256, 257, 4096, blocks.MaxValue - maxEntry - pairHead} {
		for _, hood := range []int{0, leastNeighbourhood, mostNeighbourhood} {
			for key := 1; key <= maxEntry-64; key++ {
				o := index.Options{MaxKeyBytes: key, MaxValueBytes: value, Neighbourhood: hood}
				l, err := newLayout(o)
				if err != nil {
					t.Fatalf("%+v: %v", o, err)
				}
				if s := shapeOf(&l); s.n < leastSlots || s.end() > l.NodeBytes {
					t.Fatalf("%+v: nodes of %d bytes have %d slots, which end at %d", o, l.NodeBytes, s.n, s.end())
				}
				o.NodeBytes, o.InlineBytes = l.NodeBytes, l.Inline
				again, err := newLayout(o)
				if err != nil || again.NodeBytes != l.NodeBytes || again.Inline != l.Inline || again.Blocks != l.Blocks {
					t.Fatalf("%+v: nodes of %d bytes and %d in place, opened with %d and %d: %v", o, l.NodeBytes, l.Inline, again.NodeBytes, again.Inline, err)
				}
			}
		}
	}
}
