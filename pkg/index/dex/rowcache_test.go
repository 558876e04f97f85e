package dex

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/ranges"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// fewEntries is a cache with entries in so many bytes.
func fewEntries(t *testing.T, bytes int) (*dex, *rowCache) {
	t.Helper()
	with, err := techniquesOf(nil)
	if err != nil {
		t.Fatal(err)
	}
	x := &dex{env: env.Real(), with: with}
	x.cache = newCache(x.env, with, entryShare*bytes, 256)
	return x, &x.cache.rows
}

func mustFind(t *testing.T, x *dex, key, want []byte) {
	t.Helper()
	dst := []byte("before ")
	got, ok := x.cache.rows.find(x, key, dst)
	if ok != (want != nil) || ok && !bytes.Equal(got, append(dst, want...)) || !ok && len(got) != len(dst) {
		t.Fatalf("key %x: found %v, %q, want %q", key, ok, got, want)
	}
}

// mustTakeOut takes the entry of key out, as a frame that gets its leaf does.
func mustTakeOut(t *testing.T, x *dex, key []byte) {
	t.Helper()
	if had, err := x.takeOutEntry(key); !had || err != nil {
		t.Fatalf("key %x: there was an entry: %v, %v", key, had, err)
	}
}

// TestEntriesAreThoseKept keeps, drops and looks up entries with keys and values of all lengths: an
// entry that is there has the value that was kept last, and those that were dropped are gone.
func TestEntriesAreThoseKept(t *testing.T) {
	x, e := fewEntries(t, 8<<10)
	r := rand.New(rand.NewPCG(3, 4))
	keys := make([][]byte, 600)
	for i := range keys {
		keys[i] = make([]byte, r.IntN(30))
		for k := range keys[i] {
			keys[i][k] = byte(r.IntN(3)) // so that many are others' prefixes, and end in zeros
		}
	}
	model := map[string][]byte{}
	a, hits := pool.NewAddr(1, 4096), 0
	for range 200_000 {
		key := keys[r.IntN(len(keys))]
		switch r.IntN(4) {
		case 0:
			if _, ok := e.find(x, key, nil); ok {
				break // it is current
			}
			value := make([]byte, r.IntN(120))
			for k := range value {
				value[k] = byte(r.Uint32())
			}
			e.keep(x, key, value, a, 0)
			model[string(key)] = value
			if _, ok := e.find(x, key, nil); ok && 1+wordsOf(len(key))+wordsOf(len(value)) > mostEntryWords {
				t.Fatalf("an entry of %d and %d bytes is kept", len(key), len(value))
			}
		case 1:
			_, there := e.find(x, key, nil)
			if had, ok := e.drop(x, key); !ok || had != there {
				t.Fatalf("dropped: %v, %v, and it was there: %v", had, ok, there)
			}
			delete(model, string(key))
			mustFind(t, x, key, nil)
		default:
			if got, ok := e.find(x, key, nil); ok {
				if want, there := model[string(key)]; !there || !bytes.Equal(got, want) {
					t.Fatalf("key %x has %x, want %x", key, got, want)
				}
				hits++
			}
		}
	}
	if hits < 5000 {
		t.Errorf("%d lookups found an entry", hits)
	}
	given := ranges.Of(ranges.Span{Start: []byte{1}, End: []byte{2}})
	if err := e.forget(given, nil); err != nil {
		t.Fatal(err)
	}
	left := 0
	for _, key := range keys {
		if _, ok := e.find(x, key, nil); ok {
			left++
			if given.At(key) >= 0 {
				t.Fatalf("key %x is there, its range was given away", key)
			}
		}
	}
	if left == 0 {
		t.Error("nothing is left of other ranges")
	}
}

// TestEntriesOfLeavesInUse: what was READ of a leaf is not kept if that has a frame, or had one
// since: it may have changed.
func TestEntriesOfLeavesInUse(t *testing.T) {
	x, e := fewEntries(t, 4<<10)
	a, key, value := pool.NewAddr(1, 4096), []byte("12345678"), []byte("some value")
	since := x.cache.evictions.clock.Load()
	f, fresh, err := x.cache.reserve(a, true, nil)
	if err != nil || !fresh {
		t.Fatal(err, fresh)
	}
	e.keep(x, key, value, a, since)
	mustFind(t, x, key, nil)
	x.cache.drop(f)
	e.keep(x, key, value, a, since)
	mustFind(t, x, key, nil)
	e.keep(x, key, value, a, x.cache.evictions.clock.Load())
	mustFind(t, x, key, value)
	// both are current, so they are the same
	e.keep(x, key, []byte("another"), a, x.cache.evictions.clock.Load())
	mustFind(t, x, key, value)

	since = x.cache.evictions.clock.Load()
	if f, fresh, err = x.cache.reserve(a, true, nil); err != nil || !fresh {
		t.Fatal(err, fresh)
	}
	mustTakeOut(t, x, key)
	e.keep(x, key, value, a, since) // it has kept its place, but it is not for this value
	mustFind(t, x, key, nil)
	x.cache.drop(f)
	e.keep(x, key, value, a, since)
	mustFind(t, x, key, nil)
	e.keep(x, key, []byte("another"), a, x.cache.evictions.clock.Load())
	mustFind(t, x, key, []byte("another"))
}

// TestEntriesWhileLocked: nobody finds, keeps or drops anything in a bucket that somebody has.
func TestEntriesWhileLocked(t *testing.T) {
	x, e := fewEntries(t, 8*(bucketWords+2))
	a, one, other := pool.NewAddr(1, 4096), []byte("12345678"), []byte("87654321")
	e.keep(x, one, one, a, 0)
	b, _ := e.bucket(one)
	if !lock(b) || lock(b) {
		t.Fatal("the lock is not one")
	}
	mustFind(t, x, one, nil)
	e.keep(x, other, other, a, 0)
	_, first := e.drop(x, one)
	_, second := e.drop(x, other)
	if first || second {
		t.Error("dropped from a bucket that somebody has")
	}
	unlock(b)
	mustFind(t, x, one, one)
	mustFind(t, x, other, nil)
}

// TestEntriesThatAreUsedStay: what is found again and again outlives many that are not, and goes
// when it is not found any more.
func TestEntriesThatAreUsedStay(t *testing.T) {
	x, e := fewEntries(t, 4<<10)
	a := pool.NewAddr(1, 4096)
	key := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
	const popular, room = 20, 160
	for n := range uint64(popular) {
		e.keep(x, key(n), key(n), a, 0)
	}
	for n := range uint64(20 * room) {
		for k := range uint64(popular) {
			mustFind(t, x, key(k), key(k))
		}
		e.keep(x, key(1000+n), key(n), a, 0)
	}
	for n := range uint64(300 * room) { // a count is 255 at most
		e.keep(x, key(1_000_000+n), key(n), a, 0)
	}
	for n := range uint64(popular) {
		mustFind(t, x, key(n), nil)
	}
}

// TestEntriesThatAreChangedStay: a key that is looked up again and again keeps its place and its
// count when it is changed: it is not there until its leaf leaves it, and then outlives many that
// are not looked up.
func TestEntriesThatAreChangedStay(t *testing.T) {
	x, e := fewEntries(t, 8*(bucketWords+2))
	a := pool.NewAddr(1, 4096)
	key := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
	e.keep(x, key(1), key(1), a, 0)
	for range 10 {
		mustFind(t, x, key(1), key(1))
	}
	many := func(n uint64) { // of which each is looked up once
		for i := range uint64(50) {
			e.keep(x, key(1000*n+i), key(i), a, 0)
			mustFind(t, x, key(1000*n+i), key(i))
		}
	}
	for n := range uint64(4) {
		mustTakeOut(t, x, key(1))
		mustFind(t, x, key(1), nil)
		many(2*n + 1)
		mustFind(t, x, key(1), nil)
		value := bytes.Repeat(key(n), int(n)) // of another length each time
		e.leave(x, key(1), value)
		mustFind(t, x, key(1), append([]byte{}, value...))
		many(2*n + 2)
		mustFind(t, x, key(1), append([]byte{}, value...))
	}
	b, head := e.bucket(key(1))
	mustTakeOut(t, x, key(1))
	if _, _, there := seek(b, head, key(1)); there&stale == 0 {
		t.Error("it has not kept its place")
	}
	for n := range uint64(100) { // nothing is kept for what is not looked up any more
		many(100 + n)
	}
	if _, _, there := seek(b, head, key(1)); there != 0 {
		t.Error("an entry that was taken out is there still")
	}
}

// TestLeavesThatGoLeaveWhatWasChanged: so does one that was written back long before it goes, as
// the log wanted room.
func TestLeavesThatGoLeaveWhatWasChanged(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{Provider: "shm", Chunks: 64, ChunkBytes: 1 << 20})
	o, err := Open(c.Open(t), index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 256, CacheBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	x := o.(*dex)
	if err := x.Take(pool.Holding{Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	s, err := x.newSession()
	if err != nil {
		t.Fatal(err)
	}
	const keys = 4000
	key := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n<<40) }
	for n := range uint64(keys) {
		if err := s.Insert(key(n), key(n)); err != nil {
			t.Fatal(err)
		}
	}
	r, left := rand.New(rand.NewPCG(7, 8)), 0
	for i := range uint64(30) {
		one, value := key(r.Uint64N(keys)), key(keys+i)
		if err := s.Update(one, value); err != nil {
			t.Fatal(err)
		}
		s.b.Begin()
		p, err := s.b.Descend(one)
		if err != nil {
			t.Fatal(err)
		}
		a := p.Addr()
		s.b.End()
		if f := x.cache.find(a); f == nil || !f.AnyChanged() {
			t.Fatalf("the leaf of key %x has no frame, or one that was not changed", one)
		}
		mustFind(t, x, one, nil)
		if err := x.flushAll(false); err != nil {
			t.Fatal(err)
		}
		mustFind(t, x, one, nil)
		for try := 0; x.cache.find(a) != nil && try < 20_000; try++ {
			other := key(r.Uint64N(keys))
			if !bytes.Equal(other, one) {
				if err := s.Update(other, other); err != nil {
					t.Fatal(err)
				}
			}
		}
		if x.cache.find(a) == nil {
			// entries that are used more, of this leaf or others, may have taken its place
			if got, ok := x.cache.rows.find(x, one, nil); ok && !bytes.Equal(got, value) {
				t.Fatalf("key %x has %x, want %x", one, got, value)
			} else if ok {
				left++
			}
		}
	}
	if left < 20 {
		t.Errorf("%d leaves of 30 have gone and left what was changed", left)
	}
	if err := errors.Join(s.Close(), x.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestEntriesAreWhole: goroutines keep, drop and look up entries of the same bucket. What is found
// is the key's, and in one piece.
func TestEntriesAreWhole(t *testing.T) {
	x, e := fewEntries(t, 8*(bucketWords+2))
	a := pool.NewAddr(1, 4096)
	enough := int64(10_000)
	if testing.Short() {
		enough /= 10
	}
	var all sync.WaitGroup
	var hits atomic.Int64
	for g := range uint64(4) {
		all.Go(func() {
			r := rand.New(rand.NewPCG(g, 6))
			var key, value, got []byte
			for round := 0; round < 10_000_000 && hits.Load() < enough; round++ {
				n := r.Uint64N(40)
				key = binary.BigEndian.AppendUint64(key[:0], n)
				value = append(value[:0], bytes.Repeat(key, int(n%5))...)
				var ok bool
				switch got, ok = e.find(x, key, got[:0]); {
				case ok && !bytes.Equal(got, value):
					t.Errorf("key %d has %x", n, got)
					return
				case ok:
					hits.Add(1)
				}
				if r.IntN(4) == 0 {
					e.drop(x, key)
				} else {
					e.keep(x, key, value, a, 0)
				}
			}
		})
	}
	all.Wait()
	if hits.Load() < enough && !t.Failed() {
		t.Errorf("%d lookups found an entry", hits.Load())
	}
}
