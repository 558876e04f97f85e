package chime

import (
	"bytes"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/crc/crctest"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/siphash"
	"github.com/dmindex/dmindex/pkg/pool"
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
}

// TestEmptyLeafHasNoSecret: the leaf of an empty index is made before there is a secret, and
// verifies under the one that the index gets. An entry does not verify under another one.
func TestEmptyLeafHasNoSecret(t *testing.T) {
	l := newTestLeaf(t, Span, Neighbourhood)
	l.lay.Sums = nil
	l.build(&fence.Header{Version: testVersion, Rightmost: true, Low: l.lay.Bottom, High: l.lay.NoHigh()}, nil, nil)
	for secret := range uint64(3) {
		l.lay.SetSecret(siphash.Key{K0: 1, K1: secret})
		for i := range l.n {
			if e, v, ok := l.entry(i); !ok || e != nil || v != testVersion {
				t.Fatalf("slot %d: entry %x, version %d, %v", i, e, v, ok)
			}
		}
	}
	l.set(3, key64(1), key64(2))
	l.lay.SetSecret(siphash.Key{K0: 2, K1: 1})
	if _, _, ok := l.entry(3); ok {
		t.Error("an entry verifies under the secret of another index")
	}
}
