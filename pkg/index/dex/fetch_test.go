package dex

import (
	"errors"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
)

// remembering is an index whose cache is full of leaves that are looked for often, and a session of
// it whose last lookup READ the leaf at a, of the keys seven and eight, and did not keep it.
func remembering(t *testing.T) (x *dex, s *session, a pool.Addr) {
	t.Helper()
	x, s = opened(t, index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 256, CacheBytes: 16 << 10, Switches: map[string]bool{"offloading": false}})
	// Loaded, so that the same keys share a leaf each time. Where a leaf that fills up is divided
	// depends on what was written back by then.
	mustDo(t, x.BulkLoad(func(pair func(key, value []byte) bool) error {
		for n := range uint64(scanned) {
			if !pair(scanKey(n), []byte("first...")) {
				break
			}
		}
		return nil
	}, 1))
	again(t, x, 2)
	for range 40 {
		for n := uint64(scanned / 2); n < scanned; n++ {
			_, err := s.Lookup(scanKey(n), nil)
			mustDo(t, err)
		}
	}
	if n := readsOf(s, func() { mustHave(t, s, 7, "first...") }); n == 0 {
		t.Fatal("the lookup READ nothing")
	}
	next, err := s.b.Descend(scanKey(8))
	mustDo(t, err)
	p, err := s.b.Descend(scanKey(7))
	mustDo(t, err)
	if next.Addr() != p.Addr() {
		t.Fatalf("the keys seven and eight are in the leaves %v and %v, want one", p.Addr(), next.Addr())
	}
	if _, ok := s.b.Remembers(p.Addr()); !ok || x.cache.Find(p.Addr()) != nil {
		t.Fatalf("leaf %v is remembered: %v, in the cache: %v", p.Addr(), ok, x.cache.Find(p.Addr()) != nil)
	}
	return x, s, p.Addr()
}

func mustHave(t *testing.T, s *session, n uint64, want string) {
	t.Helper()
	if got, err := s.Lookup(scanKey(n), nil); err != nil || string(got) != want {
		t.Fatalf("key %d is %q, %v, want %q", n, got, err, want)
	}
}

// TestChangesUseWhatLookupsRead: a change READs nothing if the lookup before it has READ the leaf,
// unless the leaf is another one by now.
func TestChangesUseWhatLookupsRead(t *testing.T) {
	for _, c := range []struct {
		name  string
		do    func(t *testing.T, x *dex, s, other *session)
		reads bool
		eight string
	}{
		{"nothing", func(*testing.T, *dex, *session, *session) {}, false, "first..."},
		{"a scan elsewhere", func(t *testing.T, _ *dex, s, _ *session) {
			mustDo(t, s.Scan(scanKey(scanned-1), 1, false, func(_, _ []byte) bool { return true }))
		}, false, "first..."},
		{"changed, and has a frame", func(t *testing.T, _ *dex, _, other *session) {
			mustDo(t, other.Upsert(scanKey(8), []byte("second..")))
		}, false, "second.."},
		{"changed, and has left the cache", func(t *testing.T, x *dex, _, other *session) {
			mustDo(t, other.Upsert(scanKey(8), []byte("second..")))
			mustDo(t, x.flushAll(true))
		}, true, "second.."},
		{"given and taken", func(t *testing.T, x *dex, _, _ *session) { again(t, x, 3) }, true, "first..."},
		{"a part given, changed by another one, and taken", func(t *testing.T, x *dex, _, other *session) {
			mustGive(t, x, nil, scanKey(8))
			mustDo(t, other.Upsert(scanKey(8), []byte("second..")))
			mustDo(t, x.Take(pool.Holding{End: scanKey(8), Epoch: 3}))
		}, true, "second.."},
		{"split", func(t *testing.T, x *dex, _, other *session) {
			for n := range uint64(40) {
				mustDo(t, other.Upsert(append(scanKey(7)[:7], byte(n+1)), []byte("between.")))
			}
			mustDo(t, other.Upsert(scanKey(8), []byte("second..")))
			mustDo(t, x.flushAll(true))
		}, true, "second.."},
		{"merged", func(t *testing.T, x *dex, _, other *session) {
			for n := range uint64(60) {
				if n != 7 && n != 8 {
					mustDo(t, other.Delete(scanKey(n)))
				}
			}
			mustDo(t, other.Upsert(scanKey(8), []byte("second..")))
			mustDo(t, x.flushAll(true))
		}, true, "second.."},
		{"another leaf READ since", func(t *testing.T, _ *dex, s, _ *session) {
			if n := readsOf(s, func() { mustHave(t, s, 100, "first...") }); n == 0 {
				t.Fatal("the lookup READ nothing")
			}
		}, true, "first..."},
		{"buffer used since", func(_ *testing.T, _ *dex, s, _ *session) { clear(s.b.Staging()) }, true, "first..."},
	} {
		t.Run(c.name, func(t *testing.T) {
			x, s, a := remembering(t)
			other, err := x.newSession()
			mustDo(t, err)
			since, _ := s.b.Remembers(a)
			c.do(t, x, s, other)
			before := x.fetched.Load()
			mustDo(t, s.Update(scanKey(7), []byte("third...")))
			reads := x.fetched.Load() > before
			// what was evicted may share its time with the leaf
			if evicted := x.cache.Clock.After(a, since); reads != c.reads && !(reads && evicted) {
				t.Errorf("leaf %v was READ: %v, and was evicted: %v", a, reads, evicted)
			}
			for range 2 {
				mustHave(t, other, 7, "third...")
				mustHave(t, other, 8, c.eight)
				mustDo(t, x.flushAll(true)) // and what is in the memory servers
			}
			mustDo(t, other.Close())
			if _, err := x.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestBulkLoadLetsLeavesDepart: what was READ of the leaf of an empty index is nothing any more
// when that is loaded.
func TestBulkLoadLetsLeavesDepart(t *testing.T) {
	x, s := opened(t, index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 256, CacheBytes: 1 << 20, Switches: map[string]bool{"frequencies": false}})
	for try := 0; ; try++ {
		if _, err := s.Lookup(scanKey(7), nil); !errors.Is(err, index.ErrNotFound) {
			t.Fatal(err)
		}
		p, err := s.b.Descend(scanKey(7))
		mustDo(t, err)
		since, ok := s.b.Remembers(p.Addr())
		if !ok { // one leaf in ten is kept
			if try > 1000 {
				t.Fatal("the leaf is never remembered")
			}
			mustDo(t, x.flushAll(true))
			continue
		}
		if !x.cache.Current(p.Addr(), since) {
			t.Error("the leaf was evicted before the load")
		}
		mustDo(t, x.BulkLoad(func(pair func(key, value []byte) bool) error {
			for n := range uint64(scanned) {
				pair(scanKey(n), []byte("first..."))
			}
			return nil
		}, 1))
		if x.cache.Current(p.Addr(), since) {
			t.Error("the leaf is still there when the index is loaded")
		}
		mustDo(t, s.Update(scanKey(7), []byte("third...")))
		mustHave(t, s, 7, "third...")
		mustHave(t, s, 8, "first...")
		return
	}
}
