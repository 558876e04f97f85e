package dex

import (
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// TestDeferredChangesOfEntryMakeRoom changes an entry again and again, without a wait for the log,
// until its records have filled a small ring several times. Nobody else posts the batch with the
// last record, and the one before it has to stay until then.
func TestDeferredChangesOfEntryMakeRoom(t *testing.T) {
	x, s := openedIn(t, pooltest.Options{Provider: "shm", Chunks: 256, ChunkBytes: 128 << 10},
		index.Options{Uint64: true, MaxValueBytes: 16, NodeBytes: 256, CacheBytes: 16 << 10})
	key := cached(t, s, []byte("12345678"))
	s.SetLimit(2 * time.Second)
	s.Defer(true)
	ring := int(x.log.Ref().Bytes)
	superseded := func() int {
		x.dirty.mu.Lock()
		defer x.dirty.mu.Unlock()
		return x.dirty.changes.superseded
	}
	// a record has more than its key and value, so these fill the ring thrice at least
	for i, enough := 0, 3*ring/16; superseded() < enough; i++ {
		if i > 20*enough {
			t.Fatalf("%d of %d changes were those of an entry that was changed before: this tests nothing", superseded(), i)
		}
		if !x.cache.rows.hasEntry(key) { // the writer has made it its leaf's
			key = cachedAgain(t, s)
		}
		if err := s.Update(key, []byte("abcdefgh")); err != nil {
			t.Fatalf("after %d changes, with %d of %d bytes of the log in use: %v", i, x.log.Used(), ring, err)
		}
	}
	if err := s.Durable(s.Position()); err != nil {
		t.Fatal(err)
	}
}
