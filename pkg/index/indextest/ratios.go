package indextest

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/btree"
	"golang.org/x/sys/unix"

	"github.com/dmindex/dmindex/pkg/index"
)

// RatioKeys is how many keys Ratios puts into the index and into the map beside it.
const RatioKeys = 2 << 20

// RatioKey is key i of them.
func RatioKey(i int) uint64 { return uint64(i) * 0x9E3779B97F4A7C15 }

// Ratios compares an empty index of Uint64 keys with a B-tree in the same process, and two
// goroutines with one. It does so in short turns, so that a slow moment of the machine meets both.
// What it reports are ratios of sums over all turns.
//
// An index may write back what it changed while the map has its turn. Then the map has less of the
// machine, and the ratio by the clock says too little. So two more ratios are by the time on
// processors, both to that of the map's own thread: "own" is the time of the thread that calls the
// index, and "all" is that of all threads but the map's own.
func Ratios(b *testing.B, x index.Index) {
	fail := func(err error) {
		if err != nil {
			b.Error(err)
		}
	}
	type hands struct {
		s          index.Session
		key, value [8]byte
		dst        []byte
		at         int
		order      []int
	}
	var two [2]*hands
	for i := range two {
		s, err := x.Session()
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		two[i] = &hands{s: s, order: rand.New(rand.NewPCG(1, uint64(i))).Perm(RatioKeys)}
	}
	next := func(h *hands) uint64 {
		h.at = (h.at + 1) % len(h.order)
		k := RatioKey(h.order[h.at])
		binary.BigEndian.PutUint64(h.key[:], k)
		return k
	}
	var m btree.Map[uint64, uint64]
	h := two[0]
	for range RatioKeys {
		k := next(h)
		fail(h.s.Insert(h.key[:], h.value[:]))
		m.Set(k, 0)
	}
	lookup := func(h *hands) {
		next(h)
		var err error
		h.dst, err = h.s.Lookup(h.key[:], h.dst[:0])
		fail(err)
	}
	upsert := func(h *hands) {
		binary.LittleEndian.PutUint64(h.value[:], next(h))
		fail(h.s.Upsert(h.key[:], h.value[:]))
	}
	sum := uint64(0)
	visit := func(k, v []byte) bool { sum += binary.BigEndian.Uint64(k); return true }
	// timed is how long f takes n times on the sessions given, each in a goroutine of its own. It
	// adds the time that their threads had on processors to spent.
	var spent atomic.Int64
	timed := func(n int, f func(h *hands), of ...*hands) time.Duration {
		var g sync.WaitGroup
		start := time.Now()
		for _, h := range of {
			g.Go(func() {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				start := processors(b, unix.RUSAGE_THREAD)
				for range n {
					f(h)
				}
				spent.Add(int64(processors(b, unix.RUSAGE_THREAD) - start))
			})
		}
		g.Wait()
		return time.Since(start)
	}
	const turn = 20_000
	// speedup compares one goroutine with two: by the time on processors, so that only what these
	// cost each other counts, not that others use the machine. 2 is perfect.
	speedup := func(f func(h *hands)) (one, both func() time.Duration) {
		measure := func(of ...*hands) func() time.Duration {
			return func() time.Duration {
				start := processors(b, unix.RUSAGE_SELF)
				timed(turn, f, of...)
				return (processors(b, unix.RUSAGE_SELF) - start) * time.Duration(4/len(of)/len(of))
			}
		}
		return measure(h), measure(two[:]...)
	}
	lookups1, lookups2 := speedup(lookup)
	upserts1, upserts2 := speedup(upsert)
	gets1, gets2 := speedup(func(h *hands) { m.Get(next(h)) })
	for _, r := range []struct {
		name       string
		ours, base func() time.Duration
		alone      bool // one thread of each
	}{
		{"Lookup/MapGet", func() time.Duration { return timed(turn, lookup, h) }, func() time.Duration {
			return timed(turn, func(h *hands) {
				if _, ok := m.Get(next(h)); !ok {
					b.Error("a key is missing")
				}
			}, h)
		}, true},
		{"Upsert/MapSet", func() time.Duration { return timed(turn, upsert, h) }, func() time.Duration {
			return timed(turn, func(h *hands) { k := next(h); m.Set(k, k) }, h)
		}, true},
		{"Scan100/MapAscend100", func() time.Duration {
			return timed(turn/20, func(h *hands) { next(h); fail(h.s.Scan(h.key[:], 100, false, visit)) }, h)
		}, func() time.Duration {
			return timed(turn/20, func(h *hands) {
				n := 0
				m.Ascend(next(h), func(k, v uint64) bool { sum += k; n++; return n < 100 })
			}, h)
		}, true},
		{"two-goroutines/Lookup", lookups1, lookups2, false},
		{"two-goroutines/Upsert", upserts1, upserts2, false},
		{"two-goroutines/MapGet", gets1, gets2, false},
	} {
		b.Run(r.name, func(b *testing.B) {
			var ours, base time.Duration
			var own, mapOwn int64
			start := processors(b, unix.RUSAGE_SELF)
			for range b.N {
				spent.Store(0)
				ours += r.ours()
				own += spent.Swap(0)
				base += r.base()
				mapOwn += spent.Load()
			}
			all := int64(processors(b, unix.RUSAGE_SELF) - start)
			b.ReportMetric(float64(ours)/float64(base), "ratio")
			if r.alone {
				b.ReportMetric(float64(own)/float64(mapOwn), "own")
				b.ReportMetric(float64(all-mapOwn)/float64(mapOwn), "all")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// processors is the time that this process, or this thread, had on processors.
func processors(b *testing.B, who int) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(who, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
