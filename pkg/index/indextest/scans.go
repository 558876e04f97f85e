package indextest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
)

// scans runs scans beside writers. Keys whose number is 0 modulo 3 are there all the time, those of
// 1 come and go, those of 2 never are. Values say their key, and those of comers a generation.
func (r *runner) scans(t *testing.T) {
	for _, o := range []index.Options{
		{Uint64: true, MaxValueBytes: 24},
		{MaxKeyBytes: 150, MaxValueBytes: 60},
		{Uint64: true, MaxValueBytes: 400, InlineBytes: 100},
	} {
		for _, o := range caches(o) {
			if o.CacheBytes != 0 && testing.Short() && !o.Uint64 {
				continue
			}
			t.Run(fmt.Sprintf("uint64=%v/value=%d%s", o.Uint64, o.MaxValueBytes, cacheName(o)), func(t *testing.T) { r.scansOn(t, o) })
		}
	}
}

// scanKeys is how many keys there are.
const scanKeys = 3000

func scanKey(o index.Options, n int) []byte {
	if o.Uint64 {
		return number(uint64(n))
	}
	return fmt.Appendf(nil, "%08d/%s", n, bytes.Repeat([]byte{'k'}, n%100))
}

func (r *runner) scansOn(t *testing.T, o index.Options) {
	random := seeded(t)
	c := r.cluster(t, 64)
	x, y := r.open(t, c.Open(t), o), r.open(t, c.Open(t), o)
	s := session(t, x)
	for _, n := range random.Perm(scanKeys / 3) {
		must(t, s.Insert(scanKey(o, 3*n), fmt.Appendf(nil, "%d", 3*n)))
	}
	var stop atomic.Bool
	var writers, readers sync.WaitGroup
	for i, z := range []index.Index{x, y} {
		w, q := session(t, z), rand.New(rand.NewPCG(random.Uint64(), 3))
		writers.Go(func() {
			for !stop.Load() {
				n := 3*q.IntN(scanKeys/3) + 1
				value := fmt.Appendf(nil, "%d %*s", n, q.IntN(o.MaxValueBytes-8), "")
				err := w.Upsert(scanKey(o, n), value)
				if q.IntN(2) == 0 {
					// Only the writer of an odd or even half deletes there, so that it finds what
					// it deletes.
					if m := 3*q.IntN(scanKeys/3) + 1; m/3%2 == i && err == nil {
						if err = w.Upsert(scanKey(o, m), value[:0]); err == nil {
							err = w.Delete(scanKey(o, m))
						}
					}
				}
				if err != nil {
					t.Errorf("writer %d: %v", i, err)
					return
				}
			}
		})
	}
	for i, z := range []index.Index{x, y} {
		s, q := session(t, z), rand.New(rand.NewPCG(random.Uint64(), 4))
		readers.Go(func() {
			for range scale(150) {
				if err := scanOnce(s, o, q); err != nil {
					t.Errorf("reader %d: %v", i, err)
					return
				}
			}
		})
	}
	readers.Wait()
	stop.Store(true)
	writers.Wait()
	check(t, x)
	var keys [][]byte
	for n := range scanKeys / 3 {
		keys = append(keys, scanKey(o, 3*n))
	}
	evicts(t, o, []index.Index{x, y}, keys)
}

// scanOnce makes a random scan and checks what must and must not be in it.
func scanOnce(s index.Session, o index.Options, q *rand.Rand) error {
	n, limit, reverse := q.IntN(scanKeys), 1+q.IntN(300), q.IntN(2) == 0
	if q.IntN(10) == 0 {
		limit = 1 << 30
	}
	got, err := scan(s, scanKey(o, n), limit, reverse)
	if err != nil {
		return err
	}
	if err := ordered(got, reverse); err != nil {
		return err
	}
	step, next := 1, n // the next key that may come
	if reverse {
		step, next = -1, n-1
	}
	for _, p := range got {
		for ; string(scanKey(o, next)) != p.key; next += step {
			if next < 0 || next >= scanKeys {
				return fmt.Errorf("scan from %d visits %q, which nobody wrote", n, p.key)
			}
			if next%3 == 0 {
				return fmt.Errorf("scan from %d, limit %d, reverse %v: key %d is missing before %q", n, limit, reverse, next, p.key)
			}
		}
		if next%3 == 2 {
			return fmt.Errorf("scan visits key %d, which never was there", next)
		}
		var says int
		if _, err := fmt.Sscan(p.value, &says); p.value != "" && (err != nil || says != next) {
			return fmt.Errorf("scan visits key %d with value %q", next, p.value)
		}
		next += step
	}
	if len(got) == limit {
		return nil
	}
	for ; next >= 0 && next < scanKeys; next += step {
		if next%3 == 0 {
			return fmt.Errorf("scan from %d, limit %d, reverse %v: key %d is missing at the end", n, limit, reverse, next)
		}
	}
	return nil
}
