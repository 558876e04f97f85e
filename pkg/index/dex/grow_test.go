package dex

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
)

// TestFrameOfNewLeaf: a session gives a leaf that it has written a frame with what it wrote. It
// does not if another session has changed the leaf meanwhile, which shows in a frame, or in an
// eviction, nor if the range was given.
func TestFrameOfNewLeaf(t *testing.T) {
	for _, test := range []struct {
		name      string
		meanwhile func(t *testing.T, x *dex, a pool.Addr, key []byte)
		gets      bool
		framed    bool // in the end
	}{
		{"nothing happens", func(*testing.T, *dex, pool.Addr, []byte) {}, true, true},
		{"another session changes it", func(t *testing.T, x *dex, _ pool.Addr, key []byte) {
			changeElsewhere(t, x, key)
		}, false, true},
		{"that frame is evicted", func(t *testing.T, x *dex, a pool.Addr, key []byte) {
			changeElsewhere(t, x, key)
			mustDo(t, Forget(x, a))
		}, false, false},
		{"the range is given", func(t *testing.T, x *dex, _ pool.Addr, _ []byte) {
			mustGive(t, x, nil, nil)
		}, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			x, s := opened(t, index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 256, CacheBytes: 1 << 20})
			for n := range uint64(scanned) {
				mustDo(t, s.Upsert(scanKey(n), []byte("first...")))
			}
			key := scanKey(scanned / 2)
			mustDo(t, s.Upsert(key, []byte("first...")))
			f, a, err := s.foundFrame(key)
			mustDo(t, err)
			written := make([]byte, x.lay.NodeBytes)
			f.CopyTo(written)
			mustDo(t, Forget(x, a))
			since := x.cache.Clock.Now()
			test.meanwhile(t, x, a, key)
			want := "first..."
			if !test.gets {
				want = "second.."
			}

			s.b.Begin()
			f, err = s.frameFor(a, since, written)
			s.b.End()
			mustDo(t, err)
			if f != nil {
				f.Unlock()
			}
			if got := f != nil; got != test.gets {
				t.Errorf("it got a frame: %v", got)
			}
			if Framed(x, a) != test.framed {
				t.Errorf("it has a frame: %v", Framed(x, a))
			}
			if x.ranges.Load().At(key) < 0 {
				return
			}
			value, err := s.Lookup(key, nil)
			mustDo(t, err)
			if string(value) != want {
				t.Errorf("the key has %q", value)
			}
		})
	}
}

// changeElsewhere changes a key by another session.
func changeElsewhere(t *testing.T, x *dex, key []byte) {
	t.Helper()
	s, err := x.newSession()
	mustDo(t, err)
	mustDo(t, s.Upsert(key, []byte("second..")))
	mustDo(t, s.Close())
}

// TestNewLeavesAreMergedMeanwhile: new leaves that another session has merged, before the one that
// made them gives them frames, are not connected.
func TestNewLeavesAreMergedMeanwhile(t *testing.T) {
	x, s := opened(t, index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 256, CacheBytes: 1 << 20})
	other, err := x.newSession()
	mustDo(t, err)
	defer func() { mustDo(t, other.Close()) }()
	number := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
	const pairs, coming = 400, 60
	s.together()
	value := []byte("a value.")
	for n := range uint64(pairs) {
		mustDo(t, s.Upsert(number(n<<20), value))
	}
	merged := 0
	for round := range uint64(10) {
		var keys, values [][]byte
		var group []int
		for i := range uint64(coming) {
			keys, values, group = append(keys, number(round*37<<20+1+i)), append(values, value), append(group, int(i))
		}
		mustDo(t, s.Upsert(number(round*37<<20), value)) // has a frame

		s.b.Begin()
		f, a, err := s.foundFrame(keys[0])
		mustDo(t, err)
		if f == nil || !f.TryLock() || !s.lacksRoom(f, keys, values, group) {
			t.Fatal("the leaf has no frame, or room enough")
		}
		parts, since, err := s.divideKept(f, a)
		mustDo(t, err)
		var gone []pool.Addr
		for i := 1; i < parts; i++ {
			low, empty := s.b.EmptyPart(i)
			if !empty || i%3 == 0 {
				continue
			}
			low = bytes.Clone(low)
			other.b.Begin()
			mustDo(t, other.b.Connect(low, s.b.Part(i)))
			other.b.End()
			mustDo(t, other.b.MergeAt(low))
			if x.cache.Clock.After(s.b.Part(i), since) {
				gone = append(gone, s.b.Part(i))
			}
		}
		mustDo(t, s.adoptParts(parts, since))
		s.b.End()
		for _, a := range gone {
			if merged++; Framed(x, a) {
				t.Errorf("round %d: a leaf that was merged has a frame", round)
			}
		}
		st, err := x.Check()
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if st.Unlinked != 0 || st.Pairs != pairs {
			t.Fatalf("round %d: %d nodes are not linked, %d pairs", round, st.Unlinked, st.Pairs)
		}
	}
	if merged == 0 {
		t.Error("no new leaf was merged: this tests nothing")
	}
}

// TestChangeDividesInFewTrips: insertions one by one divide their leaves in some five round trips
// each: the leaf's lock with its READ; all leaves; the parent's lock with its READ; the parent; and
// sometimes a victim of the cache, or a parent of the parent.
func TestChangeDividesInFewTrips(t *testing.T) {
	const pairs = 4000
	x, s := opened(t, index.Options{Uint64: true, MaxValueBytes: 16, CacheBytes: 4 << 20})
	r := rand.New(rand.NewPCG(1, 1))
	before := s.Counters().RoundTrips
	for range pairs {
		mustDo(t, s.Upsert(binary.BigEndian.AppendUint64(nil, r.Uint64()), []byte("sixteen bytes it")))
	}
	divided, _, _ := Grown(x)
	trips := s.Counters().RoundTrips - before
	if divided < pairs/40 {
		t.Fatalf("%d leaves were divided: this tests nothing", divided)
	}
	if most := 55 * divided / 10; int(trips) > most {
		t.Errorf("%d divisions took %d round trips, at most %d are needed", divided, trips, most)
	}
}
