package dex

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// openEntries is an index of one client that owns all keys.
func openEntries(t *testing.T) (*dex, *session) {
	t.Helper()
	return openedBy(t, "shm", index.Options{Uint64: true, MaxValueBytes: 16, NodeBytes: 256, CacheBytes: 16 << 10})
}

// TestLogIsTruncatedUpToEntries: the last record of an entry stays, and the one before it until the
// last one is durable.
func TestLogIsTruncatedUpToEntries(t *testing.T) {
	x, s := openEntries(t)
	record := make([]byte, 100)
	fill := func() { // some parts of the ring
		t.Helper()
		for range x.log.Ref().Bytes / 1000 {
			position, err := s.log.Append(record)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.durable(position); err != nil {
				t.Fatal(err)
			}
		}
	}
	change := func(before uint64) uint64 {
		t.Helper()
		position, err := x.dirty.appendEntry(s.log, record, before)
		if err != nil {
			t.Fatal(err)
		}
		return position
	}
	fill()
	first := change(0)
	fill()
	x.dirty.truncate()
	if tail := x.log.Tail(); tail == 0 || tail >= first {
		t.Fatalf("the log is truncated up to %d, and an entry has its record at %d", tail, first)
	}
	second := change(first) // not durable
	for range 3 {
		x.dirty.truncate()
	}
	if tail := x.log.Tail(); tail >= first {
		t.Fatalf("the log is truncated up to %d, and the record at %d may be lost that takes the place of the one at %d", tail, second, first)
	}
	fill()
	for range 3 {
		x.dirty.truncate()
	}
	if tail := x.log.Tail(); tail < first || tail >= second {
		t.Fatalf("the log is truncated up to %d, and only the record at %d is needed", tail, second)
	}
	f := &frame{}
	x.dirty.absorb(f, second)
	x.dirty.truncate()
	if tail := x.log.Tail(); tail >= second {
		t.Fatalf("the log is truncated up to %d, and a frame has its first record at %d", tail, second)
	}
	f.first.Store(0)
	x.dirty.truncate()
	if tail := x.log.Tail(); tail < second {
		t.Fatalf("the log is truncated up to %d, and nothing needs the record at %d", tail, second)
	}
}

// TestLateFramesAreOrdered: frames whose first records are older than those of others are found in
// their order, and those that were written back are not.
func TestLateFramesAreOrdered(t *testing.T) {
	x, _ := openEntries(t)
	var frames [40]frame
	x.dirty.mu.Lock()
	for i := range frames {
		frames[i].words = make([]uint64, 1)
		x.dirty.hold(&frames[i], uint64(1000+i*7%40))
	}
	for i := range frames {
		if i%3 == 0 {
			frames[i].first.Store(0)
		}
	}
	x.dirty.hold(&frames[1], 900) // older than it was
	for len(x.dirty.late) > 0 && x.dirty.late[0].first > math.MaxUint32 {
		x.dirty.popLate()
	}
	got := x.dirty.someLate(make([]*frame, 0, len(frames)), math.MaxUint64)
	x.dirty.sweepLate()
	left := len(x.dirty.late)
	x.dirty.mu.Unlock()
	if len(got) != 26 || left != 26 || got[0] != &frames[1] {
		t.Fatalf("%d frames, then %d, want 26", len(got), left)
	}
	for i := 1; i < len(got); i++ {
		if got[i-1].first.Load() >= got[i].first.Load() {
			t.Fatalf("a frame with a record at %d follows one at %d", got[i].first.Load(), got[i-1].first.Load())
		}
	}
	for i := range frames {
		frames[i].first.Store(0)
	}
}

// cached makes keys whose entries are kept, and returns one of them whose leaf has no frame.
func cached(t *testing.T, s *session, value []byte) (key []byte) {
	t.Helper()
	for n := range uint64(cachedKeys) {
		if err := s.Insert(cachedKey(n), value); err != nil {
			t.Fatal(err)
		}
	}
	return cachedAgain(t, s)
}

// cachedKeys is how many keys cached inserts: more than there is room for.
const cachedKeys = 2000

func cachedKey(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n<<40) }

// cachedAgain looks all keys of cached up, and returns one whose entry is kept then.
func cachedAgain(t *testing.T, s *session) (key []byte) {
	t.Helper()
	for n := range uint64(cachedKeys) {
		if _, err := s.Lookup(cachedKey(n), nil); err != nil {
			t.Fatal(err)
		}
	}
	// a later lookup may have given the leaf of an earlier one a frame
	for n := range uint64(cachedKeys) {
		if s.x.cache.rows.hasEntry(cachedKey(n)) {
			key = cachedKey(n)
		}
	}
	if key == nil {
		t.Fatal("no entry is kept")
	}
	return key
}

// TestEntryIsChangedInItsPlace: an update of a key whose entry is kept READs nothing. It does not
// happen while another session has appended a record of the key beside a READ, nor if the value is
// longer, nor if the key is to be deleted.
func TestEntryIsChangedInItsPlace(t *testing.T) {
	x, s := openEntries(t)
	key := cached(t, s, []byte("12345678"))
	changed := func() int {
		x.dirty.mu.Lock()
		defer x.dirty.mu.Unlock()
		return x.dirty.changes.changed
	}
	look := func(want string) {
		t.Helper()
		if got, err := s.Lookup(key, nil); err != nil || string(got) != want {
			t.Fatalf("found %q: %v, want %q", got, err, want)
		}
	}
	before, read := s.Counters(), x.fetched.Load()
	for i, value := range []string{"abcdefgh", "short", "other"} {
		if err := s.Update(key, []byte(value)); err != nil {
			t.Fatal(err)
		}
		if now := changed(); now != i+1 {
			t.Fatalf("%d changes of entries, want %d", now, i+1)
		}
		look(value)
	}
	if err := s.Insert(key, []byte("new")); !errors.Is(err, index.ErrExists) {
		t.Fatal(err)
	}
	if after := s.Counters(); after.Requests[verbs.Read] != before.Requests[verbs.Read] || x.fetched.Load() != read {
		t.Fatal("changes of entries READ something")
	}

	// While somebody has the bucket nobody takes the leaf's value for the key's.
	b, _ := x.cache.rows.bucket(key)
	if !lock(b) {
		t.Fatal("somebody has the bucket")
	}
	s.SetLimit(5 * time.Millisecond)
	if got, err := s.Lookup(key, nil); !errors.Is(err, pool.ErrTimeout) {
		t.Fatalf("found %q while the entry may be changing: %v", got, err)
	}
	if err := s.LookupBatch([][]byte{key}, func(_ int, value []byte, err error) {
		t.Errorf("found %q while the entry may be changing: %v", value, err)
	}); !errors.Is(err, pool.ErrTimeout) {
		t.Fatal(err)
	}
	unlock(b)
	s.SetLimit(index.DefaultLimit)
	look("other")

	claim := x.claims.try(key)
	_, made, err := s.changeEntry(key, []byte("claimed"), 1, update)
	if made || err != nil {
		t.Fatalf("an entry changes while a record of its key is under way: %v", err)
	}
	claim.Store(false)
	if _, made, err = s.changeEntry(key, []byte("123456789"), 1, update); made || err != nil {
		t.Fatalf("a value of an entry grows: %v", err)
	}
	if err := s.Update(key, []byte("123456789")); err != nil {
		t.Fatal(err)
	}
	look("123456789")
	if n := x.dirty.unwritten.Load(); n != 0 || changed() != 3 {
		t.Fatalf("%d entries are unwritten, and the only one's leaf was fetched", n)
	}
	if err := s.Delete(key); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Lookup(key, nil); !errors.Is(err, index.ErrNotFound) {
		t.Fatal(err)
	}
	if err := s.Update(key, []byte("x")); !errors.Is(err, index.ErrNotFound) {
		t.Fatal(err)
	}
}

// TestFramesTakeThePositionsOfEntries: a frame that got the value of an entry answers for its
// record, which need not be durable then.
func TestFramesTakeThePositionsOfEntries(t *testing.T) {
	x, s := openEntries(t)
	key := cached(t, s, []byte("12345678"))
	s.Defer(true)
	if err := s.Update(key, []byte("deferred")); err != nil {
		t.Fatal(err)
	}
	position := s.Position()
	if position == 0 || x.dirty.unwritten.Load() != 1 {
		t.Fatalf("the change is at %d, and %d entries are unwritten", position, x.dirty.unwritten.Load())
	}
	s.b.Begin()
	defer s.b.End()
	if err := s.applyEntry(key); err != nil {
		t.Fatal(err)
	}
	p, err := s.b.Descend(key)
	if err != nil {
		t.Fatal(err)
	}
	f := x.cache.find(p.Addr())
	if f == nil || f.first.Load() != position || f.lsn.Load() != position || x.dirty.unwritten.Load() != 0 {
		t.Fatalf("the frame %+v does not answer for the record at %d", f, position)
	}
	s.Defer(false)
	if got, err := s.Lookup(key, nil); err != nil || string(got) != "deferred" || x.log.Durable() < position {
		t.Fatalf("found %q, %v, when the log was durable up to %d, and not %d", got, err, x.log.Durable(), position)
	}
}

const loaded = 400 // keys of TestFullLeafTakesEntries

// TestFullLeafTakesEntries makes all entries of full leaves their leaves', which have no free room:
// all values are there.
func TestFullLeafTakesEntries(t *testing.T) {
	x, s := openEntries(t)
	key := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n%loaded<<40+n/loaded<<30) }
	const keys = loaded + loaded
	value := func(n uint64, now string) []byte { // most are short, some are not
		return []byte(now + "                ")[:[]int{3, 3, 3, 16}[n%4]]
	}
	if err := x.BulkLoad(func(yield func(k, v []byte) bool) error {
		for n := uint64(0); n < loaded && yield(key(n), value(n, "first")); n++ {
		}
		return nil
	}, 1); err != nil {
		t.Fatal(err)
	}
	for n := uint64(loaded); n < keys; n++ { // in some leaves there is no free room then
		if err := s.Insert(key(n), value(n, "first")); err != nil {
			t.Fatal(err)
		}
	}
	model, absorbed := map[uint64]string{}, 0
	for round := range 20 {
		for n := range uint64(keys) {
			if _, err := s.Lookup(key(n), nil); err != nil {
				t.Fatal(err)
			}
			if x.cache.rows.hasEntry(key(n)) {
				model[n] = string(value(n, fmt.Sprint(round, " ")))
				if err := s.Upsert(key(n), []byte(model[n])); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := x.flushAll(round%2 == 0); err != nil {
			t.Fatal(err)
		}
		if n := x.dirty.unwritten.Load(); n != 0 {
			t.Fatalf("%d entries are unwritten", n)
		}
		absorbed = x.dirty.changes.absorbed
		for n, value := range model {
			if got, err := s.Lookup(key(n), nil); err != nil || string(got) != value {
				t.Fatalf("key %d has %q: %v, want %q", n, got, err, value)
			}
		}
	}
	if absorbed < 500 {
		t.Errorf("%d values became leaves'", absorbed)
	}
	structure, err := x.Check()
	if err != nil || structure.Pairs != keys {
		t.Errorf("%d pairs: %v", structure.Pairs, err)
	}
}
