package verbstest

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// The tests of ends: of a queue pair, a connection, a server.
var endTests = []test{
	{"CloseOfAQueuePair", closeQP},
	{"CloseIsQuiet", closeIsQuiet},
	{"CloseWithWaiters", closeWithWaiters},
	{"DisconnectIsQuiet", disconnectIsQuiet},
	{"CloseDuringLongLists", closeDuringLongLists},
	{"DisconnectDuringLongLists", disconnectDuringLongLists},
	{"DisconnectMatchesPeers", disconnectMatches},
	{"ServerCloses", serverCloses},
	{"ReconnectIsQuiet", reconnectIsQuiet},
}

func closeQP(f *fixture) {
	c := f.connect(1)
	q, other := f.qp(c), f.qp(c)
	f.post(q, read(0, f.scratch))
	if err := q.Start([]verbs.Request{read(0, f.buffer(8))}); err != nil {
		f.Fatal(err)
	}
	for range 2 {
		if err := q.Close(); err != nil {
			f.Fatalf("close: %v", err)
		}
	}
	if err := q.Err(); !errors.Is(err, verbs.ErrClosed) {
		f.Errorf("a closed queue pair says %v, want %v", err, verbs.ErrClosed)
	}
	f.isDead(q, q.Err())
	f.post(other, read(0, f.scratch))
	for range f.h.MaxQPs + 16 { // more than a connection may have at once
		q := f.qp(c)
		f.post(q, read(0, f.scratch))
		if err := q.Close(); err != nil {
			f.Fatal(err)
		}
	}
}

// busy runs queue pairs of c that change words of the lock region until they die, one word each.
// The caller ends them.
type busy struct {
	f       *fixture
	qps     []verbs.QP
	started []atomic.Uint64 // lists that were started, for each
	errs    []error         // of which each died; after together has returned
}

const busyQPs = 16

func (f *fixture) busy(c verbs.Conn) *busy {
	b := &busy{f: f, started: make([]atomic.Uint64, busyQPs), errs: make([]error, busyQPs)}
	for range busyQPs {
		b.qps = append(b.qps, f.qp(c))
	}
	return b
}

// run lets them work; when each has started some lists, end is called.
func (b *busy) run(end func()) {
	b.f.Helper()
	var all []func()
	for i, q := range b.qps {
		old := b.f.buffer(8)
		all = append(all, func() {
			for b.errs[i] == nil {
				b.started[i].Add(1)
				b.errs[i] = verbs.Post(q, []verbs.Request{fetchAdd(uint64(i)*8, old, 1)})
				b.f.env.Yield()
			}
		})
	}
	b.f.together(append(all, func() {
		b.f.eventually(func() bool {
			for i := range b.started {
				if b.started[i].Load() < 50 {
					return false
				}
			}
			return true
		}, "every queue pair posts")
		end()
	})...)
}

// counts is the words that busy changes, as q reads them.
func (f *fixture) counts(q verbs.QP, in []byte) (v [busyQPs]uint64, err error) {
	err = verbs.Post(q, []verbs.Request{{Op: verbs.Read, Region: verbs.RegionLocks, Local: in}})
	for i := range v {
		v[i] = get(in[i*8:])
	}
	return v, err
}

// quiet checks that the counts stay as they were at the moment when all had to be quiet, and that
// each client's acknowledged lists are in.
func (b *busy) quiet(q verbs.QP, before [busyQPs]uint64) {
	f := b.f
	f.Helper()
	in := f.buffer(busyQPs * 8)
	for range 200 {
		f.env.Yield()
		after, err := f.counts(q, in)
		if err != nil {
			f.Fatal(err)
		}
		if after != before {
			f.Fatalf("counts went from %v to %v although all were quiet", before, after)
		}
	}
	for i, v := range before {
		if n := b.started[i].Load(); v != n && v != n-1 {
			f.Errorf("client %d started %d lists, the last of which failed; %d took effect", i, n, v)
		}
	}
}

func (b *busy) allDied(want error) {
	b.f.Helper()
	for i, err := range b.errs {
		if !errors.Is(err, want) {
			b.f.Errorf("queue pair %d died of %v, want %v", i, err, want)
		}
		b.f.isDead(b.qps[i], err)
	}
}

// closeIsQuiet: when Close has returned nothing of the connection's queue pairs takes effect, also
// of lists nobody waits for.
func closeIsQuiet(f *fixture) {
	other, in := f.client(2), f.buffer(busyQPs*8)
	for round := range 20 {
		c := f.connect(1)
		var qps []verbs.QP
		for i := range busyQPs {
			q, old := f.qp(c), f.buffer(8)
			qps = append(qps, q)
			if err := q.Start([]verbs.Request{fetchAdd(uint64(i)*8, old, 1), fetchAdd(uint64(i)*8, old, 1)}); err != nil {
				f.Fatal(err)
			}
		}
		if err := c.Close(); err != nil {
			f.Fatalf("close: %v", err)
		}
		before, err := f.counts(other, in)
		if err != nil {
			f.Fatal(err)
		}
		for range 20 {
			f.env.Yield()
			after, err := f.counts(other, in)
			if err != nil {
				f.Fatal(err)
			}
			if after != before {
				f.Fatalf("round %d: counts went from %v to %v after Close", round, before, after)
			}
		}
		for _, q := range qps {
			if q.Err() == nil {
				f.Fatal("a queue pair is alive after its connection was closed")
			}
		}
	}
}

func closeWithWaiters(f *fixture) {
	c, other, in := f.connect(1), f.client(2), f.buffer(busyQPs*8)
	b := f.busy(c)
	var before [busyQPs]uint64
	b.run(func() {
		if err := c.Close(); err != nil {
			f.Errorf("close: %v", err)
		}
		var err error
		if before, err = f.counts(other, in); err != nil {
			f.Error(err)
		}
	})
	b.quiet(other, before)
	b.allDied(verbs.ErrClosed)
	if err := c.Close(); err != nil {
		f.Errorf("closing again: %v", err)
	}
	if _, err := c.NewQP(f.arena); !errors.Is(err, verbs.ErrClosed) {
		f.Errorf("a queue pair of a closed connection: %v, want %v", err, verbs.ErrClosed)
	}
}

func disconnectIsQuiet(f *fixture) {
	c, other, in := f.connect(1), f.client(2), f.buffer(busyQPs*8)
	b := f.busy(c)
	var before [busyQPs]uint64
	b.run(func() {
		if n := f.server.Disconnect(func(p verbs.Peer) bool { return p == verbs.Peer{Index: "test", Client: 1} }); n != 1 {
			f.Errorf("%d connections were cut, want 1", n)
		}
		var err error
		if before, err = f.counts(other, in); err != nil {
			f.Error(err)
		}
	})
	b.quiet(other, before)
	b.allDied(verbs.ErrDisconnected)
	f.eventually(func() bool {
		_, err := c.NewQP(f.arena)
		return errors.Is(err, verbs.ErrDisconnected)
	}, "no queue pair on a connection that was cut")
	f.client(1) // with a new token, the client may come again
}

func disconnectMatches(f *fixture) {
	var qps []verbs.QP
	for n := range uint16(6) {
		qps = append(qps, f.client(n+1))
	}
	if n := f.server.Disconnect(func(p verbs.Peer) bool { return p.Index != "test" }); n != 0 {
		f.Errorf("%d connections of another index were cut", n)
	}
	if n := f.server.Disconnect(func(p verbs.Peer) bool { return p.Client%2 == 0 }); n != 3 {
		f.Errorf("%d connections were cut, want 3", n)
	}
	for i, q := range qps {
		list := []verbs.Request{read(0, f.scratch)}
		if (i+1)%2 != 0 {
			f.post(q, list...)
			continue
		}
		f.eventually(func() bool { return verbs.Post(q, list) != nil }, "the queue pairs of a client that was cut die")
		if err := q.Err(); !errors.Is(err, verbs.ErrDisconnected) {
			f.Errorf("client %d was cut: %v, want %v", i+1, err, verbs.ErrDisconnected)
		}
	}
}

func serverCloses(f *fixture) {
	c := f.connect(1)
	b := f.busy(c)
	b.run(func() {
		if err := f.server.Close(); err != nil {
			f.Errorf("close the server: %v", err)
		}
	})
	b.allDied(verbs.ErrDisconnected)
	start := f.env.Now()
	c.Close() // the server is gone, so this may be an error, but it comes soon
	if took := f.env.Now() - start; took > soon {
		f.Errorf("closing a connection to a server that is gone took %v", took)
	}
	if err := f.server.Close(); err != nil {
		f.Errorf("close the server again: %v", err)
	}
}

// reconnectIsQuiet: a new connection of a client comes into being only when nothing of its broken
// one takes effect any more.
func reconnectIsQuiet(f *fixture) {
	in := f.buffer(busyQPs * 8)
	var next verbs.Conn
	for range 5 {
		c := f.connect(1)
		b := f.busy(c)
		b.run(func() {
			f.server.Disconnect(func(verbs.Peer) bool { return true })
		})
		b.allDied(verbs.ErrDisconnected)
		next = f.connect(1)
		q := f.qp(next)
		q.SetLimit(time.Minute)
		before, err := f.counts(q, in)
		if err != nil {
			f.Fatal(err)
		}
		for range 50 {
			if after, err := f.counts(q, in); err != nil || after != before {
				f.Fatalf("counts went from %v to %v, error %v", before, after, err)
			}
		}
		if err := next.Close(); err != nil {
			f.Fatal(err)
		}
	}
}

// longList takes a server, or a client that executes it, as long as a list may that is applied
// whole: a long WRITE, then a count.
func (f *fixture) longList() []verbs.Request {
	list := []verbs.Request{fetchAdd(0, f.buffer(8), 1)}
	for range 8 {
		list = append(list, write(4096, f.buffer(verbs.MaxTransfer/8-64)))
	}
	return append(list, fetchAdd(0, f.buffer(8), 1))
}

// whileLong calls end while a queue pair of c posts long lists, and checks that nothing of them
// takes effect afterwards.
func (f *fixture) whileLong(c verbs.Conn, other verbs.QP, list []verbs.Request, end func()) {
	f.Helper()
	q, in := f.qp(c), f.buffer(busyQPs*8)
	started := f.env.NewEvent()
	var before, after [busyQPs]uint64
	f.together(func() {
		for err := error(nil); err == nil; started.Set() {
			err = verbs.Post(q, list)
		}
	}, func() {
		if !started.Wait(soon) {
			f.Errorf("no list within %v", soon)
		}
		end()
		var err error
		if before, err = f.counts(other, in); err != nil {
			f.Error(err)
		}
		for range 20 {
			if after, err = f.counts(other, in); err != nil || after != before {
				f.Errorf("the count went from %d to %d after the end, error %v", before[0], after[0], err)
				return
			}
		}
	})
}

func closeDuringLongLists(f *fixture) {
	other, list := f.client(2), f.longList()
	for range 20 {
		c := f.connect(1)
		f.whileLong(c, other, list, func() {
			if err := c.Close(); err != nil {
				f.Error(err)
			}
		})
	}
}

func disconnectDuringLongLists(f *fixture) {
	other, list := f.client(2), f.longList()
	for range 20 {
		c := f.connect(1)
		f.whileLong(c, other, list, func() {
			if n := f.server.Disconnect(func(p verbs.Peer) bool { return p.Client == 1 }); n != 1 {
				f.Errorf("%d connections were cut, want 1", n)
			}
		})
		c.Close()
	}
}
