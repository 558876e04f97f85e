package smart

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// scanKinds are indexes of which a small cache, long prefixes and blocks are parts.
var scanKinds = []index.Options{
	{Uint64: true, MaxValueBytes: 8},
	{MaxKeyBytes: 64, MaxValueBytes: 300},
	{MaxKeyBytes: 200, MaxValueBytes: 100, InlineBytes: 5, CacheBytes: 2000},
}

// randomKey makes keys that are dense in some places, and share long prefixes in others; many are
// prefixes of other ones.
func randomKey(r *rand.Rand, o index.Options) []byte {
	if o.Uint64 {
		return binary.BigEndian.AppendUint64(nil, r.Uint64()>>(r.IntN(8)*8))
	}
	k := bytes.Repeat([]byte{byte(r.IntN(3))}, r.IntN(o.MaxKeyBytes-14))
	for range r.IntN(14) {
		k = append(k, byte(r.IntN(256)))
	}
	return k
}

// TestScanModel compares scans from random places in both directions with a model, while pairs are
// changed between them, by another client as well.
func TestScanModel(t *testing.T) {
	for _, o := range scanKinds {
		t.Run(fmt.Sprintf("uint64=%v/key=%d", o.Uint64, o.MaxKeyBytes), func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			r := rand.New(rand.NewPCG(seed, 1))
			c := pooltest.New(t, pooltest.Options{Chunks: 64})
			var sessions []index.Session
			var checks index.Checker
			for range 2 {
				x, err := Open(c.Open(t), o)
				if err != nil {
					t.Fatal(err)
				}
				s, err := x.Session()
				if err != nil {
					t.Fatal(err)
				}
				sessions, checks = append(sessions, s), x.(index.Checker)
			}
			model := map[string]string{}
			rounds := 60
			switch {
			case testing.Short():
				rounds = 10
			case o.CacheBytes != 0:
				rounds = 20 // scans with few copies READ all nodes each time
			}
			for round := range rounds {
				for range r.IntN(400) {
					k, v := randomKey(r, o), strings.Repeat("v", r.IntN(o.MaxValueBytes+1))
					if r.IntN(4) == 0 && len(model) > 0 {
						for m := range model { //env:real any key
							k = []byte(m)
							break
						}
						delete(model, string(k))
						if err := sessions[r.IntN(2)].Delete(k); err != nil {
							t.Fatal(err)
						}
						continue
					}
					model[string(k)] = v
					if err := sessions[r.IntN(2)].Upsert(k, []byte(v)); err != nil {
						t.Fatal(err)
					}
				}
				if round%10 == 9 {
					if found, err := checks.Check(); err != nil || found.Pairs != uint64(len(model)) {
						t.Fatalf("%+v: %v", found, err)
					}
				}
				var keys []string
				for k := range model {
					keys = append(keys, k)
				}
				slices.Sort(keys)
				for range 20 {
					start, limit, reverse := randomKey(r, o), r.IntN(200), r.IntN(2) == 0
					if r.IntN(5) == 0 && len(keys) > 0 {
						start = []byte(keys[r.IntN(len(keys))])
					}
					if r.IntN(10) == 0 {
						start = nil
					}
					if r.IntN(10) == 0 {
						limit = 1 << 30
					}
					compareScan(t, sessions[r.IntN(2)], model, keys, start, limit, reverse)
				}
			}
		})
	}
}

func compareScan(t *testing.T, s index.Session, model map[string]string, keys []string, start []byte, limit int, reverse bool) {
	t.Helper()
	at, _ := slices.BinarySearch(keys, string(start))
	step := 1
	if reverse {
		step = -1
		if at--; len(start) == 0 {
			at = len(keys) - 1
		}
	}
	n := 0
	err := s.Scan(start, limit, reverse, func(k, v []byte) bool {
		if at < 0 || at >= len(keys) || string(k) != keys[at] || string(v) != model[keys[at]] {
			t.Fatalf("scan from %x, limit %d, reverse %v: pair %d is %x: %q", start, limit, reverse, n, k, v)
		}
		at += step
		n++
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < limit && at >= 0 && at < len(keys) {
		t.Fatalf("scan from %x, limit %d, reverse %v: %d pairs, and %x is missing", start, limit, reverse, n, keys[at])
	}
}

// TestScanReads: a scan of everything READs each node and each leaf once, in full rounds, with
// inner nodes cached or not, and also where keys share long prefixes.
func TestScanReads(t *testing.T) {
	for _, long := range []int{0, 100} {
		for _, cold := range []bool{false, true} {
			t.Run(fmt.Sprintf("prefix=%d/cold=%v", long, cold), func(t *testing.T) {
				o := index.Options{MaxKeyBytes: 128, MaxValueBytes: 8}
				c := pooltest.New(t, pooltest.Options{Chunks: 64})
				x, err := Open(c.Open(t), o)
				if err != nil {
					t.Fatal(err)
				}
				s, err := x.Session()
				if err != nil {
					t.Fatal(err)
				}
				const n = 3000
				r := rand.New(rand.NewPCG(5, 5))
				prefix := strings.Repeat("p", long)
				for i := range n {
					k := fmt.Sprintf("%s%08x%d", prefix, r.Uint32(), i)
					if err := s.Insert([]byte(k), []byte("v")); err != nil {
						t.Fatal(err)
					}
				}
				found, err := x.(index.Checker).Check()
				if err != nil {
					t.Fatal(err)
				}
				all := func() (pairs int) {
					if err := s.Scan(nil, 1<<30, false, func(_, _ []byte) bool { pairs++; return true }); err != nil {
						t.Fatal(err)
					}
					return pairs
				}
				if cold {
					if x, err = Open(c.Open(t), o); err != nil {
						t.Fatal(err)
					}
					if s, err = x.Session(); err != nil {
						t.Fatal(err)
					}
				} else {
					all() // what is not cached yet comes into the cache
				}
				before := s.Counters()
				if pairs := all(); pairs != n {
					t.Fatalf("%d pairs of %d", pairs, n)
				}
				now := s.Counters()
				d := now.Sub(&before)
				reads, trips := int(d.Requests[verbs.Read]), int(d.RoundTrips)
				if reads > found.Nodes+5 || trips > found.Nodes/mostReads*2+found.Levels+2 {
					t.Errorf("%d READs in %d round trips of %d nodes and leaves on %d levels", reads, trips, found.Nodes, found.Levels)
				}
				t.Logf("%d READs in %d round trips of %d nodes and leaves on %d levels", reads, trips, found.Nodes, found.Levels)
			})
		}
	}
}

// TestScanParts: with inner nodes cached a short scan READs of a leaf as much as has its value, of
// a node of type direct the slots that it needs, and what lies side by side by one request.
func TestScanParts(t *testing.T) {
	const (
		pairs = 20_000
		limit = 50
		scans = 200
	)
	for _, kind := range []struct {
		name          string
		bulk, changed bool
		value         int
		bytes         float64 // a scan, at most
		reads         float64
		trips         float64
	}{
		// a leaf of 320 bytes has its first value in 176, and one of 64 all of it
		{"inserted", false, false, 128, 11_500, 70, 2.1},
		{"changed", false, true, 128, 19_500, 120, 4.1},
		{"loaded", true, false, 8, 5_000, 10, 2.1},
	} {
		t.Run(kind.name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			r := rand.New(rand.NewPCG(seed, 1))
			c := pooltest.New(t, pooltest.Options{Chunks: 64})
			x, err := Open(c.Open(t), index.Options{Uint64: true, MaxValueBytes: 128})
			if err != nil {
				t.Fatal(err)
			}
			s, err := x.Session()
			if err != nil {
				t.Fatal(err)
			}
			model := map[string]string{}
			var keys []string
			for len(keys) < pairs {
				k := string(binary.BigEndian.AppendUint64(nil, r.Uint64()))
				keys, model[k] = append(keys, k), strings.Repeat(string('a'+rune(r.IntN(26))), kind.value)
			}
			put := s.Insert
			if kind.bulk {
				slices.Sort(keys)
				if err := x.BulkLoad(func(yield func(k, v []byte) bool) error {
					for _, k := range keys {
						if !yield([]byte(k), []byte(model[k])) {
							break
						}
					}
					return nil
				}, 1); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				for _, k := range keys {
					if kind.bulk {
						break
					}
					if err := put([]byte(k), []byte(model[k])); err != nil {
						t.Fatal(err)
					}
				}
				if put = s.Update; !kind.changed {
					break
				}
			}
			slices.Sort(keys)
			// Scans count that find all inner nodes in the cache. A node that was taken out before
			// hides copies from some moment on: then all come into the cache again.
			inner := s.(*Session)
			var sum verbs.Counters
			counted := 0
			for tries, cold := 0, true; counted < scans && tries < 20*scans; tries++ {
				if cold {
					compareScan(t, s, model, keys, nil, 1<<30, true)
				}
				before, missed := s.Counters(), inner.Count.Misses
				compareScan(t, s, model, keys, []byte(keys[r.IntN(pairs)]), limit, r.IntN(2) == 0)
				if cold = inner.Count.Misses != missed; !cold {
					now := s.Counters()
					d := now.Sub(&before)
					sum.Sum(&d)
					counted++
				}
			}
			if counted < scans/10 {
				t.Fatalf("%d scans found all inner nodes in the cache: this tests nothing", counted)
			}
			a := func(n uint64) float64 { return float64(n) / float64(counted) }
			bytes, reads, trips := a(sum.Bytes[verbs.Read]), a(sum.Requests[verbs.Read]), a(sum.RoundTrips)
			t.Logf("%.0f bytes by %.1f READs in %.2f round trips", bytes, reads, trips)
			if bytes > kind.bytes || reads > kind.reads || trips > kind.trips {
				t.Errorf("at most %.0f, %.0f and %.1f are expected", kind.bytes, kind.reads, kind.trips)
			}
			if kind.changed && trips < 1.5 {
				t.Error("no second cells are READ: this tests nothing")
			}
		})
	}
}
