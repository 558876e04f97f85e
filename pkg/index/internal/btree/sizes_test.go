package btree

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool"
)

// TestInnerSizes grows inner nodes of many sizes until they are divided, joins their halves, and
// removes all children but one.
func TestInnerSizes(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, o := range []index.Options{
		{Uint64: true}, {MaxKeyBytes: 1}, {MaxKeyBytes: 40}, {MaxKeyBytes: 256}, {MaxKeyBytes: 2000}, {MaxKeyBytes: 4093},
	} {
		lay := testLayout(t, o)
		for least := slotted.LeastNode(lay); lay.NodeBytes <= fence.MaxNodeBytes; lay.NodeBytes += 64 * 53 {
			if lay.NodeBytes >= least {
				growInner(t, lay, r)
			}
		}
	}
}

func growInner(t *testing.T, lay *fence.Layout, r *rand.Rand) {
	t.Helper()
	b := make([]byte, lay.NodeBytes)
	d := &Draft{Low: lay.Bottom, High: lay.NoHigh(), Rightmost: true, Level: 1, Children: []pool.Addr{64}}
	for n := 0; n < 10000; n++ {
		sep := longKey(lay, r)
		i, found := slices.BinarySearchFunc(d.Separators, sep, bytes.Compare)
		if found || !item.Below(d.Low, sep) {
			continue
		}
		d.insert(i, sep, pool.Addr(64*(n+2)))
		if d.Bytes(lay) <= lay.NodeBytes {
			continue
		}
		count := len(d.Children)
		right, _ := d.split(lay, n%2 == 0)
		if len(d.Children)+len(right.Children) != count || len(d.Children) == 0 || len(right.Children) == 0 {
			t.Fatalf("nodes of %d bytes: an inner node of %d children is divided into %d and %d", lay.NodeBytes, count, len(d.Children), len(right.Children))
		}
		for _, half := range []*Draft{d, right} {
			if size := half.Bytes(lay); size > lay.NodeBytes {
				t.Fatalf("nodes of %d bytes: half of an inner node of %d children, %d of them, takes %d bytes", lay.NodeBytes, count, len(half.Children), size)
			}
			n := half.Build(b, lay, testAddr, 1)
			if got := decodeInner(lay, testAddr, b[:n]); got == nil || len(got.children) != len(half.Children) {
				t.Fatalf("nodes of %d bytes: half of an inner node does not decode", lay.NodeBytes)
			}
		}
		for len(d.Children)+len(right.Children) > 2 && (len(right.Children) > 1 || len(d.Children) > 1) {
			if len(right.Children) > 1 {
				right.remove(len(right.Children) - 1)
			} else {
				d.remove(len(d.Children) - 1)
			}
		}
		d.join(right)
		d.Build(b, lay, testAddr, 2)
		return
	}
}

// longKey draws a key: mostly one of the longest, or of the shortest. Long ones have much in
// common, so that separators are long.
func longKey(lay *fence.Layout, r *rand.Rand) []byte {
	key := make([]byte, lay.MaxKey)
	if !lay.Uint64 {
		key = key[:[]int{len(key), len(key), 0, r.IntN(len(key) + 1)}[r.IntN(4)]]
	}
	for i := range key {
		if key[i] = byte(r.Uint32()); len(key) > 100 && i < len(key)-4 {
			key[i] = 7
		}
	}
	return key
}
