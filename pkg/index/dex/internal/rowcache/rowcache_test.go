package rowcache

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/ranges"
	"github.com/dmindex/dmindex/pkg/sum/siphash"
)

// fewEntries is a cache with entries in so many bytes, whose buckets come and go if there are more
// than a few.
func fewEntries(t *testing.T, bytes int) *Cache {
	t.Helper()
	e := new(Cache)
	startFew(e, env.Real(), bytes)
	return e
}

func startFew(e *Cache, in env.Env, bytes int) {
	n := uint64(bytes / (8 * (BucketWords + HintWords + 1)))
	room := Room{Part: max(1, n/5), First: n, Most: 3 * n}
	if n < room.Part {
		room = Room{1, 1, 1}
	}
	e.Start(in, item.HashOf(siphash.Key{}), room)
}

// bucketOf is the bucket of key, and what the head of its entry looks like but for the value's
// length.
func (e *Cache) bucketOf(key []byte) (b []uint64, head uint64) {
	p := e.Place(key)
	return e.at(p.Bucket), p.head
}

func mustFind(t *testing.T, e *Cache, key, want []byte) {
	t.Helper()
	dst := []byte("before ")
	got, ok := e.Get(key, dst)
	if ok != (want != nil) || ok && !bytes.Equal(got, append(dst, want...)) || !ok && len(got) != len(dst) {
		t.Fatalf("key %x: found %v, %q, want %q", key, ok, got, want)
	}
}

// mustTakeOut takes the entry of key out, as a frame that gets its leaf does.
func mustTakeOut(t *testing.T, e *Cache, key []byte) {
	t.Helper()
	if had, err := e.Invalidate(key); !had || err != nil {
		t.Fatalf("key %x: there was an entry: %v, %v", key, had, err)
	}
}

// TestEntriesAreThoseKept keeps, drops and looks up entries with keys and values of all lengths: an
// entry that is there has the value that was kept last, and those that were dropped are gone.
func TestEntriesAreThoseKept(t *testing.T) {
	e := fewEntries(t, 8<<10)
	r := rand.New(rand.NewPCG(3, 4))
	keys := make([][]byte, 600)
	for i := range keys {
		keys[i] = make([]byte, r.IntN(30))
		for k := range keys[i] {
			keys[i][k] = byte(r.IntN(3)) // so that many are others' prefixes, and end in zeros
		}
	}
	model := map[string][]byte{}
	hits := 0
	for range 200_000 {
		key := keys[r.IntN(len(keys))]
		switch r.IntN(4) {
		case 0:
			if _, ok := e.Get(key, nil); ok {
				break // it is current
			}
			value := make([]byte, r.IntN(120))
			for k := range value {
				value[k] = byte(r.Uint32())
			}
			e.Put(key, value, nil)
			model[string(key)] = value
			if _, ok := e.Get(key, nil); ok && 1+WordsOf(len(key))+WordsOf(len(value)) > mostEntryWords {
				t.Fatalf("an entry of %d and %d bytes is kept", len(key), len(value))
			}
		case 1:
			_, there := e.Get(key, nil)
			if had, ok := e.Drop(key); !ok || had != there {
				t.Fatalf("dropped: %v, %v, and it was there: %v", had, ok, there)
			}
			delete(model, string(key))
			mustFind(t, e, key, nil)
		default:
			if got, ok := e.Get(key, nil); ok {
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
	if err := e.DropIf(func(key []byte) bool { return given.At(key) >= 0 }, nil); err != nil {
		t.Fatal(err)
	}
	left := 0
	for _, key := range keys {
		if _, ok := e.Get(key, nil); ok {
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

// TestEntriesWhileLocked: nobody finds, keeps or drops anything in a bucket that somebody has.
func TestEntriesWhileLocked(t *testing.T) {
	e := fewEntries(t, 8*(BucketWords+2))
	one, other := []byte("12345678"), []byte("87654321")
	e.Put(one, one, nil)
	b, _ := e.bucketOf(one)
	if !lock(b) || lock(b) {
		t.Fatal("the lock is not one")
	}
	mustFind(t, e, one, nil)
	e.Put(other, other, nil)
	_, first := e.Drop(one)
	_, second := e.Drop(other)
	if first || second {
		t.Error("dropped from a bucket that somebody has")
	}
	unlock(b)
	mustFind(t, e, one, one)
	mustFind(t, e, other, nil)
}

// TestEntriesThatAreUsedStay: what is found again and again outlives many that are not, and goes
// when it is not found any more.
func TestEntriesThatAreUsedStay(t *testing.T) {
	e := fewEntries(t, 4<<10)

	key := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
	const popular, room = 20, 160
	for n := range uint64(popular) {
		e.Put(key(n), key(n), nil)
	}
	for n := range uint64(20 * room) {
		for k := range uint64(popular) {
			mustFind(t, e, key(k), key(k))
		}
		e.Put(key(1000+n), key(n), nil)
	}
	for n := range uint64(300 * room) { // a count is 255 at most
		e.Put(key(1_000_000+n), key(n), nil)
	}
	for n := range uint64(popular) {
		mustFind(t, e, key(n), nil)
	}
}

// TestEntriesThatAreChangedStay: a key that is looked up again and again keeps its place and its
// count when it is changed: it is not there until its leaf leaves it, and then outlives many that
// are not looked up.
func TestEntriesThatAreChangedStay(t *testing.T) {
	e := fewEntries(t, 8*(BucketWords+2))

	key := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
	e.Put(key(1), key(1), nil)
	for range 10 {
		mustFind(t, e, key(1), key(1))
	}
	many := func(n uint64) { // of which each is looked up once
		for i := range uint64(50) {
			e.Put(key(1000*n+i), key(i), nil)
			mustFind(t, e, key(1000*n+i), key(i))
		}
	}
	for n := range uint64(4) {
		mustTakeOut(t, e, key(1))
		mustFind(t, e, key(1), nil)
		many(2*n + 1)
		mustFind(t, e, key(1), nil)
		value := bytes.Repeat(key(n), int(n)) // of another length each time
		e.Put(key(1), value, nil)
		mustFind(t, e, key(1), append([]byte{}, value...))
		many(2*n + 2)
		mustFind(t, e, key(1), append([]byte{}, value...))
	}
	b, head := e.bucketOf(key(1))
	mustTakeOut(t, e, key(1))
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

// TestEntriesAreWhole: goroutines keep, drop and look up entries of the same bucket. What is found
// is the key's, and in one piece.
func TestEntriesAreWhole(t *testing.T) {
	e := fewEntries(t, 8*(BucketWords+2))

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
				switch got, ok = e.Get(key, got[:0]); {
				case ok && !bytes.Equal(got, value):
					t.Errorf("key %d has %x", n, got)
					return
				case ok:
					hits.Add(1)
				}
				if r.IntN(4) == 0 {
					e.Drop(key)
				} else {
					e.Put(key, value, nil)
				}
			}
		})
	}
	all.Wait()
	if hits.Load() < enough && !t.Failed() {
		t.Errorf("%d lookups found an entry", hits.Load())
	}
}

// TestDropLeavesUnusedBucketsAlone: what no entry was in so far is not touched by who drops some:
// its memory may not be there yet.
func TestDropLeavesUnusedBucketsAlone(t *testing.T) {
	e := fewEntries(t, 64<<10)
	key := []byte("12345678")
	e.Put(key, []byte("some value"), nil)
	if err := e.DropIf(func([]byte) bool { return true }, nil); err != nil {
		t.Fatal(err)
	}
	if _, ok := e.Get(key, nil); ok {
		t.Error("the entry is still there")
	}
	touched := 0
	for i := range e.words {
		if atomic.LoadUint64(&e.words[i]) != 0 {
			touched++
		}
	}
	if touched == 0 || touched > int(e.size) {
		t.Errorf("%d words were touched", touched)
	}
}
