package shm_test

import (
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/shm"
	"github.com/dmindex/dmindex/pkg/verbs/verbstest"
)

// Each verb stands next to what it costs without a fabric: a plain copy, or an atomic of
// sync/atomic, on the same memory.

const (
	benchData = 256 << 20 // far more than the caches hold
	stride    = 1<<20 + 4096 + 64
)

func benchQP(b *testing.B) (verbs.QP, *verbs.Arena, []verbs.Memory) {
	b.Helper()
	mem := verbstest.Memory(b, benchData, 4096)
	for i := 0; i < benchData; i += 4096 {
		mem[0].Bytes[i] = 1 // give it pages
	}
	var tokens verbstest.Tokens
	address, s, err := start(b.TempDir(), verbs.ServerOptions{Memory: mem, Admission: &tokens})
	if err != nil {
		b.Fatal(err)
	}
	d := shm.NewDevice()
	a, err := d.NewArena(1 << 20)
	if err != nil {
		b.Fatal(err)
	}
	c, err := d.Connect(verbs.Target{Address: address, Token: tokens.Issue(verbs.Peer{Client: 1})}, verbs.DefaultLimit)
	if err != nil {
		b.Fatal(err)
	}
	q, err := c.NewQP(a)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		c.Close()
		s.Close()
		a.Close()
	})
	return q, a, mem
}

// touch reads a byte of every page.
func touch(b *testing.B, q verbs.QP, a *verbs.Arena) {
	b.Helper()
	one, err := a.Alloc(1)
	if err != nil {
		b.Fatal(err)
	}
	for at := uint64(0); at < benchData; at += 4096 {
		if err := verbs.Post(q, []verbs.Request{{Op: verbs.Read, Remote: at, Local: one}}); err != nil {
			b.Fatal(err)
		}
	}
}

// cpu starts the measurement; what it returns ends it. CPU time stands beside the clock's, since
// other work on the machine does not count in it.
func cpu(b *testing.B) func() {
	used := func() int64 {
		var u unix.Rusage
		unix.Getrusage(unix.RUSAGE_SELF, &u)
		return u.Utime.Nano() + u.Stime.Nano()
	}
	b.ReportAllocs()
	b.ResetTimer()
	before := used()
	return func() {
		b.StopTimer()
		b.ReportMetric(float64(used()-before)/float64(b.N), "cpu-ns/op")
	}
}

// verb posts lists of one request; with cold set each is at another place of the region.
func verb(b *testing.B, op verbs.Op, n int, cold bool) {
	q, a, _ := benchQP(b)
	local, err := a.Alloc(n)
	if err != nil {
		b.Fatal(err)
	}
	list := []verbs.Request{{Op: op, Local: local}}
	at := uint64(0)
	if cold {
		touch(b, q, a) // give the client's mapping its pages too
	}
	defer cpu(b)()
	for range b.N {
		if cold {
			at = (at + stride) % (benchData - stride)
			list[0].Remote = at &^ 63
		}
		if err := verbs.Post(q, list); err != nil {
			b.Fatal(err)
		}
	}
}

// plain is the same by copy.
func plain(b *testing.B, n int, toRegion, cold bool) {
	_, a, mem := benchQP(b)
	local, err := a.Alloc(n)
	if err != nil {
		b.Fatal(err)
	}
	at := uint64(0)
	region := mem[0].Bytes
	defer cpu(b)()
	for range b.N {
		if cold {
			at = (at + stride) % (benchData - stride) &^ 63
		}
		if toRegion {
			copy(region[at:], local)
		} else {
			copy(local, region[at:])
		}
	}
}

func BenchmarkRead64(b *testing.B)          { verb(b, verbs.Read, 64, false) }
func BenchmarkRead64Plain(b *testing.B)     { plain(b, 64, false, false) }
func BenchmarkRead1K(b *testing.B)          { verb(b, verbs.Read, 1024, false) }
func BenchmarkRead1KPlain(b *testing.B)     { plain(b, 1024, false, false) }
func BenchmarkRead1KCold(b *testing.B)      { verb(b, verbs.Read, 1024, true) }
func BenchmarkRead1KColdPlain(b *testing.B) { plain(b, 1024, false, true) }
func BenchmarkWrite1K(b *testing.B)         { verb(b, verbs.Write, 1024, false) }
func BenchmarkWrite1KPlain(b *testing.B)    { plain(b, 1024, true, false) }

func BenchmarkCAS(b *testing.B)       { verb(b, verbs.CompareSwap, 8, false) }
func BenchmarkMaskedCAS(b *testing.B) { verb(b, verbs.MaskedCompareSwap, 8, false) }

func BenchmarkCASPlain(b *testing.B) {
	_, _, mem := benchQP(b)
	word := (*uint64)(unsafe.Pointer(&mem[0].Bytes[0]))
	defer cpu(b)()
	for range b.N {
		atomic.CompareAndSwapUint64(word, 0, 0)
	}
}

// BenchmarkList is what an index posts when it updates a node: WRITE and the release of its lock.
func BenchmarkList(b *testing.B) {
	q, a, _ := benchQP(b)
	node, err := a.Alloc(64)
	if err != nil {
		b.Fatal(err)
	}
	old, err := a.Alloc(8)
	if err != nil {
		b.Fatal(err)
	}
	list := []verbs.Request{
		{Op: verbs.Write, Remote: 4096, Local: node},
		{Op: verbs.FetchAdd, Region: verbs.RegionLocks, Local: old, Add: 1},
	}
	defer cpu(b)()
	for range b.N {
		if err := verbs.Post(q, list); err != nil {
			b.Fatal(err)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	q, lists := allocLists(t)
	if n := testing.AllocsPerRun(1000, func() {
		for _, l := range lists {
			if err := verbs.Post(q, l); err != nil {
				t.Fatal(err)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations a round of %d lists", n, len(lists))
	}
}

func allocLists(t *testing.T) (verbs.QP, [][]verbs.Request) {
	t.Helper()
	var tokens verbstest.Tokens
	address, s, err := start(t.TempDir(), verbs.ServerOptions{Memory: verbstest.Memory(t, 1<<20, 4096), Admission: &tokens})
	if err != nil {
		t.Fatal(err)
	}
	d := shm.NewDevice()
	a, err := d.NewArena(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.Connect(verbs.Target{Address: address, Token: tokens.Issue(verbs.Peer{Client: 1})}, verbs.DefaultLimit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		s.Close()
		a.Close()
	})
	q, err := c.NewQP(a)
	if err != nil {
		t.Fatal(err)
	}
	var lists [][]verbs.Request
	for op := verbs.Read; op <= verbs.MaskedFetchAdd; op++ {
		local, err := a.Alloc(8)
		if err != nil {
			t.Fatal(err)
		}
		lists = append(lists, []verbs.Request{{Op: op, Local: local}, {Op: op, Remote: 16, Local: local}})
	}
	return q, lists
}
