package indextest

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
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
	// timed is how long f takes n times on the sessions given, each in a goroutine of its own.
	timed := func(n int, f func(h *hands), of ...*hands) time.Duration {
		var g sync.WaitGroup
		start := time.Now()
		for _, h := range of {
			g.Go(func() {
				for range n {
					f(h)
				}
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
				start := processors(b)
				timed(turn, f, of...)
				return (processors(b) - start) * time.Duration(4/len(of)/len(of))
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
	}{
		{"Lookup/MapGet", func() time.Duration { return timed(turn, lookup, h) }, func() time.Duration {
			return timed(turn, func(h *hands) {
				if _, ok := m.Get(next(h)); !ok {
					b.Error("a key is missing")
				}
			}, h)
		}},
		{"Upsert/MapSet", func() time.Duration { return timed(turn, upsert, h) }, func() time.Duration {
			return timed(turn, func(h *hands) { k := next(h); m.Set(k, k) }, h)
		}},
		{"Scan100/MapAscend100", func() time.Duration {
			return timed(turn/20, func(h *hands) { next(h); fail(h.s.Scan(h.key[:], 100, false, visit)) }, h)
		}, func() time.Duration {
			return timed(turn/20, func(h *hands) {
				n := 0
				m.Ascend(next(h), func(k, v uint64) bool { sum += k; n++; return n < 100 })
			}, h)
		}},
		{"two-goroutines/Lookup", lookups1, lookups2},
		{"two-goroutines/Upsert", upserts1, upserts2},
		{"two-goroutines/MapGet", gets1, gets2},
	} {
		b.Run(r.name, func(b *testing.B) {
			var ours, base time.Duration
			for range b.N {
				ours += r.ours()
				base += r.base()
			}
			b.ReportMetric(float64(ours)/float64(base), "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// processors is the time that this process had on processors.
func processors(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
