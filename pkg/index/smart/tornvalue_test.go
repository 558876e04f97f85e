package smart

import (
	"bytes"
	"testing"

	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/sum"
	"github.com/dmindex/dmindex/pkg/sum/crctest"
	"github.com/dmindex/dmindex/pkg/sum/siphash"
)

// TestTornChosenPrefix: users choose keys below a node, so that a CRC-32C does not tell the last
// word of its prefix from zeros. A READ beside the node's dead mark gets some words of the head and
// some of the mark. If it is the head of a node, it has the node's prefix.
func TestTornChosenPrefix(t *testing.T) {
	a := pool.NewAddr(1, 1<<20)
	prefix := make([]byte, mostPrefix)
	crctest.Change(prefix, mostPrefix-8)
	h := head{kind: firstType}
	h.setPrefix(3, prefix)
	before := h.build(testSums, make([]byte, firstType.bytes()), a, 7)
	after := bytes.Clone(before)
	unit.PutDead(after, a, uint8(firstType), 9)
	for seen := range 1 << (headBytes / 8) { // which words are from after
		read := bytes.Clone(before)
		for i := range headBytes / 8 {
			if seen>>i&1 != 0 {
				copy(read[8*i:8*i+8], after[8*i:])
			}
		}
		var got head
		if got.decode(testSums, read, a) && got != h {
			t.Errorf("words %03b are those of the mark: a node with prefix %x, not %x", seen, got.prefix, prefix)
		}
	}
}

// TestTornChosenValues: a user changes a value three times, the third time in several places of
// what it was first, in each by what a CRC-32C does not see. A READ beside the third change, which
// is in the cell of the first value, gets the control word of the first value or of the third, and
// any words of the cell from before and any from after. If the leaf verifies, it has one of the
// two.
func TestTornChosenValues(t *testing.T) {
	const words = 4
	a, key := pool.NewAddr(1, 1<<20), bytes.Repeat([]byte("key"), 6)
	value := bytes.Repeat([]byte("01234567"), words)
	now := bytes.Clone(value)
	crctest.Change(now, 0, 8, 16, 24)
	s := newShape(len(key), len(value))
	var l leaf
	b := l.build(testSums, s, make([]byte, s.allocated()), a, 7, key, &content{value: value})
	before := bytes.Clone(b)
	l.putCell(1, &content{value: []byte("another one")})
	l.setControl(1, alive)
	l.putCell(0, &content{value: now})
	l.setControl(0, alive)
	for control, image := range [][]byte{before, b} {
		for seen := range 1 << words { // which words of the value are from after
			read := bytes.Clone(image)
			for i := range words {
				from, at := before, l.cellAt(0)+cellHead+8*i
				if seen>>i&1 != 0 {
					from = b
				}
				copy(read[at:at+8], from[at:])
			}
			var got leaf
			if v := got.open(testSums, read, a); (v == whole) != bytes.Equal(read, image) {
				t.Errorf("control word %d, words %04b are new: verdict %d", control, seen, v)
			}
		}
	}
	var got leaf
	if v := got.open(sum.NewKey(siphash.Key{K0: 3, K1: 4}), b, a); v != torn {
		t.Errorf("under the secret of another index: verdict %d", v)
	}
}
