package btree

import (
	"bytes"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/sum/crctest"
)

// TestTornChosenSeparator: a user inserts keys such that a separator of an inner node takes the
// place of one that differs from it by what a CRC-32C does not see. A READ beside the rewrite that
// gets the former separator is torn: it would lead keys between the two to the wrong leaf.
func TestTornChosenSeparator(t *testing.T) {
	for _, o := range []index.Options{{Uint64: true, MaxValueBytes: 8}, {MaxKeyBytes: 16, MaxValueBytes: 8}} {
		l := testLayout(t, o)
		old := bytes.Repeat([]byte{0x40}, l.MaxKey)
		now := bytes.Clone(old)
		crctest.Change(now, l.MaxKey-8)
		build := func(version uint32, separator []byte) []byte {
			d := &Draft{Low: l.Bottom, High: l.NoHigh(), Rightmost: true, Level: 1, Children: []pool.Addr{4096, 8192}, Separators: [][]byte{separator}}
			b := make([]byte, l.NodeBytes)
			return b[:d.Build(b, l, testAddr, version)]
		}
		before, after := build(5, old), build(6, now)
		if decodeInner(l, testAddr, before) == nil || decodeInner(l, testAddr, after) == nil {
			t.Fatal("no inner nodes")
		}
		torn := bytes.Clone(after)
		copy(torn[len(torn)-8:], before[len(before)-8:])
		if bytes.Equal(torn, after) || decodeInner(l, testAddr, torn) != nil {
			t.Errorf("uint64 %v: an inner node with a separator from before its rewrite verifies", l.Uint64)
		}
	}
}
