package btree

import (
	"math"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
)

// TestAhead: how much of a leaf's range lies ahead of a scan.
func TestAhead(t *testing.T) {
	const none, all, half = 0, part, part / 2
	text := func(s string) []byte { return []byte(s) }
	for _, c := range []struct {
		name      string
		o         index.Options
		low, high []byte // high is nil: the rightmost node
		sep       []byte
		child     int
		cursor    []byte
		up, down  int
	}{
		{"a quarter in", index.Options{Uint64: true}, number(0), number(2000), number(1000), 0, number(250), all - part/4, part / 4},
		{"the last child", index.Options{Uint64: true}, number(0), number(2000), number(1000), 1, number(1500), half, half},
		{"its begin", index.Options{Uint64: true}, number(0), number(2000), number(1000), 1, number(1000), all, none},
		{"all numbers", index.Options{Uint64: true}, number(0), number(math.MaxUint64), number(math.MaxUint64 - 1), 0, number(1 << 62), all - part/4, part / 4},
		{"below the leaf", index.Options{Uint64: true}, number(500), number(2000), number(1000), 0, number(0), all, none},
		{"above the leaf", index.Options{Uint64: true}, number(500), number(2000), number(1000), 0, number(1200), none, all},
		{"no upper end", index.Options{Uint64: true}, number(0), nil, number(1000), 1, number(1500), half, half},
		{"from the end on", index.Options{Uint64: true}, number(0), nil, number(1000), 1, nil, -1, all},
		{"text with a prefix", index.Options{MaxKeyBytes: 16}, text("user@"), text("userp"), text("userP"), 0, text("userH"), half, half},
		{"text without the prefix", index.Options{MaxKeyBytes: 16}, text("user@"), text("userp"), text("userP"), 0, text("us"), all, none},
		{"separators that look alike", index.Options{MaxKeyBytes: 16}, text(""), nil, text("a long prefix 1"), 0, text("a long"), none, all},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.MaxValueBytes = 8
			l := testLayout(t, c.o)
			d := &Draft{Low: c.low, High: c.high, Rightmost: c.high == nil, Level: 1, Separators: [][]byte{c.sep}}
			if d.Children = append(d.Children, 64, 128); d.Rightmost {
				d.High = l.NoHigh()
			}
			b := make([]byte, l.NodeBytes)
			d.Build(b, l, 4096, 1)
			n := decodeInner(l, 4096, b)
			if n == nil {
				t.Fatal("it does not decode")
			}
			if c.up >= 0 {
				if got := n.ahead(l, c.child, c.cursor, fence.Holding); got < c.up-1 || got > c.up+1 {
					t.Errorf("upwards %d of %d, want %d", got, part, c.up)
				}
			}
			if got := n.ahead(l, c.child, c.cursor, fence.Ending); got < c.down-1 || got > c.down+1 {
				t.Errorf("downwards %d of %d, want %d", got, part, c.down)
			}
		})
	}
}
