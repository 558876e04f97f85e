package dex

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/valuecache"
)

// longOptions are of an index whose values lie in blocks.
func longOptions(cacheBytes int) index.Options {
	return index.Options{Uint64: true, MaxValueBytes: 1000, InlineBytes: 16, NodeBytes: 512, CacheBytes: cacheBytes}
}

func longValue(n uint64, round byte) []byte {
	return bytes.Repeat([]byte{byte(n), byte(n >> 8), round}, 100+int(n%200))
}

// TestLongValuesAreKept: what a lookup READ from a block the next one does not, until the key has
// another value, or the range another epoch.
func TestLongValuesAreKept(t *testing.T) {
	const keys = 300
	// find no room: which values share a bucket rests on their blocks' addresses, and so on when
	// memory came back
	const few = keys / 20
	x, s := opened(t, longOptions(4<<20))
	round, order := byte(1), rand.New(rand.NewPCG(1, 2))
	write := func(n uint64) { mustDo(t, s.Upsert(scanKey(n), longValue(n, round))) }
	look := func(s *session) {
		for _, n := range order.Perm(keys) {
			got, err := s.Lookup(scanKey(uint64(n)), []byte("before "))
			if err != nil || !bytes.Equal(got, append([]byte("before "), longValue(uint64(n), round)...)) {
				t.Fatalf("key %d: %.40q, %v", n, got, err)
			}
		}
	}
	// reads are those of a look, but for those of inner nodes: while blocks are given back, copies
	// grow too old by time.
	reads := func() int {
		s, err := x.newSession()
		mustDo(t, err)
		before := x.Stats().CacheMisses
		n := readsOf(s, func() { look(s) })
		mustDo(t, s.Close()) // then its misses are told
		return n - int(x.Stats().CacheMisses-before)
	}
	for epoch := uint64(2); epoch < 4; epoch++ {
		for n := range uint64(keys) {
			write(n)
		}
		for i := 0; x.values.Wants() > 0 || i < 4; i++ { // it grows
			look(s)
		}
		if n := reads(); n > few {
			t.Errorf("%d READs of values that were READ before", n)
		}
		round++
		for n := range uint64(keys) {
			write(n)
		}
		if n := reads(); n > few {
			t.Errorf("%d READs of values that were written since, and whose keys had values here", n)
		}
		again(t, x, epoch)
		if n := reads(); n < keys {
			t.Errorf("%d READs of values of another epoch, want %d at least", n, keys)
		}
	}
	mustDo(t, s.Delete(scanKey(7)))
	if _, err := s.Lookup(scanKey(7), nil); err != index.ErrNotFound {
		t.Errorf("a key that was deleted: %v", err)
	}
}

// TestLongValuesTakeTheirShare: with more values than there is room for, they take half of the
// cache, which never has more bytes than it may, and what is popular is there.
func TestLongValuesTakeTheirShare(t *testing.T) {
	const keys, cacheBytes = 4000, 1 << 20
	x, s := opened(t, longOptions(cacheBytes))
	for n := range uint64(keys) {
		mustDo(t, s.Upsert(scanKey(n), longValue(n, 1)))
	}
	if x.values.Bytes() != 0 {
		t.Errorf("values have %d bytes before any was looked up", x.values.Bytes())
	}
	r := rand.New(rand.NewPCG(3, 4))
	zipf := rand.NewZipf(r, 1.1, 1, keys-1)
	look := func() {
		for range 20_000 {
			if _, err := s.Lookup(scanKey(zipf.Uint64()), nil); err != nil {
				t.Fatal(err)
			}
			if n := x.Stats().CacheBytes; n > cacheBytes {
				t.Fatalf("%d bytes in the cache, of %d", n, cacheBytes)
			}
		}
	}
	look()
	if n := x.values.Bytes(); n < cacheBytes/4 || n > cacheBytes/2 {
		t.Errorf("values have %d bytes of %d", n, cacheBytes)
	}
	if n := readsOf(s, look); n > 20_000/2 {
		t.Errorf("%d READs of 20,000 lookups, most of them of popular keys", n)
	}
	dst := make([]byte, 0, 1000)
	// of the key
	if n := testing.AllocsPerRun(1000, func() { dst, _ = s.Lookup(scanKey(zipf.Uint64()), dst[:0]) }); n != 1 {
		t.Errorf("%v allocations of a lookup", n)
	}
}

// TestLongValuesSettle: where frames cannot give what values need to grow, frames get back what was
// saved for that, and values do not want it any more.
func TestLongValuesSettle(t *testing.T) {
	const keys = 3000
	settled := 0
	for cacheBytes := 400 << 10; cacheBytes <= 1<<20; cacheBytes += 208 << 10 {
		x, s := opened(t, longOptions(cacheBytes))
		for n := range uint64(keys) {
			mustDo(t, s.Upsert(scanKey(n), longValue(n, 1)))
		}
		s.b.Begin() // as if inner nodes needed so many
		_, err := x.cache.Retire(int64(cacheBytes/4), s.back)
		s.b.End()
		mustDo(t, err)
		for i := 0; i < 5 || x.values.Wants() > 0; i++ {
			if i == 100 {
				t.Fatalf("a cache of %d bytes: values want %d bytes, and never get them", cacheBytes, x.values.Wants())
			}
			for n := range uint64(keys) {
				if _, err := s.Lookup(scanKey(n), nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		if x.budget.State().Saved >= int64(x.cache.FrameBytes()) {
			t.Errorf("a cache of %d bytes: %d bytes are saved for values that do not grow", cacheBytes, x.budget.State().Saved)
		}
		if n := x.Stats().CacheBytes; n > uint64(cacheBytes) {
			t.Errorf("%d bytes in a cache of %d", n, cacheBytes)
		}
		if x.values.Settled() {
			settled++
		}
	}
	if settled == 0 {
		t.Error("values got what they wanted in each cache: this tests nothing")
	}
}

// TestLongValuesAreCurrent: a value that was READ is not kept if its reference was taken out since.
func TestLongValuesAreCurrent(t *testing.T) {
	x, s := opened(t, longOptions(4<<20))
	key, first, second := scanKey(7), longValue(7, 1), longValue(7, 2)
	epoch := uint64(1)
	mustDo(t, s.Upsert(scanKey(8), first))
	for _, c := range []struct {
		name  string
		do    func()
		keeps bool
	}{
		{"nothing", func() {}, true},
		{"another key", func() { mustDo(t, s.Upsert(scanKey(8), second)) }, true},
		{"the leaf has left the cache", func() { mustDo(t, x.flushAll(true)) }, false},
		{"updated", func() { mustDo(t, s.Upsert(key, second)) }, false},
		{"deleted", func() { mustDo(t, s.Delete(key)) }, false},
		{"given and taken", func() { epoch++; again(t, x, epoch) }, false},
	} {
		for range 3 { // it grows
			mustDo(t, s.Upsert(key, first))
			if _, err := s.Lookup(key, nil); err != nil {
				t.Fatal(err)
			}
		}
		p, err := s.b.Descend(key)
		mustDo(t, err)
		f, fp := x.cache.Locate(&p), x.lay.Fingerprint(key)
		reference, _, st := f.Search(x.env, x.lay, p.Addr(), key, nil, fp)
		if st != frame.InBlock {
			t.Fatalf("%s: no reference", c.name)
		}
		var of valuecache.Tag
		of.Set(reference, x.ranges.Load().Span(0).Epoch)
		if _, kept := x.values.Get(&of, nil); !kept {
			t.Errorf("%s: a value that was looked up is not kept", c.name)
		}
		x.values.Drop(&of)
		c.do()
		s.tag = of
		s.blockSource = blockSource{f: f, leaf: p.Addr(), key: key, fp: fp}
		x.values.Put(&s.tag, first, s.refers)
		if _, kept := x.values.Get(&of, nil); kept != c.keeps {
			t.Errorf("%s: kept: %v, want %v", c.name, kept, c.keeps)
		}
		mustDo(t, s.Upsert(key, first))
		if _, kept := x.values.Get(&of, nil); kept && c.keeps {
			t.Errorf("%s: kept although nothing refers to it any more", c.name)
		}
	}
}
