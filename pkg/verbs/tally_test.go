package verbs

import (
	"sync"
	"testing"
)

func TestTally(t *testing.T) {
	var tally Tally
	list := []Request{{Op: Read, Local: make([]byte, 100)}, {Op: FetchAdd, Local: make([]byte, 8)}, {Op: Read, Local: make([]byte, 1)}}
	for i := range uint64(10 * publishEvery) {
		before := tally.Counters()
		tally.Posted(list)
		tally.RoundTrip()
		want := Counters{Lists: 1, RoundTrips: 1}
		want.Requests[Read], want.Requests[FetchAdd] = 2, 1
		want.Bytes[Read], want.Bytes[FetchAdd] = 101, 8
		now := tally.Counters()
		if got := now.Sub(&before); got != want {
			t.Fatalf("list %d counts as %+v, want %+v", i, got, want)
		}
		before.Sum(&want)
		if before != now {
			t.Fatalf("Sum is not the reverse of Sub: %+v, %+v", before, now)
		}
		if p := tally.Published(); now.Lists-p.Lists >= publishEvery || p.Lists > now.Lists {
			t.Fatalf("%d lists are published of %d", p.Lists, now.Lists)
		}
	}
	now := tally.Counters()
	if now.Atomics() != 10*publishEvery {
		t.Errorf("%d atomics, want %d", now.Atomics(), 10*publishEvery)
	}
	tally.Publish()
	if tally.Published() != now {
		t.Errorf("published %+v, want %+v", tally.Published(), now)
	}
}

// TestTallyPublishedConcurrently lets the race detector look, and counts never go back.
func TestTallyPublishedConcurrently(t *testing.T) {
	var tally Tally
	var all sync.WaitGroup
	const lists = 100 * publishEvery
	all.Go(func() {
		last := uint64(0)
		for last < lists {
			p := tally.Published()
			if p.Lists < last {
				t.Errorf("%d lists after %d", p.Lists, last)
				return
			}
			last = p.Lists
		}
	})
	for range lists {
		tally.Posted([]Request{{Op: Write, Local: make([]byte, 8)}})
	}
	all.Wait()
}

// TestPostedOne: it counts what Posted and RoundTrip count.
func TestPostedOne(t *testing.T) {
	var one, other Tally
	for i := range 3 * publishEvery {
		r := Request{Op: Op(i) % Call, Local: make([]byte, 8)}
		one.PostedOne(&r)
		other.RoundTrip()
		other.Posted([]Request{r})
		if one.Counters() != other.Counters() || one.Published() != other.Published() {
			t.Fatalf("after %d lists: %+v, published %+v; want %+v, %+v", i+1, one.Counters(), one.Published(), other.Counters(), other.Published())
		}
	}
}
