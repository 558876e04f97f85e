package dex

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
)

// TestEntriesOnThreads: sessions on real threads change keys of the same leaves, many of which have
// entries, while all leaves are written back again and again, and a range between the keys is given
// and taken. Each session has keys that nobody else changes, so it knows each answer, and
// what a scan must show of them.
func TestEntriesOnThreads(t *testing.T) {
	defer MostlyEntries()()
	const sessions, each, keys = 6, 6000, 120
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	x, _ := openedBy(t, "shm", index.Options{Uint64: true, MaxValueBytes: 16, NodeBytes: 256, CacheBytes: 24 << 10})
	key := func(n, i int) []byte { return scanKey(uint64(n*(sessions+1) + i)) }
	inRange := func(n int) bool { return n >= keys/2 && n < keys/2+10 } // these are the mover's
	from, to := key(keys/2, 0), key(keys/2+10, 0)
	g, pairs := env.NewWaitGroup(env.Real()), make([]int, sessions+1)
	var running atomic.Int32
	running.Store(sessions)
	tell := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	for i := range sessions {
		s, err := x.Session()
		mustDo(t, err)
		g.Go("session", func() {
			defer running.Add(-1)
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			model := map[int]string{}
			for step := range each {
				n := r.IntN(keys)
				if inRange(n) {
					continue
				}
				k, value := key(n, i), fmt.Appendf(nil, "%d %d         ", i, step)[:8+r.IntN(2)*r.IntN(3)]
				had, is := model[n]
				if r.IntN(50) == 0 {
					tell(s.Durable(s.Position()))
					s.Defer(r.IntN(2) == 0)
				}
				var err, want error
				switch do := r.IntN(20); {
				case do < 9:
					if err = s.Update(k, value); !is {
						want = index.ErrNotFound
					}
				case do == 9:
					if err = s.Insert(k, value); is {
						want = index.ErrExists
					}
				case do == 10 && r.IntN(3) == 0:
					if err, value = s.Delete(k), nil; !is {
						want = index.ErrNotFound
					}
				case do == 11:
					err = s.Upsert(k, value)
				case do == 12:
					seen := map[int]string{}
					if inRange(n+1) || inRange(n+2) || inRange(n+3) || n+3 >= keys {
						continue
					}
					err = s.Scan(k, 4*(sessions+1), false, func(found, v []byte) bool {
						for m := n; m < n+3; m++ {
							if bytes.Equal(found, key(m, i)) {
								seen[m] = string(v)
							}
						}
						return bytes.Compare(found, key(n+3, 0)) < 0
					})
					for m := n; m < n+3; m++ {
						if seen[m] != model[m] {
							t.Errorf("session %d: a scan shows %q of key %d, want %q", i, seen[m], m, model[m])
						}
					}
					tell(err)
					continue
				case do == 13:
					batch := [][]byte{}
					var at []int
					for range 5 {
						if m := r.IntN(keys); !inRange(m) {
							batch, at = append(batch, key(m, i)), append(at, m)
						}
					}
					tell(s.LookupBatch(batch, func(j int, v []byte, err error) {
						if w, is := model[at[j]]; is != (err == nil) || string(v) != w {
							t.Errorf("session %d: key %d of a batch is %q, want %q: %v", i, at[j], v, w, err)
						}
					}))
					continue
				default:
					got, e := s.Lookup(k, nil)
					if is != (e == nil) || is && string(got) != had {
						t.Errorf("session %d, key %x is %q, want %q: %v", i, k, got, had, e)
					}
					continue
				}
				if !errors.Is(err, want) || want == nil && err != nil {
					t.Errorf("session %d, key %x: %v, want %v", i, k, err, want)
					return
				}
				switch {
				case err != nil:
				case value == nil:
					delete(model, n)
				default:
					model[n] = string(value)
				}
			}
			s.Defer(false)
			pairs[i] = len(model)
			tell(s.Close())
		})
	}
	g.Go("write back", func() {
		for running.Load() > 0 {
			tell(x.flushAll(true))
			env.Real().Sleep(time.Millisecond)
		}
	})
	moves := 0
	g.Go("move", func() {
		s, err := x.Session()
		tell(err)
		model := map[int]string{}
		r := rand.New(rand.NewPCG(seed, 99))
		for epoch := uint64(2); running.Load() > 0; epoch++ {
			for range 40 {
				n := keys/2 + r.IntN(10)
				got, err := s.Lookup(key(n, sessions), nil)
				if had, is := model[n]; is != (err == nil) || string(got) != had {
					t.Errorf("key %d of the range that moves is %q, want %q: %v", n, got, had, err)
				}
				model[n] = fmt.Sprintf("%08d", r.IntN(1000000))
				tell(s.Upsert(key(n, sessions), []byte(model[n])))
			}
			if _, err := x.Give(from, to); err != nil {
				t.Errorf("give: %v", err)
				return
			}
			tell(x.Take(pool.Holding{Start: from, End: to, Epoch: epoch}))
			moves++
		}
		pairs[sessions] = len(model)
		tell(s.Close())
	})
	g.Wait(env.Forever)
	mustDo(t, x.flushAll(false))
	want := 0
	for _, n := range pairs {
		want += n
	}
	if found, err := x.Check(); !t.Failed() && (err != nil || int(found.Pairs) != want) {
		t.Errorf("%d pairs, want %d: %v", found.Pairs, want, err)
	}
	resized := Resized(x)
	t.Logf("%d moves, %d changes of the share of entries", moves, resized)
	if moves == 0 || resized < 100 || !x.rows.Used() {
		t.Errorf("%d moves, %d changes of the share of entries: this tests nothing", moves, resized)
	}
}
