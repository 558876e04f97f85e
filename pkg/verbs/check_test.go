package verbs

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func testArena(t *testing.T, size int) *Arena {
	t.Helper()
	a, err := MapArena(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

func TestCheck(t *testing.T) {
	a := testArena(t, MaxTransfer+4096)
	b, err := a.Alloc(MaxTransfer + 1)
	if err != nil {
		t.Fatal(err)
	}
	// like every buffer of an arena aligned, so that only its place is wrong
	foreign, err := testArena(t, 4096).Alloc(8)
	if err != nil {
		t.Fatal(err)
	}
	all, none := &Capabilities{MaskedAtomics: true}, &Capabilities{}
	f := func(want error, c *Capabilities, list ...Request) {
		t.Helper()
		if err := Check(list, a, c); !errors.Is(err, want) || (want == nil) != (err == nil) {
			t.Errorf("Check of %d requests: %v, want %v", len(list), err, want)
		}
	}
	for op := Read; op <= MaskedFetchAdd; op++ {
		f(nil, all, Request{Op: op, Local: b[:8]})
		f(nil, all, Request{Op: op, Local: b[8:16], Region: RegionLocks, Remote: 1 << 40})
		f(ErrNotRegistered, all, Request{Op: op, Local: foreign})
		f(ErrMalformed, all, Request{Op: op})
		f(ErrMalformed, all, Request{Op: op, Local: b[:8], Region: RegionLocks + 1})
		f(ErrMalformed, all, Request{Op: Read, Local: b[:8]}, Request{Op: op})
		f(nil, none, Request{Op: min(op, FetchAdd), Local: b[:8]})
	}
	for op := CompareSwap; op <= MaskedFetchAdd; op++ {
		for _, r := range []Request{{Local: b[:4]}, {Local: b[:16]}, {Local: b[1:9]}, {Local: b[:8], Remote: 12}} {
			r.Op = op
			f(ErrMalformed, all, r)
		}
	}
	f(ErrUnsupported, none, Request{Op: MaskedCompareSwap, Local: b[:8]})
	f(ErrUnsupported, none, Request{Op: MaskedFetchAdd, Local: b[:8]})
	calls := &Capabilities{Calls: true}
	call := Request{Op: Call, Local: b[:16], Args: 3}
	f(nil, calls, call)
	f(ErrUnsupported, all, call)
	f(ErrMalformed, calls, call, call)
	f(ErrMalformed, calls, Request{Op: Read, Local: b[:8]}, call)
	f(ErrMalformed, calls, Request{Op: Call, Local: b[:7]})
	f(ErrMalformed, calls, Request{Op: Call, Local: b[:16], Args: 17})
	f(ErrMalformed, calls, Request{Op: Call, Local: b[:16], Args: -1})
	f(ErrMalformed, calls, Request{Op: Call, Local: b[:MaxCall+1]})
	f(ErrNotRegistered, calls, Request{Op: Call, Local: foreign[:8]})
	f(ErrMalformed, all, Request{Op: NumOps, Local: b[:8]})
	f(ErrMalformed, all, Request{Op: 255, Local: b[:8]})
	f(nil, all, Request{Op: Read, Local: b[3:][:MaxTransfer-3]}, Request{Op: Write, Remote: 7, Local: b[:MaxTransfer]})
	f(ErrMalformed, all, Request{Op: Read, Local: b})
	f(ErrMalformed, all)
	list := make([]Request, MaxList+1)
	for i := range list {
		list[i].Local = b[:1]
	}
	f(nil, all, list[:MaxList]...)
	f(ErrMalformed, all, list...)
}

func TestCheckDoesNotAllocate(t *testing.T) {
	a := testArena(t, 4096)
	b, _ := a.Alloc(8)
	list := []Request{{Op: Read, Local: b}, {Op: FetchAdd, Local: b}}
	if n := testing.AllocsPerRun(100, func() { _ = Check(list, a, &Capabilities{}) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestInRange(t *testing.T) {
	f := func(remote uint64, n int, size uint64, want bool) {
		t.Helper()
		r := Request{Remote: remote, Local: make([]byte, n)}
		if got := r.InRange(size); got != want {
			t.Errorf("%d bytes at %#x of %#x: %v, want %v", n, remote, size, got, want)
		}
	}
	f(0, 8, 8, true)
	f(1, 8, 8, false)
	f(8, 8, 16, true)
	f(9, 8, 16, false)
	f(0, 8, 7, false)
	f(0, 1, 0, false)
	f(math.MaxUint64, 1, 16, false)
	f(math.MaxUint64-7, 8, math.MaxUint64, false)
	f(math.MaxUint64-8, 8, math.MaxUint64, true)
}

// TestMaskedSum adds bit by bit, with the carry dropped behind each boundary.
func TestMaskedSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		old, r := rapid.Uint64().Draw(t, "old"), Request{Add: rapid.Uint64().Draw(t, "add"), Boundary: rapid.Uint64().Draw(t, "boundary")}
		var want, carry uint64
		for i := range 64 {
			sum := old>>i&1 + r.Add>>i&1 + carry
			want |= sum & 1 << i
			if carry = sum >> 1; r.Boundary>>i&1 != 0 {
				carry = 0
			}
		}
		if got := r.MaskedSum(old); got != want {
			t.Fatalf("%#x + %#x with boundary %#x = %#x, want %#x", old, r.Add, r.Boundary, got, want)
		}
	})
}

func TestMaskedSumWithoutBoundary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		old, add := rapid.Uint64().Draw(t, "old"), rapid.Uint64().Draw(t, "add")
		for _, boundary := range []uint64{0, 1 << 63} {
			if got := (&Request{Add: add, Boundary: boundary}).MaskedSum(old); got != old+add {
				t.Fatalf("%#x + %#x = %#x with boundary %#x", old, add, got, boundary)
			}
		}
	})
}

func TestMaskedSwap(t *testing.T) {
	f := func(old, compare, compareMask, swap, swapMask, want uint64, ok bool) {
		t.Helper()
		r := Request{Compare: compare, CompareMask: compareMask, Swap: swap, SwapMask: swapMask}
		if got, did := r.MaskedSwap(old); got != want || did != ok {
			t.Errorf("%#x: %#x, %v; want %#x, %v", old, got, did, want, ok)
		}
	}
	f(0x1234, 0x1234, math.MaxUint64, 0x5678, math.MaxUint64, 0x5678, true)
	f(0x1234, 0x1235, math.MaxUint64, 0x5678, math.MaxUint64, 0x1234, false)
	f(0x1234, 0xff34, 0x00ff, 0xffff, 0x0f00, 0x1f34, true)
	f(0x1234, 0xff35, 0x00ff, 0xffff, 0x0f00, 0x1234, false)
	f(0x1234, 0xffff, 0, 0, 0, 0x1234, true)
	f(0x1234, 0xffff, 0, 0, math.MaxUint64, 0, true)
}

func TestOpNames(t *testing.T) {
	for op := Read; op < NumOps; op++ {
		if op.String() == "" || op.String() == "INVALID" {
			t.Errorf("kind %d is called %q", op, op)
		}
	}
	if NumOps.String() != "INVALID" || NumOps.Atomic() || Write.Atomic() || !MaskedFetchAdd.Atomic() {
		t.Error("the end of the kinds is taken for a kind")
	}
}

// TestCheckOne: CheckOne and Check agree on every request.
func TestCheckOne(t *testing.T) {
	a, empty := testArena(t, 4096), NewArena(nil, nil)
	b, err := a.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	long, err := testArena(t, MaxTransfer+8).Alloc(MaxTransfer + 8)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		r := Request{
			Op:     Op(rapid.IntRange(0, int(NumOps)+1).Draw(t, "op")),
			Region: RegionID(rapid.IntRange(0, int(RegionLocks)+1).Draw(t, "region")),
			Remote: rapid.Uint64Range(0, 32).Draw(t, "remote"),
		}
		from := rapid.SampledFrom([][]byte{b, long, nil}).Draw(t, "buffer")
		start := rapid.IntRange(0, min(16, len(from))).Draw(t, "start")
		r.Local = from[start:][:rapid.SampledFrom([]int{0, 1, 8, 16, len(from)}).Draw(t, "length")%(len(from)-start+1)]
		for _, arena := range []*Arena{a, empty, NewArena(long, nil), NewArena(b[8:4000], nil)} {
			want := Check([]Request{r}, arena, &Capabilities{MaskedAtomics: true})
			if got := CheckOne(&r, arena); got != (want == nil) {
				t.Fatalf("CheckOne of %v: %v; Check: %v", r.Op, got, want)
			}
		}
	})
}
