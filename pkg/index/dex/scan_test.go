package dex

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

const scanned = 500

func scanKey(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n<<48) }

// filled is an index over shm with some keys, and a session of it. Nothing is in its cache of
// leaves, which would hold them all.
func filled(t *testing.T) (*dex, *session) {
	t.Helper()
	x, s := opened(t, index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 256, CacheBytes: 1 << 20})
	for n := range uint64(scanned) {
		mustDo(t, s.Upsert(scanKey(n), []byte("first...")))
	}
	again(t, x, 2)
	return x, s
}

// opened is an index over shm with all keys, which are none, and a session of it.
func opened(t *testing.T, o index.Options) (*dex, *session) {
	t.Helper()
	return openedBy(t, "shm", o)
}

// openedBy is opened with another fabric.
func openedBy(t *testing.T, provider string, o index.Options) (*dex, *session) {
	t.Helper()
	return openedIn(t, pooltest.Options{Provider: provider, Chunks: 64, ChunkBytes: 1 << 20}, o)
}

// openedIn is openedBy, in memory of some size.
func openedIn(t *testing.T, in pooltest.Options, o index.Options) (*dex, *session) {
	t.Helper()
	c := pooltest.New(t, in)
	open, err := Open(c.Open(t), o)
	if err != nil {
		t.Fatal(err)
	}
	x := open.(*dex)
	mustDo(t, x.Take(pool.Holding{Epoch: 1}))
	s, err := x.newSession()
	mustDo(t, err)
	t.Cleanup(func() {
		mustDo(t, s.Close())
		mustDo(t, x.Close())
	})
	return x, s
}

// again gives everything, and takes it.
func again(t *testing.T, x *dex, epoch uint64) {
	t.Helper()
	mustGive(t, x, nil, nil)
	mustDo(t, x.Take(pool.Holding{Epoch: epoch}))
}

// readsOf counts the READs of s in do.
func readsOf(s *session, do func()) int {
	before := s.Counters()
	do()
	after := s.Counters()
	d := after.Sub(&before)
	return int(d.Requests[verbs.Read])
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustGive(t *testing.T, x *dex, start, end []byte) {
	t.Helper()
	_, err := x.Give(start, end)
	mustDo(t, err)
}

// TestScansKeepLeaves: what a scan READ no later scan or lookup READs, in either direction.
func TestScansKeepLeaves(t *testing.T) {
	x, s := filled(t)
	reads := func(do func()) int { return readsOf(s, do) }
	all := func(reverse bool) {
		seen := 0
		mustDo(t, s.Scan(nil, 2*scanned, reverse, func(_, _ []byte) bool { seen++; return true }))
		if seen != scanned {
			t.Fatalf("%d keys, want %d", seen, scanned)
		}
	}
	lookups := func() {
		for n := range uint64(scanned) {
			if _, err := s.Lookup(scanKey(n), nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	for epoch, reverse := range []bool{false, true} {
		if n := reads(func() { all(reverse) }); n < scanned/16 {
			t.Fatalf("%d READs of a scan of what is not in the cache", n)
		}
		for _, then := range []func(){func() { all(reverse) }, func() { all(!reverse) }, lookups} {
			if n := reads(then); n != 0 {
				t.Errorf("%d READs of leaves that a scan has READ before", n)
			}
		}
		again(t, x, uint64(3+epoch))
	}
}

// TestOffersAreCurrent: a leaf that a scan READ is not kept if it was changed since, however.
func TestOffersAreCurrent(t *testing.T) {
	x, s := filled(t)
	epoch := uint64(2)
	write := func() { mustDo(t, s.Upsert(scanKey(7), []byte("second.."))) }
	retake := func() { epoch++; again(t, x, epoch) }
	for _, c := range []struct {
		name  string
		do    func()
		keeps bool
		value string
	}{
		{"nothing", func() {}, true, "first..."},
		{"changed, and has a frame", write, true, "second.."},
		{"changed, and has left the cache", func() { write(); mustDo(t, x.flushAll(true)) }, false, "second.."},
		{"given", func() { mustGive(t, x, nil, nil) }, false, ""},
		{"given and taken", retake, false, "first..."},
		{"given, changed by another one, and taken", func() { write(); retake() }, false, "second.."},
	} {
		if x.ranges.Load().At(scanKey(7)) < 0 {
			epoch++
			mustDo(t, x.Take(pool.Holding{Epoch: epoch}))
		}
		mustDo(t, s.Upsert(scanKey(7), []byte("first...")))
		retake()
		p, err := s.b.Descend(scanKey(7))
		mustDo(t, err)
		since, b := x.Clock(), make([]byte, x.lay.NodeBytes)
		s.b.Begin()
		s.b.PS.Read(p.Addr(), s.b.Staging())
		mustDo(t, s.b.PS.Post())
		copy(b, s.b.Staging())
		s.b.End()
		var l slotted.Leaf
		if !l.Is(x.lay, p.Addr(), b, scanKey(7)) {
			t.Fatal("no leaf was READ")
		}
		c.do()
		s.b.Begin()
		mustDo(t, x.Admit(&s.b.Session, p.Addr(), l.Low, l.High, l.Rightmost, b, since))
		s.b.End()
		if kept := x.cache.Find(p.Addr()) != nil; kept != c.keeps {
			t.Errorf("%s: in the cache: %v, want %v", c.name, kept, c.keeps)
		}
		if c.value == "" {
			continue
		}
		if got, err := s.Lookup(scanKey(7), nil); err != nil || !bytes.Equal(got, []byte(c.value)) {
			t.Errorf("%s: %q, %v, want %q", c.name, got, err, c.value)
		}
	}
}
