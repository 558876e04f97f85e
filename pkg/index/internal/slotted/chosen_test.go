package slotted

import (
	"bytes"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/crc/crctest"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/siphash"
)

// TestTornChosenValues: a user changes a value in several places, in each by what a CRC-32C does
// not see. A READ beside the change gets any words of the entry from before and any from after,
// with the slot from before or from after. If the slot verifies, it has one of the two values.
func TestTornChosenValues(t *testing.T) {
	const words = 4
	for _, o := range []index.Options{{Uint64: true, MaxValueBytes: 8 * words}, {MaxKeyBytes: 6, MaxValueBytes: 8 * words}} {
		l := mustLayout(t, o)
		key := []byte("a key!")
		if l.Uint64 {
			key = []byte("a number")
		}
		value := bytes.Repeat([]byte("01234567"), words)
		now := bytes.Clone(value)
		crctest.Change(now, 0, 8, 16, 24)
		b := make([]byte, l.NodeBytes)
		Build(b, l, testAddr, &fence.Header{Version: 7, Rightmost: true, Low: l.Bottom, High: l.NoHigh()}, &Pairs{Lay: l}, 0, 0)
		var leaf Leaf
		if !leaf.Open(l, testAddr, b) {
			t.Fatal("no leaf")
		}
		fp, off := l.Fingerprint(key), leaf.Place(new(Space), 64)
		put := func(value []byte) []byte {
			leaf.Put(3, fp, off, l.PutEntry(make([]byte, 64), key, value))
			return bytes.Clone(b)
		}
		before, after := put(value), put(now)
		for slot, whole := range [][]byte{before, after} {
			for seen := range 1 << words { // which words of the value are from after
				torn := bytes.Clone(whole)
				for i := range words {
					from, at := before, off+l.ValueAt(len(key))+8*i
					if seen>>i&1 != 0 {
						from = after
					}
					copy(torn[at:at+8], from[at:])
				}
				var r Leaf
				if !r.Open(l, testAddr, torn) {
					t.Fatal("no leaf")
				}
				_, _, o := r.Find(key, fp)
				if want := map[bool]Outcome{true: Present, false: Torn}[bytes.Equal(torn, whole)]; o != want {
					t.Errorf("uint64 %v, slot %d, words %04b are new: outcome %d, want %d", l.Uint64, slot, seen, o, want)
				}
			}
		}
	}
}

// TestSumsFollowTheSecret: under another secret no entry verifies, and what is empty does: the
// leaf of an empty index is made before there is a secret.
func TestSumsFollowTheSecret(t *testing.T) {
	l := mustLayout(t, index.Options{Uint64: true, MaxValueBytes: 8})
	other, none := *l, *l
	other.SetSecret(siphash.Key{K0: 3, K1: 4})
	none.Sums = nil
	b := make([]byte, l.NodeBytes)
	Build(b, &none, testAddr, &fence.Header{Version: 7, Rightmost: true, Low: l.Bottom, High: l.NoHigh()}, &Pairs{Lay: l}, 0, 0)
	var leaf Leaf
	for _, lay := range []*fence.Layout{l, &other, &none} {
		if !leaf.Open(lay, testAddr, b) || !leaf.Verify() {
			t.Error("an empty leaf does not verify")
		}
	}
	leaf.Open(l, testAddr, b)
	leaf.Put(0, 0, leaf.Place(new(Space), 16), l.PutEntry(make([]byte, 16), make([]byte, 8), make([]byte, 8)))
	if leaf.Open(&other, testAddr, b); leaf.Verify() {
		t.Error("an entry verifies under the secret of another index")
	}
}
