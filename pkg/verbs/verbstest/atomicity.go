package verbstest

import (
	"fmt"
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// The tests of G2 within one process.
var atomicityTests = []test{
	{"AlignedWordsAreNotTorn", func(f *fixture) { torn(f, 0, 0) }},
	{"AlignedWordsOfUnalignedRanges", func(f *fixture) { torn(f, 5, 0) }},
	{"AlignedWordsInUnalignedBuffers", func(f *fixture) { torn(f, 0, 3) }},
	{"AlignedWordsBothUnaligned", func(f *fixture) { torn(f, 3, 6) }},
	{"FetchAddLosesNothing", fetchAddContended},
	{"CompareSwapLosesNothing", func(f *fixture) { swapContended(f, verbs.CompareSwap) }},
	{"MaskedCompareSwapLosesNothing", func(f *fixture) { swapContended(f, verbs.MaskedCompareSwap) }},
	{"MaskedFetchAddLosesNothing", maskedAddContended},
}

// torn lets two clients WRITE and two READ the same bytes. Every word that is written has equal
// halves, so a torn one shows. The range starts at remote bytes and the local buffers at local
// bytes beyond a multiple of 8.
func torn(f *fixture, remote, local int) {
	const size = 1000
	whole := remote%8 == 0 || !f.h.Memcpy
	var writing atomic.Int32
	var run []func()
	for n := range 2 {
		q := f.client(uint16(n + 1))
		out := f.buffer(size + 16)[local:][:size]
		writing.Add(1)
		run = append(run, func() {
			defer writing.Add(-1)
			for i := range f.repeats() {
				// The pattern belongs to the place in the region, not in the buffer.
				half := uint32(i*2+n)*2654435761 | 1
				for j := range out {
					out[j] = byte(half >> (uint(remote+j) % 4 * 8))
				}
				if err := verbs.Post(q, []verbs.Request{write(uint64(4096+remote), out)}); err != nil {
					f.Error(err)
					return
				}
			}
		})
	}
	for n := range 2 {
		q := f.client(uint16(n + 3))
		in := f.buffer(size + 16)[local:][:size]
		run = append(run, func() {
			for last := false; !last; f.env.Yield() {
				last = writing.Load() == 0
				if err := verbs.Post(q, []verbs.Request{read(uint64(4096+remote), in)}); err != nil {
					f.Error(err)
					return
				}
				for j := (8 - remote) % 8; j+8 <= size; j += 8 {
					if w := get(in[j:]); whole && uint32(w) != uint32(w>>32) {
						f.Errorf("the word at byte %d is torn: %#016x", j, w)
						return
					}
				}
			}
		})
	}
	f.together(run...)
}

const contenders = 8

func fetchAddContended(f *fixture) {
	each := uint64(f.repeats())
	c := [2]verbs.Conn{f.connect(1), f.connect(2)}
	var run []func()
	for n := range contenders {
		q, old := f.qp(c[n%2]), f.buffer(8)
		run = append(run, func() {
			last := uint64(0)
			for i := range each {
				if err := verbs.Post(q, []verbs.Request{fetchAdd(8, old, 3)}); err != nil {
					f.Error(err)
					return
				}
				if v := get(old); v%3 != 0 || i > 0 && v <= last {
					f.Errorf("old value %d after %d, all additions being of 3", v, last)
					return
				}
				last = get(old)
			}
		})
	}
	f.together(run...)
	if v := f.word(f.client(9), verbs.RegionLocks, 8); v != contenders*each*3 {
		f.Fatalf("%d clients added 3 %d times each: %d", contenders, each, v)
	}
}

// swapContended counts up in the upper half of a word by compare-and-swap, while the lower half,
// where the masked form does not look, changes too.
func swapContended(f *fixture, op verbs.Op) {
	const upper = 0xffffffff << 32
	c := [2]verbs.Conn{f.connect(1), f.connect(2)}
	masked := op == verbs.MaskedCompareSwap
	if masked && !c[0].Capabilities().MaskedAtomics {
		f.unsupported(c[0], verbs.Request{Op: op, Region: verbs.RegionLocks})
		return
	}
	each := uint64(f.repeats()) / 4
	var run []func()
	for n := range contenders {
		q, old := f.qp(c[n%2]), f.buffer(8)
		run = append(run, func() {
			guess := uint64(0)
			for done := uint64(0); done < each; {
				r := verbs.Request{
					Op: op, Region: verbs.RegionLocks, Remote: 16, Local: old, Compare: guess, Swap: guess + 1<<32,
					CompareMask: upper, SwapMask: upper,
				}
				if err := verbs.Post(q, []verbs.Request{r}); err != nil {
					f.Error(err)
					return
				}
				v := get(old)
				if hit := v == guess || masked && v&upper == guess&upper; hit {
					done++
					v += 1 << 32
				}
				guess = v
			}
		})
	}
	low := uint64(0)
	if masked {
		low = each
		q, old := f.qp(c[0]), f.buffer(8)
		run = append(run, func() {
			for range low {
				if err := verbs.Post(q, []verbs.Request{fetchAdd(16, old, 1)}); err != nil {
					f.Error(err)
					return
				}
			}
		})
	}
	f.together(run...)
	want := contenders*each<<32 | low
	if v := f.word(f.client(9), verbs.RegionLocks, 16); v != want {
		f.Fatalf("the word is %#x after all swaps, want %#x", v, want)
	}
}

// maskedAddContended adds to four fields of a word at once; the fields overflow and no carry leaves
// them.
func maskedAddContended(f *fixture) {
	const boundary = 1<<7 | 1<<23 | 1<<24 | 1<<63 // fields of 8, 16, 1 and 39 bits
	c := f.connect(1)
	r := verbs.Request{Op: verbs.MaskedFetchAdd, Region: verbs.RegionLocks, Remote: 24, Boundary: boundary}
	if !c.Capabilities().MaskedAtomics {
		f.unsupported(c, r)
		return
	}
	each := uint64(f.repeats())
	var run []func()
	for range contenders {
		q, r := f.qp(c), r
		r.Local, r.Add = f.buffer(8), 7<<25|1<<24|3<<8|1
		run = append(run, func() {
			for range each {
				if err := verbs.Post(q, []verbs.Request{r}); err != nil {
					f.Error(err)
					return
				}
			}
		})
	}
	f.together(run...)
	n := contenders * each
	want := n&0xff | (3*n&0xffff)<<8 | (n&1)<<24 | 7*n<<25
	if v := f.word(f.client(9), verbs.RegionLocks, 24); v != want {
		f.Fatalf("the word is %#x after %d additions, want %#x", v, n, want)
	}
}

// unsupported checks that a request that needs a capability the connection lacks is refused and the
// queue pair lives on.
func (f *fixture) unsupported(c verbs.Conn, r verbs.Request) {
	f.Helper()
	q := f.qp(c)
	r.Local = f.buffer(8)
	f.refused(q, verbs.ErrUnsupported, fmt.Sprintf("%v without the capability", r.Op), r)
}
