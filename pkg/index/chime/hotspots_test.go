package chime

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/pool"
)

// TestHotspotsAreBounded: the buffer takes the bytes it is given at most, 16 for an entry, and no
// number of hits makes it larger.
func TestHotspotsAreBounded(t *testing.T) {
	for _, bytes := range []int{bucketBytes, bucketBytes + 1, 1000, 64 << 10, mostHotspots} {
		h := newHotspots(bytes)
		before := h.bytes()
		if before > bytes || before <= bytes/2-bucketBytes || len(h.buckets)*bucketEntries*16 != before {
			t.Errorf("a buffer for %d bytes has %d, in %d buckets", bytes, before, len(h.buckets))
		}
		for i := range 10_000 {
			h.recordLookup(pool.NewAddr(1, uint64(i)<<10), i%Span, uint16(i))
		}
		if h.bytes() != before {
			t.Errorf("%d bytes, then %d", before, h.bytes())
		}
	}
	if h := newHotspots(bucketBytes - 1); h != nil || h.bytes() != 0 {
		t.Error("there is a buffer without room for one bucket")
	}
}

// TestHotspotsAreTheFrequent: of more entries than a bucket has room for those stay that are hit
// most often, also beside many that come once; and one that is not hit any more is replaced.
func TestHotspotsAreTheFrequent(t *testing.T) {
	h := newHotspots(bucketBytes)
	leaf := func(i int) pool.Addr { return pool.NewAddr(1, uint64(1+i)<<12) }
	kept := func(i int) bool {
		slot, ok := h.hottest(leaf(i), uint16(i))
		if ok && slot != i%Span {
			t.Fatalf("entry %d is in slot %d", i, slot)
		}
		return ok
	}
	for range 8 {
		for i := range bucketEntries {
			h.recordLookup(leaf(i), i%Span, uint16(i))
		}
	}
	once := 1000
	for range 50 { // each of these is looked up once, the others go on being looked up
		h.recordLookup(leaf(once), once%Span, uint16(once))
		once++
		for i := range bucketEntries {
			if !kept(i) {
				t.Fatalf("entry %d had to go for one that was looked up once", i)
			}
			h.recordLookup(leaf(i), i%Span, uint16(i))
		}
	}
	// one of them is not looked up any more, and another one is
	for range 200 {
		for i := 1; i <= bucketEntries; i++ {
			h.recordLookup(leaf(i), i%Span, uint16(i))
		}
	}
	if kept(0) || !kept(bucketEntries) {
		t.Errorf("the entry that nobody looks up is there: %v; the one that took its place: %v", kept(0), kept(bucketEntries))
	}
}

// TestHotspotsAreToldApart: entries of one leaf with other fingerprints are other ones. One that is
// in another slot by now takes the place of its own.
func TestHotspotsAreToldApart(t *testing.T) {
	h := newHotspots(bucketBytes)
	a, b := pool.NewAddr(1, 1<<12), pool.NewAddr(2, 1<<12)
	h.recordLookup(a, 3, 77)
	for _, c := range []struct {
		leaf pool.Addr
		fp   uint16
	}{{a, 78}, {b, 77}} {
		if slot, ok := h.hottest(c.leaf, c.fp); ok {
			t.Errorf("leaf %v, fingerprint %d: slot %d", c.leaf, c.fp, slot)
		}
	}
	h.recordLookup(a, 9, 77) // it hopped
	if slot, ok := h.hottest(a, 77); !ok || slot != 9 {
		t.Errorf("slot %d, %v", slot, ok)
	}
}
