package verbstest

import (
	"github.com/dmindex/dmindex/pkg/verbs"
)

// The tests of what is counted.
var tallyTests = []test{
	{"KindsAndBytes", kindsAndBytes},
	{"OneRoundTripForAll", oneRoundTripForAll},
	{"RefusedListsAreNotCounted", refusedNotCounted},
}

func kindsAndBytes(f *fixture) {
	c := f.connect(1)
	q := f.qp(c)
	list := []verbs.Request{
		write(0, f.buffer(100)), read(0, f.buffer(24)), read(64, f.buffer(1000)), fetchAdd(0, f.buffer(8), 1),
		{Op: verbs.CompareSwap, Region: verbs.RegionLocks, Remote: 8, Local: f.buffer(8)},
	}
	want := verbs.Counters{Lists: 1, RoundTrips: 1}
	want.Requests = [verbs.NumOps]uint64{verbs.Read: 2, verbs.Write: 1, verbs.FetchAdd: 1, verbs.CompareSwap: 1}
	want.Bytes = [verbs.NumOps]uint64{verbs.Read: 1024, verbs.Write: 100, verbs.FetchAdd: 8, verbs.CompareSwap: 8}
	if c.Capabilities().MaskedAtomics {
		list = append(list, verbs.Request{Op: verbs.MaskedCompareSwap, Region: verbs.RegionLocks, Local: f.buffer(8)})
		want.Requests[verbs.MaskedCompareSwap], want.Bytes[verbs.MaskedCompareSwap] = 1, 8
	}
	sum := verbs.Counters{}
	for range 100 {
		before := q.Tally().Counters()
		f.post(q, list...)
		if got := q.Tally().Counters().Sub(&before); got != want {
			f.Fatalf("one list counts as %+v, want %+v", got, want)
		}
		sum.Sum(&want)
	}
	q.Tally().Publish()
	if got := q.Tally().Published(); got != sum || got != q.Tally().Counters() {
		f.Fatalf("published %+v, want %+v", got, sum)
	}
}

func oneRoundTripForAll(f *fixture) {
	c := f.connect(1)
	var qps []verbs.QP
	var lists [][]verbs.Request
	for i := range 10 {
		qps = append(qps, f.qp(c))
		lists = append(lists, nil)
		if i%3 != 0 {
			lists[i] = []verbs.Request{read(0, f.buffer(8)), read(8, f.buffer(8))}
		}
	}
	if err := verbs.PostAll(qps, lists); err != nil {
		f.Fatal(err)
	}
	var sum verbs.Counters
	for _, q := range qps {
		n := q.Tally().Counters()
		sum.Sum(&n)
	}
	if sum.RoundTrips != 1 || sum.Lists != 6 || sum.Requests[verbs.Read] != 12 {
		f.Fatalf("6 lists of 2 READs, posted together, count as %+v", sum)
	}
}

func refusedNotCounted(f *fixture) {
	q := f.client(1)
	list := []verbs.Request{read(0, f.buffer(8)), read(0, nil)}
	if err := q.Start(list); err == nil || q.Err() != nil {
		f.Fatalf("a READ of nothing: %v, and the queue pair says %v", err, q.Err())
	}
	if n := q.Tally().Counters(); n != (verbs.Counters{}) {
		f.Fatalf("a refused list counts as %+v", n)
	}
}
