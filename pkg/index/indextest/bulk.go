package indextest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// sorted makes n different pairs of an index, in order.
func sorted(random *rand.Rand, o index.Options, n int) []pair {
	keys := map[string]bool{}
	for len(keys) < n {
		k := string(number(random.Uint64()))
		if !o.Uint64 {
			// Prefixes that many keys share, so that inner nodes in the middle of one and at the
			// end of one differ in how much they hold.
			k = strings.Repeat("p", o.MaxKeyBytes*3/4*random.IntN(2)) + fmt.Sprintf("%0*d", 1+random.IntN(o.MaxKeyBytes/5), random.IntN(1<<30))
			k = k[:min(len(k), o.MaxKeyBytes)]
		}
		keys[k] = true
	}
	all := make([]pair, 0, n)
	for k := range keys {
		all = append(all, pair{k, strings.Repeat("v", random.IntN(o.MaxValueBytes+1))})
	}
	slices.SortFunc(all, func(a, b pair) int { return strings.Compare(a.key, b.key) })
	return all
}

// stream gives pairs to a bulk load, from buffers that it uses again.
func stream(all []pair, err error) index.Pairs {
	return func(yield func(key, value []byte) bool) error {
		var k, v []byte
		for _, p := range all {
			k, v = append(k[:0], p.key...), append(v[:0], p.value...)
			if !yield(k, v) {
				break
			}
		}
		return err
	}
}

// bulkLoad loads indexes of every kind and size, and compares them with what was loaded, also as a
// client sees them that was there before; then goes on with point operations.
func (r *runner) bulkLoad(t *testing.T) {
	sizes, parallels := []int{0, 1, 2, 30, 100, 1500, scale(30000)}, []int{1, 3}
	// Sizes have nothing to do with the fabric. The race detector never gives back what it keeps of
	// each index's memory, and loads that fit into a batch need one goroutine.
	switch {
	case testing.Short():
		sizes, parallels = []int{1500}, []int{3}
	case r.provider != "shm":
		sizes, parallels = []int{0, 100, 1500}, []int{3}
	}
	for _, o := range []index.Options{
		{Uint64: true, MaxValueBytes: 8},
		{MaxKeyBytes: 100, MaxValueBytes: 64},
		{MaxKeyBytes: 512, MaxValueBytes: 2048},
		{Uint64: true, MaxValueBytes: 1100, InlineBytes: 100},
	} {
		for _, n := range sizes {
			if o.MaxValueBytes > 1000 {
				n /= 20
			}
			for _, parallel := range parallels {
				t.Run(fmt.Sprintf("uint64=%v/value=%d/pairs=%d/parallel=%d", o.Uint64, o.MaxValueBytes, n, parallel), func(t *testing.T) {
					r.bulkLoadOn(t, o, n, parallel)
				})
			}
		}
	}
	t.Run("Refusals", r.bulkRefusals)
	if r.Design.SharesAll { // else nobody else can use it meanwhile
		t.Run("Beside", r.bulkBeside)
	}
}

func (r *runner) bulkLoadOn(t *testing.T, o index.Options, n, parallel int) {
	random := seeded(t)
	c := r.cluster(t, 64)
	early := session(t, r.open(t, c.Open(t), o))
	_ = early.Delete(number(1)) // it knows the empty index
	x := r.open(t, c.Open(t), o)
	all := sorted(random, o, n)
	must(t, x.BulkLoad(stream(all, nil), parallel))
	found := check(t, x)
	if found.Pairs != uint64(n) || found.Unlinked != 0 {
		t.Errorf("%+v of %d pairs", found, n)
	}
	t.Logf("%d nodes on %d levels, %d bytes for %d", found.Nodes, found.Levels, found.NodeBytes, found.PairBytes)
	for i, s := range []index.Session{early, session(t, x)} {
		for reverse := range 2 {
			got, err := scan(s, nil, 1<<30, reverse == 1)
			must(t, err)
			if reverse == 1 {
				slices.Reverse(got)
			}
			if !slices.Equal(got, all) {
				t.Fatalf("session %d, reverse %d: a scan visits %d pairs, which are not the %d that were loaded", i, reverse, len(got), n)
			}
		}
	}
	s := session(t, x)
	want := map[string]string{}
	for _, p := range all {
		want[p.key] = p.value
	}
	for _, p := range sorted(random, o, max(50, n/3)) {
		must(t, early.Upsert([]byte(p.key), []byte(p.value)))
		want[p.key] = p.value
	}
	for i, p := range all {
		if i%3 == 0 {
			must(t, s.Delete([]byte(p.key)))
			delete(want, p.key)
		}
	}
	for k, v := range want {
		if got, err := s.Lookup([]byte(k), nil); err != nil || string(got) != v {
			t.Fatalf("lookup %x: %q, %v, want %q", k, got, err, v)
		}
	}
	if found := check(t, x); found.Pairs != uint64(len(want)) {
		t.Errorf("%d pairs, want %d", found.Pairs, len(want))
	}
}

// bulkRefusals are of what cannot be loaded. Each gives its memory back: the pool has room for one
// load and not for two.
func (r *runner) bulkRefusals(t *testing.T) {
	random := seeded(t)
	o := index.Options{Uint64: true, MaxValueBytes: 8}
	all := sorted(random, o, 4000)
	c := r.start(t, pooltest.Options{Chunks: 2, ChunkBytes: 128 << 10})
	x := r.open(t, c.Open(t), o)
	s := session(t, x)
	twice := slices.Clone(all)
	twice[3000] = twice[2999]
	source := errors.New("the source failed")
	for range 5 {
		err := x.BulkLoad(stream(twice, nil), 2)
		wantError(t, "a key twice", err, index.ErrUnsorted)
		if key := fmt.Sprintf("%q", twice[3000].key); strings.Count(err.Error(), key) != 2 {
			t.Errorf("%v does not name both keys", err)
		}
		wantError(t, "a source that fails", x.BulkLoad(stream(all, source), 2), source)
		wantError(t, "a value that is too long", x.BulkLoad(stream(append(all[:len(all):len(all)], pair{"\xff\xff\xff\xff\xff\xff\xff\xff", "123456789"}), nil), 2), index.ErrValueTooLong)
		wantError(t, "more than the pool has room for", x.BulkLoad(stream(sorted(random, o, 40000), nil), 2), index.ErrPoolFull)
		if found := check(t, x); found.Pairs != 0 || found.Nodes != 1 {
			t.Errorf("%+v after a load that failed", found)
		}
	}
	must(t, s.Insert(number(5), nil))
	wantError(t, "an index with a pair", x.BulkLoad(stream(all, nil), 2), index.ErrNotEmpty)
	must(t, s.Delete(number(5)))
	must(t, x.BulkLoad(stream(all, nil), 2))
	wantError(t, "an index with inner nodes", x.BulkLoad(stream(all, nil), 2), index.ErrNotEmpty)
	check(t, x)
}

// bulkBeside loads while others read, who see all or nothing; and while another inserts, which ends
// the load.
func (r *runner) bulkBeside(t *testing.T) {
	random := seeded(t)
	o := index.Options{Uint64: true, MaxValueBytes: 8}
	all := sorted(random, o, 5000)
	c := r.cluster(t, 32)
	x, other := r.open(t, c.Open(t), o), session(t, r.open(t, c.Open(t), o))
	failing := func(yield func(key, value []byte) bool) error {
		if err := stream(all, nil)(yield); err != nil {
			return err
		}
		return other.Insert(number(7), []byte("other"))
	}
	wantError(t, "a load beside an insert", x.BulkLoad(failing, 2), index.ErrNotEmpty)
	if v, err := other.Lookup(number(7), nil); err != nil || !bytes.Equal(v, []byte("other")) {
		t.Errorf("what was inserted during the load: %q, %v", v, err)
	}
	must(t, other.Delete(number(7)))

	var over atomic.Bool
	done := make(chan error, 1)
	go func() {
		seen := false
		for {
			last := over.Load()
			for _, p := range []pair{all[0], all[len(all)/2], all[len(all)-1]} {
				v, err := other.Lookup([]byte(p.key), nil)
				if err != nil && (err != index.ErrNotFound || seen) || err == nil && string(v) != p.value {
					done <- fmt.Errorf("lookup %x, seen %v: %q, %w", p.key, seen, v, err)
					return
				}
				seen = err == nil
			}
			if last {
				done <- nil
				return
			}
		}
	}()
	must(t, x.BulkLoad(stream(all, nil), 2))
	over.Store(true)
	must(t, <-done)
}
