package dex

import (
	"encoding/binary"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
)

// TestDivisionKeepsHints: a division makes this client's copy of the parent anew, and the slots
// lead to the frames of all leaves that were there before.
func TestDivisionKeepsHints(t *testing.T) {
	x, s := opened(t, index.Options{Uint64: true, MaxValueBytes: 8, CacheBytes: 1 << 20})
	const keys, apart = 1000, 1 << 20
	number := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
	find := func() (without int) {
		for n := range uint64(keys) {
			if _, hint := s.b.DescendCached(number(n * apart)); hint == 0 {
				without++
			}
			_, err := s.Lookup(number(n*apart), nil)
			mustDo(t, err)
		}
		return without
	}
	for n := range uint64(keys) {
		mustDo(t, s.Upsert(number(n*apart), []byte("value")))
	}
	find()
	if n := find(); n > 0 {
		t.Fatalf("the slots lead to no frame with %d of %d keys that were looked up", n, keys)
	}
	divided := x.presplits.divided.Load()
	for n := uint64(1); x.presplits.divided.Load() == divided; n++ {
		mustDo(t, s.Upsert(number(keys/2*apart+n), []byte("value")))
	}
	if n := find(); n > 3 { // the new leaf has a slot without a frame
		t.Errorf("behind one division the slots lead to no frame with %d of %d keys", n, keys)
	}
}
