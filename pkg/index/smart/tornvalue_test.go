package smart

import (
	"bytes"
	"testing"

	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/sum"
	"github.com/dmindex/dmindex/pkg/sum/crctest"
	"github.com/dmindex/dmindex/pkg/sum/siphash"
)

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
