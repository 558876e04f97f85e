package chime

import (
	"bytes"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/sum/crctest"
	"github.com/dmindex/dmindex/pkg/sum/siphash"
)

// TestTornChosenValues: a user changes a value in several places, in each by what a CRC-32C does
// not see. A READ beside the change gets any words of the slot from before and any from after. If
// the slot verifies, it has one of the two values.
func TestTornChosenValues(t *testing.T) {
	const words = 4
	lay, err := newLayout(index.Options{Uint64: true, MaxValueBytes: 8 * words})
	if err != nil {
		t.Fatal(err)
	}
	lay.SetSecret(siphash.Key{K0: 1, K1: 2})
	s := shapeOf(&lay)
	l := &leaf{shape: &s, addr: pool.NewAddr(1, 1<<20), b: make([]byte, lay.NodeBytes)}
	l.build(&fence.Header{Version: testVersion, Rightmost: true, Low: lay.Bottom, High: lay.NoHigh()}, nil, nil)
	key, value := key64(5), bytes.Repeat([]byte("01234567"), words)
	now := bytes.Clone(value)
	crctest.Change(now, 0, 8, 16, 24)
	home := l.home(key)
	l.set(home, key, value)
	before := bytes.Clone(l.b)
	l.put(home, testVersion, l.codec.PutEntry(make([]byte, maxEntry), key, now)) // an update
	for head, whole := range [][]byte{before, l.b} {
		for seen := range 1 << words { // which words of the value are from after
			torn := leaf{&s, l.addr, bytes.Clone(whole)}
			for i := range words {
				from, at := before, l.slotAt(home)+slotHead+8+8*i
				if seen>>i&1 != 0 {
					from = l.b
				}
				copy(torn.b[at:at+8], from[at:])
			}
			_, _, o := torn.find(key, home, testVersion)
			if (o == present) != bytes.Equal(torn.b, whole) {
				t.Errorf("head %d, words %04b are new: outcome %d", head, seen, o)
			}
		}
	}
	lay.SetSecret(siphash.Key{K0: 3, K1: 4})
	if _, _, ok := l.entry(home); ok {
		t.Error("an entry verifies under the secret of another index")
	}
}

// TestTornChosenFence: a user inserts keys such that a leaf's high fence takes the place of one
// that differs from it by what a CRC-32C does not see. A READ beside the split that gets the
// former fence is torn.
func TestTornChosenFence(t *testing.T) {
	l := newTestLeaf(t, Span, Neighbourhood)
	high, former := key64(1<<20), key64(1<<20)
	crctest.Change(former, 0)
	h := fence.Header{Version: testVersion, Low: l.lay.Bottom, High: former, Sibling: 4096}
	l.build(&h, nil, nil)
	before := bytes.Clone(l.b)
	h.Version, h.High, h.Sibling = testVersion+1, high, 8192
	l.build(&h, nil, nil)
	if _, ok := l.open(); !ok {
		t.Fatal("no leaf")
	}
	copy(l.b[h.End-8:h.End], before[h.End-8:])
	if got, ok := l.open(); ok {
		t.Errorf("a leaf with a fence from before its split verifies: it ends at %x", got.High)
	}
}
