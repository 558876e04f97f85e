package verbstest

import (
	"errors"
	"math"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// The tests of lists that must not be executed.
var refusalTests = []test{
	{"MalformedLists", malformedLists},
	{"BuffersOutsideTheArena", outsideArena},
	{"OutsideTheRegion", outsideRegion},
	{"LargestListsAndTransfers", largest},
	{"StartTwicePanics", startTwice},
}

// refused checks that a list is refused with want and that q lives on.
func (f *fixture) refused(q verbs.QP, want error, what string, list ...verbs.Request) {
	f.Helper()
	if err := verbs.Post(q, list); !errors.Is(err, want) {
		f.Errorf("%s: %v, want %v", what, err, want)
	}
	if err := q.Err(); err != nil {
		f.Errorf("%s kills the queue pair: %v", what, err)
	}
	f.post(q, read(0, f.scratch))
}

func malformedLists(f *fixture) {
	q := f.client(1)
	big, word := f.buffer(verbs.MaxTransfer+1), f.buffer(16)
	ok := read(0, word[:8])
	atomic := fetchAdd(0, word[:8], 1)
	change := func(r verbs.Request, by func(r *verbs.Request)) verbs.Request {
		by(&r)
		return r
	}
	f.refused(q, verbs.ErrMalformed, "an empty list")
	f.refused(q, verbs.ErrMalformed, "a list that is too long", make([]verbs.Request, verbs.MaxList+1)...)
	for what, r := range map[string]verbs.Request{
		"an unknown kind":             change(ok, func(r *verbs.Request) { r.Op = verbs.NumOps }),
		"an unknown region":           change(ok, func(r *verbs.Request) { r.Region = verbs.RegionLocks + 1 }),
		"a READ of nothing":           read(0, nil),
		"a WRITE of nothing":          write(0, nil),
		"a READ that is too long":     read(0, big),
		"a WRITE that is too long":    write(0, big),
		"an atomic at an odd place":   change(atomic, func(r *verbs.Request) { r.Remote = 4 }),
		"an atomic of 4 bytes":        change(atomic, func(r *verbs.Request) { r.Local = word[:4] }),
		"an atomic of 16 bytes":       change(atomic, func(r *verbs.Request) { r.Local = word }),
		"an atomic to an odd buffer":  change(atomic, func(r *verbs.Request) { r.Local = word[4:12] }),
		"a swap to an unknown region": {Op: verbs.CompareSwap, Region: 200, Local: word[:8]},
		"a masked swap of no bytes":   {Op: verbs.MaskedCompareSwap},
	} {
		f.refused(q, verbs.ErrMalformed, what, r)
		f.refused(q, verbs.ErrMalformed, what+" behind an atomic", atomic, r)
	}
	if v := f.word(q, verbs.RegionLocks, 0); v != 0 {
		f.Fatalf("%d atomics of refused lists took effect", v)
	}
}

func outsideArena(f *fixture) {
	q := f.client(1)
	other, err := f.device.NewArena(4096)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { other.Close() })
	foreign, err := other.Alloc(64)
	if err != nil {
		f.Fatal(err)
	}
	f.refused(q, verbs.ErrNotRegistered, "a READ to the heap", read(0, make([]byte, 64)))
	f.refused(q, verbs.ErrNotRegistered, "a WRITE from the heap", write(0, make([]byte, 64)))
	f.refused(q, verbs.ErrNotRegistered, "a READ to another arena", read(0, foreign))
	f.refused(q, verbs.ErrNotRegistered, "an atomic to another arena", fetchAdd(0, foreign[:8], 1))
	if v := f.word(q, verbs.RegionLocks, 0); v != 0 {
		f.Fatalf("an atomic with a buffer elsewhere took effect")
	}
}

func outsideRegion(f *fixture) {
	c := f.connect(1)
	probe := f.qp(c)
	out, word := f.buffer(64), f.buffer(8)
	fill(out, math.MaxUint64)
	for what, list := range map[string][]verbs.Request{
		"a WRITE over the end":       {write(dataSize-56, out)},
		"a READ over the end":        {read(dataSize-56, out)},
		"a WRITE beyond the end":     {write(dataSize, out)},
		"a WRITE that wraps around":  {write(math.MaxUint64-32, out)},
		"a READ far away":            {read(1<<62, out)},
		"an atomic beyond the end":   {fetchAdd(locksSize, word, 1)},
		"an atomic at the last word": {fetchAdd(math.MaxUint64-7, word, 1)},
		"the data region's size in the lock region": {{
			Op: verbs.CompareSwap, Region: verbs.RegionLocks, Remote: dataSize - 8, Local: word, Swap: 1,
		}},
	} {
		q := f.qp(c)
		err := verbs.Post(q, list)
		if !errors.Is(err, verbs.ErrOutOfRange) {
			f.Errorf("%s: %v, want %v", what, err, verbs.ErrOutOfRange)
		}
		f.isDead(q, err)
		fill(out, math.MaxUint64)
	}
	in := f.buffer(4096)
	f.post(probe, read(dataSize-4096, in))
	for i := 0; i < len(in); i += 8 {
		if get(in[i:]) != 0 {
			f.Fatalf("a refused request changed the region %d bytes before its end", 4096-i)
		}
	}
	if v := f.word(probe, verbs.RegionLocks, locksSize-8); v != 0 {
		f.Fatalf("a refused atomic changed the last word to %#x", v)
	}
}

// isDead checks that q answers every call with the very error that killed it.
func (f *fixture) isDead(q verbs.QP, err error) {
	f.Helper()
	for range 2 {
		if got := q.Err(); got == nil || got != err {
			f.Errorf("Err of a dead queue pair: %v, it died of %v", got, err)
		}
		if got := q.Start([]verbs.Request{read(0, f.scratch)}); got == nil || got != err {
			f.Errorf("Start on a dead queue pair: %v, it died of %v", got, err)
		}
		if got := q.Wait(); got == nil || got != err {
			f.Errorf("Wait on a dead queue pair: %v, it died of %v", got, err)
		}
	}
}

// largest posts what the limits just allow.
func largest(f *fixture) {
	c := f.connect(1)
	q := f.qp(c)
	// 64 MiB, encrypted perhaps, under the race detector, on a machine that does other things
	q.SetLimit(time.Minute)
	out, in := f.buffer(verbs.MaxTransfer), f.buffer(verbs.MaxTransfer)
	for i := range out {
		out[i] = byte(f.rand.Uint32())
	}
	f.post(q, write(3, out), read(3, in))
	if string(in) != string(out) {
		f.Fatal("the longest READ differs from the longest WRITE")
	}
	// A list of the longest WRITEs, each at a place of its own where there are places, then READs
	// of all of it.
	var list []verbs.Request
	for i := range verbs.MaxList {
		remote := uint64(i%3) * verbs.MaxTransfer
		if i < verbs.MaxList/2 {
			list = append(list, write(remote, out))
		} else {
			list = append(list, read(remote, in))
		}
	}
	clear(in)
	f.post(q, list...)
	if string(in) != string(out) {
		f.Fatal("the longest READ at the end of the longest list differs from the WRITE")
	}
}

func startTwice(f *fixture) {
	q := f.client(1)
	list := []verbs.Request{read(0, f.scratch)}
	if err := q.Start(list); err != nil {
		f.Fatal(err)
	}
	func() {
		defer func() {
			if recover() == nil {
				f.Error("Start after Start without Wait does not panic")
			}
		}()
		q.Start(list)
	}()
	if err := q.Wait(); err != nil {
		f.Fatalf("Wait after a Start that panicked: %v", err)
	}
}
