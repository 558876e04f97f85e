package indextest

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// crowdedKey is one of few keys that share nodes as much as keys can: over seven letters, with
// the same letter before them as often as one header has room for, or two; many are prefixes of
// others.
func crowdedKey(r *rand.Rand) []byte {
	k := bytes.Repeat([]byte{'a'}, []int{0, 0, 1, art.MostPrefix, 2*art.MostPrefix + 2}[r.IntN(5)])
	for range r.IntN(3) {
		k = append(k, 'a'+byte(r.IntN(7)))
	}
	return k
}

// owner is which of n threads may change a key.
func owner(key []byte, n int) int {
	sum := len(key)
	for _, c := range key {
		sum = 31*sum + int(c)
	}
	return sum % n
}

// Threads is a test of designs with radix inner nodes. Threads, each with a session at each of
// three clients, of which two have next to no cache, change keys that share all nodes, so that
// these split, grow, shrink and are merged all the time. Each key has one owner, who knows what is
// there: a lookup, a batch and a scan of the owner's say just that, whichever client's copies they
// follow, and what others read has a value of that key. Keys that nobody changes are in every scan.
func Threads(t *testing.T, open func(p *pool.Pool, o index.Options) (index.Index, error), o index.Options) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	ops := 12_000
	if testing.Short() {
		ops = 2_500
	}
	const threads = 4
	c := pooltest.New(t, pooltest.Options{Chunks: 32})
	sessions := make([][]index.Session, threads) // one at each client
	var x index.Index
	for n := range 3 {
		if n > 0 {
			o.CacheBytes = []int{700, 2500}[n-1]
		}
		var err error
		if x, err = open(c.Open(t), o); err != nil {
			t.Fatal(err)
		}
		for i := range sessions {
			s, err := x.Session()
			if err != nil {
				t.Fatal(err)
			}
			sessions[i] = append(sessions[i], s)
		}
	}
	stay := [][]byte{{}, []byte("aaa"), bytes.Repeat([]byte{'a'}, art.MostPrefix+2), []byte("h"), bytes.Repeat([]byte{'a'}, 39)}
	stays := map[string]bool{}
	for _, k := range stay {
		stays[string(k)] = true
		if err := sessions[0][0].Insert(k, valueOf(k, 0, o.MaxValueBytes)); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	left := make([]int, len(sessions))
	for n, all := range sessions {
		wg.Go(func() {
			w := threaded{most: o.MaxValueBytes, all: all, n: n, of: len(sessions), rand: rand.New(rand.NewPCG(seed, uint64(n))), there: map[string][]byte{}, stays: stays}
			for i := range ops {
				if err := w.step(); err != nil {
					t.Errorf("thread %d, operation %d: %v", n, i, err)
					return
				}
			}
			left[n] = len(w.there)
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	found, err := x.(index.Checker).Check()
	want := len(stay)
	for _, n := range left {
		want += n
	}
	if err != nil || found.Pairs != uint64(want) {
		t.Errorf("%d pairs, want %d: %v", found.Pairs, want, err)
	}
	t.Logf("%d pairs, %d nodes on %d levels; %d nodes were taken out, %d used again", found.Pairs, found.Nodes, found.Levels, x.Stats().Merges, x.Stats().Reclaimed)
}

// valueOf is the n-th value of a key, of so many bytes at most; some are in blocks, and lengths
// change.
func valueOf(key []byte, n, most int) []byte {
	v := fmt.Appendf(nil, "%x:", key[:min(len(key), 8)])
	if most <= 8 {
		v = fmt.Appendf(nil, "%04x", crc32.ChecksumIEEE(key)>>16)
	}
	return append(v, bytes.Repeat([]byte{'v'}, n%min(40, most-len(v)+1))...)
}

// threaded is one thread.
type threaded struct {
	most  int // bytes of a value
	all   []index.Session
	s     index.Session // one of them, for the next operation
	n, of int
	rand  *rand.Rand
	there map[string][]byte // of its own keys
	stays map[string]bool
	dst   []byte
}

// value is the n-th value of a key.
func (w *threaded) value(key []byte, n int) []byte { return valueOf(key, n, w.most) }

// ownKey is a key that only this thread changes.
func (w *threaded) ownKey() []byte {
	for {
		if k := crowdedKey(w.rand); owner(k, w.of) == w.n && !w.stays[string(k)] {
			return k
		}
	}
}

func (w *threaded) step() (err error) {
	k := w.ownKey()
	w.s = w.all[w.rand.IntN(len(w.all))]
	value, there := w.there[string(k)]
	next := w.value(k, w.rand.IntN(40))
	missing := func(err error) bool {
		return there == errors.Is(err, index.ErrNotFound) || err != nil && !errors.Is(err, index.ErrNotFound)
	}
	switch w.rand.IntN(12) {
	case 0, 1:
		if err = w.s.Insert(k, next); err != nil == !there || err != nil && err != index.ErrExists {
			return fmt.Errorf("insert of %q, there: %v: %w", k, there, err)
		} else if err == nil {
			w.there[string(k)] = next
		}
	case 2, 3:
		if err = w.s.Upsert(k, next); err != nil {
			return err
		}
		w.there[string(k)] = next
	case 4, 5, 6:
		if err = w.s.Delete(k); missing(err) {
			return fmt.Errorf("delete of %q, there: %v: %w", k, there, err)
		}
		delete(w.there, string(k))
	case 7:
		if err = w.s.Update(k, next); missing(err) {
			return fmt.Errorf("update of %q, there: %v: %w", k, there, err)
		} else if err == nil {
			w.there[string(k)] = next
		}
	case 8:
		return w.scan()
	case 9:
		return w.batch()
	case 10: // somebody else's
		k = crowdedKey(w.rand)
		if w.dst, err = w.s.Lookup(k, w.dst[:0]); err != nil && err != index.ErrNotFound {
			return err
		} else if err == nil && !bytes.HasPrefix(w.dst, w.value(k, 0)) {
			return fmt.Errorf("%q has value %q", k, w.dst)
		}
	default:
		if w.dst, err = w.s.Lookup(k, w.dst[:0]); missing(err) || there && !bytes.Equal(w.dst, value) {
			return fmt.Errorf("lookup of %q, which is %q, there: %v: %q, %w", k, value, there, w.dst, err)
		}
	}
	return nil
}

// batch looks own keys up together, and one that nobody changes.
func (w *threaded) batch() error {
	keys := [][]byte{[]byte("aaa")}
	for range w.rand.IntN(90) {
		keys = append(keys, w.ownKey())
	}
	n := 0
	var wrong error
	err := w.s.LookupBatch(keys, func(i int, value []byte, err error) {
		n++
		want, there := w.there[string(keys[i])]
		if i == 0 {
			want, there = w.value(keys[0], 0), true
		}
		if there != (err == nil) || there && !bytes.Equal(value, want) {
			wrong = fmt.Errorf("batch: %q, which is %q, there: %v: %q, %w", keys[i], want, there, value, err)
		}
	})
	if err == nil && n != len(keys) {
		err = fmt.Errorf("%d of %d keys are visited", n, len(keys))
	}
	return errors.Join(err, wrong)
}

// scan scans all, or up to a limit, and compares what it says of own keys, and of those that stay.
func (w *threaded) scan() error {
	start, reverse, limit := crowdedKey(w.rand), w.rand.IntN(2) == 0, 1<<30
	if w.rand.IntN(2) == 0 {
		limit = 1 + w.rand.IntN(20)
	}
	if w.rand.IntN(3) == 0 {
		start = nil
	}
	seen := map[string]bool{}
	var last []byte
	var wrong error
	err := w.s.Scan(start, limit, reverse, func(k, v []byte) bool {
		if n := len(seen); n > 0 && bytes.Compare(last, k) >= 0 != reverse {
			wrong = fmt.Errorf("%q after %q, reverse: %v", k, last, reverse)
		}
		if !bytes.HasPrefix(v, w.value(k, 0)) {
			wrong = fmt.Errorf("%q has value %q", k, v)
		}
		if owner(k, w.of) == w.n && !w.stays[string(k)] {
			if want, there := w.there[string(k)]; !there || !bytes.Equal(v, want) {
				wrong = fmt.Errorf("%q is %q, which is %q, there: %v", k, v, want, there)
			}
		}
		last = append(last[:0], k...)
		seen[string(k)] = true
		return true
	})
	reached := func(k string) bool {
		if len(start) > 0 && (k < string(start) != reverse) {
			return false
		}
		return len(seen) < limit || k <= string(last) != reverse || k == string(last)
	}
	for _, all := range []func(visit func(string)){
		func(visit func(string)) {
			for k := range w.there {
				visit(k)
			}
		},
		func(visit func(string)) {
			for k := range w.stays {
				visit(k)
			}
		},
	} {
		all(func(k string) {
			if reached(k) && !seen[k] {
				wrong = errors.Join(wrong, fmt.Errorf("%q is missing in a scan from %q, limit %d, reverse %v", k, start, limit, reverse))
			}
		})
	}
	return errors.Join(err, wrong)
}
