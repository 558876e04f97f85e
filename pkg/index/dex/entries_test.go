package dex

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/rowcache"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/sum/siphash"
)

// mustHaveEntry looks the entry of key up; nil = there is none.
func mustHaveEntry(t *testing.T, x *dex, key, want []byte) {
	t.Helper()
	if got, ok := x.rows.Get(key, nil); ok != (want != nil) || !bytes.Equal(got, want) {
		t.Fatalf("key %x: found %v, %q, want %q", key, ok, got, want)
	}
}

// TestEntriesOfLeavesInUse: what was READ of a leaf is not kept if that has a frame, or had one
// since: it may have changed.
func TestEntriesOfLeavesInUse(t *testing.T) {
	with, err := techniquesOf(nil)
	mustDo(t, err)
	x := &dex{env: env.Real(), with: with, hash: item.HashOf(siphash.Key{})}
	var room rowcache.Room
	x.cache, room = cachesOf(x.env, with, with.sharesOf(nil), initial.EntryShare*(4<<10), 256, nil, x.budget.LeafGhosts())
	e := &x.rows
	e.Start(x.env, x.hash, room)
	keep := func(key, value []byte, a pool.Addr, since uint64) {
		e.Put(key, value, func() bool { return x.cache.Current(a, since) })
	}
	a, key, value := pool.NewAddr(1, 4096), []byte("12345678"), []byte("some value")
	since := x.cache.Clock.Now()
	f, fresh, err := x.cache.Reserve(a, true, nil)
	if err != nil || !fresh {
		t.Fatal(err, fresh)
	}
	keep(key, value, a, since)
	mustHaveEntry(t, x, key, nil)
	x.cache.Drop(f)
	keep(key, value, a, since)
	mustHaveEntry(t, x, key, nil)
	keep(key, value, a, x.cache.Clock.Now())
	mustHaveEntry(t, x, key, value)
	// both are current, so they are the same
	keep(key, []byte("another"), a, x.cache.Clock.Now())
	mustHaveEntry(t, x, key, value)

	since = x.cache.Clock.Now()
	if f, fresh, err = x.cache.Reserve(a, true, nil); err != nil || !fresh {
		t.Fatal(err, fresh)
	}
	if had, err := e.Invalidate(key); !had || err != nil {
		t.Fatal(had, err)
	}
	keep(key, value, a, since) // it has kept its place, but it is not for this value
	mustHaveEntry(t, x, key, nil)
	x.cache.Drop(f)
	keep(key, value, a, since)
	mustHaveEntry(t, x, key, nil)
	keep(key, []byte("another"), a, x.cache.Clock.Now())
	mustHaveEntry(t, x, key, []byte("another"))
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
		if f := x.cache.Find(a); f == nil || !f.AnyChanged() {
			t.Fatalf("the leaf of key %x has no frame, or one that was not changed", one)
		}
		mustHaveEntry(t, x, one, nil)
		if err := x.flushAll(false); err != nil {
			t.Fatal(err)
		}
		mustHaveEntry(t, x, one, nil)
		for try := 0; x.cache.Find(a) != nil && try < 20_000; try++ {
			other := key(r.Uint64N(keys))
			if !bytes.Equal(other, one) {
				if err := s.Update(other, other); err != nil {
					t.Fatal(err)
				}
			}
		}
		if x.cache.Find(a) == nil {
			// entries that are used more, of this leaf or others, may have taken its place
			if got, ok := x.rows.Get(one, nil); ok && !bytes.Equal(got, value) {
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

// TestValuesGrowWhileEntriesMove: values of keys with entries change, two buckets become one, and
// the values grow. Each key has its last value, and the log's records are written back.
func TestValuesGrowWhileEntriesMove(t *testing.T) {
	x, s := openedBy(t, "shm", index.Options{MaxKeyBytes: 8, MaxValueBytes: 16, NodeBytes: 256, CacheBytes: 64 << 10})
	e := &x.rows
	key := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n)[3:] }
	const keys = 6000
	for n := range uint64(keys) {
		mustDo(t, s.Insert(key(n), []byte("12345678")))
	}
	to := func(n uint64) { // buckets
		for tries := 0; e.Buckets() != n; tries++ {
			if e.Resize(e.Buckets() < n); tries > 10_000 {
				t.Fatalf("there are %d buckets still, and not %d", e.Buckets(), n)
			}
		}
	}
	to(e.Part + 1)
	e.Hold()
	model := map[string]string{}
	for range 3 {
		for n := range uint64(keys) {
			if b := e.Place(key(n)).Bucket; b != 0 && b != e.Part {
				continue
			}
			_, err := s.Lookup(key(n), nil)
			mustDo(t, err)
			v := fmt.Sprintf("%08d", n)
			mustDo(t, s.Update(key(n), []byte(v)))
			model[string(key(n))] = v
		}
	}
	e.Release()
	to(e.Part)
	s.SetLimit(time.Second)
	for k, v := range model {
		mustDo(t, s.Update([]byte(k), []byte(v+"9")))
	}
	for k, v := range model {
		if got, err := s.Lookup([]byte(k), nil); err != nil || string(got) != v+"9" {
			t.Fatalf("key %x has %q, want %q: %v", k, got, v+"9", err)
		}
	}
	mustDo(t, x.flushAll(false))
	const head = 16 // of a batch without records
	if x.wal.Truncate(); x.log.Used() > head {
		t.Fatalf("%d bytes of the log are in use, and all is written back", x.log.Used())
	}
}

// TestEntriesFollowTheSecret: where entries lie depends on the secret of the index, so nobody can
// choose keys of one bucket.
func TestEntriesFollowTheSecret(t *testing.T) {
	key := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
	x, _ := openedBy(t, "shm", index.Options{MaxKeyBytes: 8, MaxValueBytes: 8, CacheBytes: 8 << 20})
	y, _ := openedBy(t, "shm", index.Options{MaxKeyBytes: 8, MaxValueBytes: 8, CacheBytes: 8 << 20})
	if x.lay.Secret == (siphash.Key{}) || x.lay.Secret == y.lay.Secret {
		t.Fatalf("the secrets are %x and %x", x.lay.Secret, y.lay.Secret)
	}
	e, f := &x.rows, &y.rows
	const here = 3 // a bucket
	others := map[uint64]int{}
	for n, chosen := uint64(0), 0; chosen < 200; n++ {
		if e.Place(key(n)).Bucket == here {
			chosen++
			others[f.Place(key(n)).Bucket]++
		}
	}
	for bucket, n := range others {
		if n > 10 {
			t.Errorf("of 200 keys of one bucket of %d, %d are in bucket %d of another index", e.Buckets(), n, bucket)
		}
	}
}
