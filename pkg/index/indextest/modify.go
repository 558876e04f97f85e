package indextest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// counters lets sessions of several clients add to a few counters. Nothing that anybody added may
// be missing. A counter is followed by as many bytes as it says, so that its value goes between
// entry and block, and at times it is taken out and begins anew from what it had.
func (r *runner) counters(t *testing.T) {
	for _, o := range []index.Options{
		{Uint64: true, MaxValueBytes: 8},
		{MaxKeyBytes: 8, MaxValueBytes: 700, InlineBytes: 300},
	} {
		for _, o := range caches(o) {
			t.Run(fmt.Sprintf("value=%d%s", o.MaxValueBytes, cacheName(o)), func(t *testing.T) { r.countersOn(t, o) })
		}
	}
}

func (r *runner) countersOn(t *testing.T, o index.Options) {
	const pools, sessions, keys = 3, 2, 12
	random := seeded(t)
	c := r.cluster(t, 32)
	adds := scale(500)
	if testing.Short() {
		adds = scale(150)
	}
	var indexes []index.Index
	for range pools {
		indexes = append(indexes, r.open(t, c.Open(t), o))
	}
	s := session(t, indexes[0])
	var beside [][]byte // keys that a crowded cache looks for, between those of two counters
	for k := range uint64(1500) {
		if o.CacheBytes != 0 {
			beside = append(beside, number(keys+k))
			must(t, s.Insert(beside[k], beside[k]))
		}
	}
	var all sync.WaitGroup
	added := make([][keys]uint64, pools*sessions)
	for i := range added {
		s, seed := session(t, indexes[i%pools]), random.Uint64()
		all.Go(func() {
			a := adder{s: s, random: rand.New(rand.NewPCG(seed, 3)), most: o.MaxValueBytes}
			for n := 0; n < adds && !t.Failed(); n++ {
				k, by := a.random.Uint64N(keys), uint64(1+a.random.IntN(9))
				if err := a.add(k, by); err != nil {
					t.Error(err)
				}
				added[i][k] += by
				if len(beside) > 0 {
					if _, err := s.Lookup(beside[a.random.IntN(len(beside))], nil); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	for k := range uint64(keys) {
		sum := uint64(0)
		for i := range added {
			sum += added[i][k]
		}
		v, err := s.Lookup(number(k), nil)
		if err != nil || len(v) < 8 || binary.LittleEndian.Uint64(v) != sum {
			t.Errorf("counter %d is %x, %v, want %d", k, v[:min(len(v), 8)], err, sum)
		}
	}
	check(t, indexes[0])
	evicts(t, o, indexes, beside)
}

// adder adds in one session.
type adder struct {
	s      index.Session
	random *rand.Rand
	most   int // bytes of a value
	value  []byte
}

// add adds to counter k. Now and then it takes the counter out first, and puts what that had,
// unless somebody has begun a new one meanwhile: then it adds that, too.
func (a *adder) add(k, by uint64) error {
	if a.random.IntN(16) == 0 {
		had := uint64(0)
		if err := a.s.Modify(number(k), func(old []byte, found bool) ([]byte, index.Action) {
			if had = 0; found {
				had = binary.LittleEndian.Uint64(old)
			}
			return nil, index.Remove
		}); err != nil {
			return fmt.Errorf("take a counter out: %w", err)
		}
		by += had
	}
	if err := a.s.Modify(number(k), func(old []byte, found bool) ([]byte, index.Action) {
		now := by
		if found {
			now += binary.LittleEndian.Uint64(old)
		}
		a.value = binary.LittleEndian.AppendUint64(a.value[:0], now)
		for len(a.value) < a.most && uint64(len(a.value)) < 8+now*37%uint64(a.most) {
			a.value = append(a.value, byte(now))
		}
		return a.value, index.Put
	}); err != nil {
		return fmt.Errorf("add to a counter: %w", err)
	}
	return nil
}

// modifyRefusals: what cannot be put is refused, and nothing is done.
func (r *runner) modifyRefusals(t *testing.T) {
	for _, inline := range []int{0, 10} {
		c := r.cluster(t, 8)
		s := session(t, r.open(t, c.Open(t), index.Options{MaxKeyBytes: 10, MaxValueBytes: 20, InlineBytes: inline}))
		says := func(value []byte, action index.Action) index.Change {
			return func([]byte, bool) ([]byte, index.Action) { return value, action }
		}
		wantError(t, "modify of a long key", s.Modify(make([]byte, 11), says(nil, index.Put)), index.ErrKeyTooLong)
		for _, there := range []bool{false, true} {
			key := []byte("key")
			wantError(t, "put of a long value", s.Modify(key, says(make([]byte, 21), index.Put)), index.ErrValueTooLong)
			if err := s.Modify(key, says(nil, index.Remove+1)); err == nil {
				t.Error("an action that is none is done")
			}
			wantError(t, "keep", s.Modify(key, says([]byte("x"), index.Keep)), nil)
			v, err := s.Lookup(key, nil)
			if there && (err != nil || !bytes.Equal(v, make([]byte, 20))) || !there && !errors.Is(err, index.ErrNotFound) {
				t.Errorf("afterwards the key has %q, %v", v, err)
			}
			wantError(t, "remove", s.Modify(key, says(nil, index.Remove)), nil)
			wantError(t, "put of the longest", s.Modify(key, says(make([]byte, 20), index.Put)), nil)
		}
	}
}

// modifyCosts are what a modification may take that puts a long value where there is one: what an
// update takes, and the READ of what is there.
func modifyCosts(update Cost) Cost {
	update.RoundTrips++
	update.Requests[verbs.Read]++
	update.Bytes += LongValue
	return update
}
