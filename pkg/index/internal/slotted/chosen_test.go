package slotted

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/sum/crctest"
	"github.com/dmindex/dmindex/pkg/sum/siphash"
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

// TestSumsFollowTheSecret: under another secret neither a header nor an entry verifies.
func TestSumsFollowTheSecret(t *testing.T) {
	l := mustLayout(t, index.Options{Uint64: true, MaxValueBytes: 8})
	other := *l
	other.SetSecret(siphash.Key{K0: 3, K1: 4})
	b := make([]byte, l.NodeBytes)
	Build(b, l, testAddr, &fence.Header{Version: 7, Rightmost: true, Low: l.Bottom, High: l.NoHigh()}, &Pairs{Lay: l}, 0, 0)
	var leaf Leaf
	if leaf.Open(&other, testAddr, b) {
		t.Error("a header verifies under the secret of another index")
	}
	leaf.Open(l, testAddr, b)
	leaf.Put(0, 0, leaf.Place(new(Space), 16), l.PutEntry(make([]byte, 16), make([]byte, 8), make([]byte, 8)))
	if leaf.Lay = &other; leaf.Verify() {
		t.Error("an entry verifies under the secret of another index")
	}
}

// TestTornChosenFence: a user inserts keys such that a leaf is divided at one that differs from its
// high fence by what a CRC-32C does not see. A READ beside the split that gets all of the new leaf
// but its high fence is torn: keys between the two fences are in the leaf's sibling.
func TestTornChosenFence(t *testing.T) {
	l := mustLayout(t, index.Options{Uint64: true, MaxValueBytes: 8})
	low := make([]byte, 8)
	binary.BigEndian.PutUint64(low, 1<<20)
	high := bytes.Clone(low)
	crctest.Change(high, 0)
	if bytes.Compare(low, high) > 0 {
		low, high = high, low
	}
	key := bytes.Clone(low) // the first one of the sibling
	build := func(version uint32, high []byte, sibling pool.Addr, keys ...[]byte) []byte {
		p := &Pairs{Lay: l, Image: make([]byte, fence.Grain)}
		for _, k := range keys {
			p.List = append(p.List, EntryAt{Off: uint32(len(p.Image)), N: 16})
			p.Image = append(p.Image, l.PutEntry(make([]byte, 16), k, make([]byte, 8))...)
		}
		b := make([]byte, l.NodeBytes)
		Build(b, l, testAddr, &fence.Header{Version: version, Low: l.Bottom, High: high, Sibling: sibling}, p, 0, len(keys))
		return b
	}
	before := build(7, high, testAddr+1024, make([]byte, 8), key)
	torn := build(8, low, testAddr+2048, make([]byte, 8))
	copy(torn[fence.HeaderBytes+8:][:8], before[fence.HeaderBytes+8:])
	var leaf Leaf
	if leaf.Open(l, testAddr, torn) {
		_, _, o := leaf.Find(key, l.Fingerprint(key))
		t.Errorf("a leaf with the fence from before the split verifies: outcome %d for key %x, range to %x", o, key, leaf.High)
	}
}
