package indextest

import (
	"errors"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// crowdedCache bounds the cache of a client that cannot keep what a test uses: what it needs next
// is evicted while others use it, and changes are written back for it. DEX keeps eight leaves at
// least, so a test has more for each client, of small nodes where its values are short.
const crowdedCache = 4 << 10

// caches are the bounds with which a test of concurrent clients runs: the design's own, which holds
// everything, and one that must evict.
func caches(o index.Options) []index.Options {
	crowded := o
	crowded.CacheBytes = crowdedCache
	if o.Uint64 && o.MaxValueBytes <= 40 {
		crowded.NodeBytes = 256
	}
	return []index.Options{o, crowded}
}

// cacheName is a part of the name of a test.
func cacheName(o index.Options) string {
	if o.CacheBytes != 0 {
		return "/crowded"
	}
	return ""
}

// evicts checks that the clients of a crowded test cannot keep what it used: they have to READ it
// again and again.
func evicts(t testing.TB, o index.Options, indexes []index.Index, keys [][]byte) {
	t.Helper()
	if o.CacheBytes == 0 || t.Failed() {
		return
	}
	reads := func() (n uint64) {
		for _, x := range indexes {
			n += x.Stats().Verbs.Requests[verbs.Read]
		}
		return n
	}
	s := session(t, indexes[0])
	pass := func() uint64 {
		before := reads()
		for _, k := range keys {
			if _, err := s.Lookup(k, nil); err != nil && !errors.Is(err, index.ErrNotFound) {
				t.Fatal(err)
			}
		}
		return reads() - before
	}
	pass()
	if n := pass(); n < 4 {
		t.Errorf("clients with a cache of %d bytes READ %d times to look for %d keys that they looked for before", o.CacheBytes, n, len(keys))
	}
}
