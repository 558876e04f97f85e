package verbs

import "sync/atomic"

// Counters say what crossed the fabric.
type Counters struct {
	Requests [NumOps]uint64 // work requests by kind
	// payload by kind, both directions; an atomic counts 8, a call its request and answer
	Bytes [NumOps]uint64
	Lists uint64 // posted lists: doorbells
	// times that somebody waited for the fabric; lists posted together count once
	RoundTrips uint64
}

// Sum adds o to c.
func (c *Counters) Sum(o *Counters) {
	for i := range c.Requests {
		c.Requests[i] += o.Requests[i]
		c.Bytes[i] += o.Bytes[i]
	}
	c.Lists += o.Lists
	c.RoundTrips += o.RoundTrips
}

// Sub is c less o, an earlier reading of the same counters.
func (c Counters) Sub(o *Counters) Counters {
	for i := range c.Requests {
		c.Requests[i] -= o.Requests[i]
		c.Bytes[i] -= o.Bytes[i]
	}
	c.Lists -= o.Lists
	c.RoundTrips -= o.RoundTrips
	return c
}

// Atomics is how many atomics of all kinds there were.
func (c *Counters) Atomics() (n uint64) {
	for op := CompareSwap; op <= MaskedFetchAdd; op++ {
		n += c.Requests[op]
	}
	return n
}

// publishEvery is after how many lists a Tally shows its counters to other goroutines: often enough
// for metrics, rarely enough to cost nothing.
const publishEvery = 64

// Tally counts what one QP posts. Its owner adds and reads exactly ([Tally.Counters]); others read
// a copy that is at most publishEvery lists old ([Tally.Published]).
type Tally struct {
	live Counters

	requests, bytes   [NumOps]atomic.Uint64
	lists, roundTrips atomic.Uint64
}

// Posted counts a list. Providers call it in Start.
func (t *Tally) Posted(list []Request) {
	for i := range list {
		t.live.Requests[list[i].Op]++
		n := len(list[i].Local)
		if list[i].Op == Call {
			n = list[i].Args
		}
		t.live.Bytes[list[i].Op] += uint64(n)
	}
	t.live.Lists++
	if t.live.Lists%publishEvery == 0 {
		t.Publish()
	}
}

// PostedOne counts a list of r alone, and the wait for it.
func (t *Tally) PostedOne(r *Request) {
	t.live.Requests[r.Op]++
	t.live.Bytes[r.Op] += uint64(len(r.Local))
	t.live.RoundTrips++
	t.live.Lists++
	if t.live.Lists%publishEvery == 0 {
		t.Publish()
	}
}

// Answered counts the bytes of the answer, if list is a call. Providers call it in Wait, when it
// has succeeded.
func (t *Tally) Answered(list []Request) {
	if r := &list[0]; r.Op == Call {
		if answer, err := r.Answer(); err == nil {
			t.live.Bytes[Call] += uint64(len(answer))
		}
	}
}

// RoundTrip counts one wait.
func (t *Tally) RoundTrip() { t.live.RoundTrips++ }

// Counters is the exact count. Only for the QP's owner.
func (t *Tally) Counters() Counters { return t.live }

// Publish makes the exact count visible to Published. Only for the QP's owner.
func (t *Tally) Publish() {
	for i := range t.live.Requests {
		t.requests[i].Store(t.live.Requests[i])
		t.bytes[i].Store(t.live.Bytes[i])
	}
	t.lists.Store(t.live.Lists)
	t.roundTrips.Store(t.live.RoundTrips)
}

// Published is a recent count. Safe for concurrent use; the fields may be of slightly different
// moments.
func (t *Tally) Published() (c Counters) {
	for i := range c.Requests {
		c.Requests[i] = t.requests[i].Load()
		c.Bytes[i] = t.bytes[i].Load()
	}
	c.Lists = t.lists.Load()
	c.RoundTrips = t.roundTrips.Load()
	return c
}
