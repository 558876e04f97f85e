package dex

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/ranges"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool"
)

// hookedEnv does something before one of its locks is acquired the next time.
type hookedEnv struct {
	env.Env
	before func()
}

func (e *hookedEnv) NewMutex() env.Mutex { return &hookedMutex{e.Env.NewMutex(), e} }

// hookedMutex is a lock of a hookedEnv.
type hookedMutex struct {
	env.Mutex
	env *hookedEnv
}

func (m *hookedMutex) Lock() {
	if do := m.env.before; do != nil {
		m.env.before = nil
		do()
	}
	m.Mutex.Lock()
}

// TestClaimLooksUnderTheLock gives a leaf's range away, or only begins to, when Claim has looked at
// what was taken and has no frame for the leaf yet: the claim is refused.
func TestClaimLooksUnderTheLock(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(x *dex) error
	}{
		{"given", func(x *dex) error { _, err := x.Give(nil, nil); return err }},
		{"leaving", func(x *dex) error { x.ranges.Store(x.ranges.Load().Giving(ranges.Span{})); return nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			x, s := opened(t, index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 256, CacheBytes: 1 << 20})
			hooked := &hookedEnv{Env: x.env}
			x.cache, _ = cachesOf(hooked, x.with, x.with.sharesOf(x.lay), 1<<19, x.lay.NodeBytes, nil, x.budget.LeafGhosts())
			x.budget.Serve(x.cache, &x.rows, &x.values)
			for n := range uint64(scanned) {
				mustDo(t, s.Upsert(scanKey(n), []byte("first...")))
			}
			again(t, x, 2) // so that no leaf has a frame
			key := scanKey(scanned / 2)
			s.b.Begin()
			defer s.b.End()
			p, err := s.b.Descend(key)
			mustDo(t, err)
			var l slotted.Leaf
			for hops, here := 0, false; !here; {
				s.b.PS.Read(p.Addr(), s.b.Staging())
				mustDo(t, s.b.PS.Post())
				here, err = s.b.Judge(&p, &l, key, s.b.Staging(), &hops)
				mustDo(t, err)
			}
			met := false
			// the lock of the leaf's shard
			hooked.before = func() { met = true; mustDo(t, c.do(x)) }
			ok, err := x.Claim(&s.b.Session, p.Addr(), l.Low, l.High, l.Rightmost)
			mustDo(t, err)
			if ok || x.cache.Find(p.Addr()) != nil || !met {
				t.Errorf("claimed: %v; it has a frame: %v; the range was given meanwhile: %v", ok, x.cache.Find(p.Addr()) != nil, met)
			}
			if ok {
				x.Release(p.Addr())
			}
		})
	}
}

// TestMarkOfGiveGoes: a range that could not be divided at its ends is as it was before Give, and
// its leaves may be merged.
func TestMarkOfGiveGoes(t *testing.T) {
	x, s := opened(t, index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 256, CacheBytes: 1 << 20})
	mustDo(t, s.Upsert(scanKey(1), []byte("value")))
	tooLong := append(scanKey(1), 0) // no key of this index, so no fence
	if _, err := x.Give(tooLong, nil); err == nil {
		t.Fatal("a range that begins at a key of 9 bytes was given")
	}
	if r := x.ranges.Load(); r.Leaving != nil || !r.MayMerge(nil, nil, true) {
		t.Errorf("after a Give that failed: %+v", r)
	}
	mustDo(t, s.Upsert(scanKey(2), []byte("value")))
	_, err := x.Give(scanKey(1), nil)
	mustDo(t, err)
	if r := x.ranges.Load(); r.Leaving != nil || !r.MayMerge(nil, scanKey(1), false) || r.MayMerge(nil, scanKey(2), false) {
		t.Errorf("after Give: %+v", r)
	}
	mustDo(t, x.Take(pool.Holding{Start: scanKey(1), Epoch: 3}))
	if r := x.ranges.Load(); !r.MayMerge(nil, nil, true) {
		t.Errorf("after Take: %+v", r)
	}
}
