package blink

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
)

// cached makes a copy of an inner node of uint64 keys.
func cached(tb testing.TB, l *layout, a pool.Addr, level uint8, children int, version uint32) *inner {
	tb.Helper()
	d := &draft{low: l.Bottom, high: l.NoHigh(), rightmost: true, level: level}
	for i := range children {
		d.children = append(d.children, pool.Addr(i))
		if i > 0 {
			d.seps = append(d.seps, binary.BigEndian.AppendUint64(nil, uint64(i)))
		}
	}
	b := make([]byte, l.nodeBytes)
	d.build(b, l, a, version)
	n := decodeInner(l, a, b)
	if n == nil {
		tb.Fatal("it does not decode")
	}
	return n
}

func testLayout(tb testing.TB, o index.Options) *layout {
	tb.Helper()
	l, err := newLayout(o)
	if err != nil {
		tb.Fatal(err)
	}
	return &l
}

// TestCacheBytesAreReal compares what the cache says with what the heap says.
func TestCacheBytesAreReal(t *testing.T) {
	for i, o := range []index.Options{{Uint64: true, MaxValueBytes: 8}, {MaxKeyBytes: 100, MaxValueBytes: 8}, {Uint64: true, MaxValueBytes: 8}} {
		l := testLayout(t, o)
		l.hints = i == 0
		d := &draft{low: l.Bottom, high: l.NoHigh(), rightmost: true, level: uint8(1 + i/2), children: []pool.Addr{0}}
		for i := 1; ; i++ {
			sep := fmt.Appendf(nil, "%08d", i)
			if d.insert(i-1, sep, pool.Addr(i)); d.bytes(l) > l.nodeBytes*7/10 {
				break
			}
		}
		b := make([]byte, l.nodeBytes)
		d.build(b, l, 64, 1)
		const n = 20000
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		all := make([]*inner, n)
		for i := range all {
			all[i] = decodeInner(l, 64, b)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		real, said := float64(after.HeapAlloc-before.HeapAlloc)/n-8, float64(all[n-1].memory)
		t.Logf("uint64 %v: %.0f bytes, it says %.0f", o.Uint64, real, said)
		if real > said*1.02 || real < said*0.95 {
			t.Errorf("a copy takes %.0f bytes, it says %.0f", real, said)
		}
	}
}
