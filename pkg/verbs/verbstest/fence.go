package verbstest

import (
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// The tests of Server.Fence: when it has returned nil, nothing of who matched changes memory any
// more.
var fenceTests = []test{
	{"FenceIsQuiet", fenceIsQuiet},
	{"FenceDuringLongLists", fenceDuringLongLists},
	{"FenceOfWhatWasLeft", fenceOfLeft},
	{"FenceMatches", fenceMatches},
	{"FenceWhileConnecting", fenceWhileConnecting},
	{"SeveralFencesAtOnce", severalFences},
}

// number matches the client of that number.
func number(n uint16) func(verbs.Peer) bool {
	return func(p verbs.Peer) bool { return p == verbs.Peer{Index: "test", Client: n} }
}

// fenceIsQuiet: lists are under way while the client is fenced.
func fenceIsQuiet(f *fixture) {
	c, other, in := f.connect(1), f.client(2), f.buffer(busyQPs*8)
	b := f.busy(c)
	var before [busyQPs]uint64
	b.run(func() {
		if err := f.server.Fence(number(1), soon); err != nil {
			f.Errorf("fence: %v", err)
		}
		var err error
		if before, err = f.counts(other, in); err != nil {
			f.Error(err)
		}
	})
	b.quiet(other, before)
	b.allDied(verbs.ErrDisconnected)
	f.post(other, read(0, f.scratch)) // nobody else notices
}

func fenceDuringLongLists(f *fixture) {
	other, list := f.client(2), f.longList()
	for range 20 {
		c := f.connect(1)
		f.whileLong(c, other, list, func() {
			if err := f.server.Fence(number(1), soon); err != nil {
				f.Errorf("fence: %v", err)
			}
		})
		c.Close()
	}
}

// fenceOfLeft: of queue pairs that were closed while a list was under way, of a connection that is
// closed, and of one whose lists nobody waits for.
func fenceOfLeft(f *fixture) {
	other, in := f.client(2), f.buffer(busyQPs*8)
	for round := range 10 {
		closed, open := f.connect(1), f.connect(1)
		for i := range busyQPs {
			c := open
			if i%4 == 3 {
				c = closed
			}
			q, old := f.qp(c), f.buffer(8)
			if err := q.Start([]verbs.Request{fetchAdd(uint64(i)*8, old, 1), fetchAdd(uint64(i)*8, old, 1)}); err != nil {
				f.Fatal(err)
			}
			if i%2 == 0 {
				q.Close()
			}
		}
		if err := closed.Close(); err != nil {
			f.Fatal(err)
		}
		if err := f.server.Fence(number(1), soon); err != nil {
			f.Fatalf("round %d: fence: %v", round, err)
		}
		before, err := f.counts(other, in)
		for range 20 {
			if err != nil {
				f.Fatal(err)
			}
			var after [busyQPs]uint64
			if after, err = f.counts(other, in); after != before {
				f.Fatalf("round %d: counts went from %v to %v after the fence", round, before, after)
			}
			f.env.Yield()
		}
	}
}

func fenceMatches(f *fixture) {
	var qps []verbs.QP
	for n := range uint16(4) {
		qps = append(qps, f.client(n+1))
	}
	for range 2 {
		if err := f.server.Fence(func(p verbs.Peer) bool { return p.Index != "test" }, 0); err != nil {
			f.Errorf("fence of nobody: %v", err)
		}
		if err := f.server.Fence(func(p verbs.Peer) bool { return p.Client%2 == 0 }, soon); err != nil {
			f.Errorf("fence: %v", err)
		}
	}
	for i, q := range qps {
		list := []verbs.Request{read(0, f.scratch)}
		if (i+1)%2 != 0 {
			f.post(q, list...)
			continue
		}
		f.eventually(func() bool { return verbs.Post(q, list) != nil }, "the queue pairs of a client that was fenced die")
	}
	f.client(2) // whether it may come again is for Admission to say
}

// fenceWhileConnecting: a client that is barred and then fenced has no connection, although it
// tried to get one all the time.
func fenceWhileConnecting(f *fixture) {
	other, in := f.client(9), f.buffer(busyQPs*8)
	for n := range uint16(8) {
		var refused atomic.Bool
		var tries atomic.Uint64
		var targets []verbs.Target
		for range 200 {
			targets = append(targets, f.target(n+1))
		}
		old := [2][]byte{f.buffer(8), f.buffer(8)}
		connect := func(half int) func() {
			return func() {
				for i := half; i < len(targets) && !refused.Load(); i += 2 {
					c, err := f.device.Connect(targets[i], soon)
					if err != nil {
						refused.Store(errors.Is(err, verbs.ErrRefused))
						continue
					}
					tries.Add(1)
					if q, err := c.NewQP(f.arena); err == nil {
						for range 5 {
							if verbs.Post(q, []verbs.Request{fetchAdd(uint64(n)*8, old[half], 1)}) != nil {
								break
							}
						}
					}
					c.Close()
				}
				refused.Store(true)
			}
		}
		f.together(connect(0), connect(1), func() {
			f.eventually(func() bool { return tries.Load() >= uint64(n) }, "connections")
			f.tokens.Bar(verbs.Peer{Index: "test", Client: n + 1})
			if err := f.server.Fence(number(n+1), soon); err != nil {
				f.Errorf("fence: %v", err)
			}
			before, err := f.counts(other, in)
			for i := 0; i < 50 || !refused.Load(); i++ {
				if err != nil {
					f.Error(err)
					return
				}
				var after [busyQPs]uint64
				if after, err = f.counts(other, in); after != before {
					f.Errorf("counts went from %v to %v after the fence", before, after)
					return
				}
				f.env.Yield()
			}
		})
	}
}

// severalFences: a fence beside another one may be relied on as well.
func severalFences(f *fixture) {
	c, other := f.connect(1), f.client(2)
	b := f.busy(c)
	var mine [2][busyQPs]uint64
	in := [2][]byte{f.buffer(busyQPs * 8), f.buffer(busyQPs * 8)}
	looks := [2]verbs.QP{f.client(3), f.client(4)}
	b.run(func() {
		var both []func()
		for i := range mine {
			both = append(both, func() {
				if err := f.server.Fence(number(1), soon); err != nil {
					f.Errorf("fence: %v", err)
				}
				var err error
				if mine[i], err = f.counts(looks[i], in[i]); err != nil {
					f.Error(err)
				}
			})
		}
		f.together(both...)
	})
	b.quiet(other, mine[0])
	b.quiet(other, mine[1])
}

// The tests of Fence with processes. A client that stands still knows nothing of its end.

// frozen starts a process that counts, and stops it in the middle.
func (f *fixture) frozen(n uint16, q verbs.QP) *child {
	f.Helper()
	start := f.word(q, verbs.RegionLocks, 0)
	c := f.child(childSpec{Role: "count", Target: f.target(n)})
	f.eventually(func() bool { return f.word(q, verbs.RegionLocks, 0) > start+100 }, "the child counts")
	f.freeze(c)
	return c
}

// stays checks that the count does not change any more.
func (f *fixture) stays(q verbs.QP, when string) {
	f.Helper()
	before := f.word(q, verbs.RegionLocks, 0)
	for range 2000 {
		f.env.Yield()
		if after := f.word(q, verbs.RegionLocks, 0); after != before {
			f.Fatalf("%s: the count went from %d to %d", when, before, after)
		}
	}
}

// loud checks that a fence says who is left.
func (f *fixture) loud(err error, n string) {
	f.Helper()
	if !errors.Is(err, verbs.ErrTimeout) || !strings.Contains(err.Error(), "client "+n+" of index test") {
		f.Errorf("the client stands still: %v, want %v and its name", err, verbs.ErrTimeout)
	}
}

const aWhile = 100 * time.Millisecond

// fenceFrozen: a process that stands still is fenced at once, or, where it changes the memory by
// itself, once it is dead.
func fenceFrozen(f *fixture) {
	q := f.client(1)
	c := f.frozen(5, q)
	if f.h.Direct {
		for range 2 {
			f.loud(f.server.Fence(number(5), aWhile), "5")
		}
		f.server.Disconnect(number(5)) // gives up on it at last, which is no proof
		f.loud(f.server.Fence(number(5), aWhile), "5")
		c.kill()
	}
	if err := f.server.Fence(number(5), soon); err != nil {
		f.Fatalf("fence: %v", err)
	}
	f.stays(q, "fenced while it stood still")
	if !f.h.Direct {
		f.thaw(c)
		f.stays(q, "thawed")
		f.says(c) // it was refused
		f.wait(c)
		f.stays(q, "ended")
	}
}

// fenceThawed: a process that goes on stops by itself, and then it is fenced.
func fenceThawed(f *fixture) {
	q := f.client(1)
	c := f.frozen(5, q)
	limit := soon
	if f.h.Direct {
		limit = aWhile // in vain
	}
	if err := f.server.Fence(number(5), limit); f.h.Direct != (err != nil) {
		f.Errorf("the client stands still: %v", err)
	}
	f.thaw(c)
	if err := f.server.Fence(number(5), soon); err != nil {
		f.Fatalf("the client goes on: %v", err)
	}
	f.stays(q, "thawed")
	f.says(c)
	f.wait(c)
	if err := f.server.Fence(number(5), 0); err != nil {
		f.Errorf("the client has ended: %v", err)
	}
}

// fenceAfterRestart: a server that takes the place of another one knows who may still change the
// memory.
func fenceAfterRestart(f *fixture) {
	c := f.frozen(5, f.client(1))
	f.server.Close()
	address, s, err := f.h.Start(f.TempDir(), verbs.ServerOptions{Memory: f.memory, Incarnation: incarnation, Admission: f.tokens})
	if err != nil {
		f.Fatal(err)
	}
	defer s.Close()
	f.address = address
	q := f.client(1)
	lasting, ok := s.(verbs.Lasting)
	if !ok && f.h.Direct {
		f.Fatal("a server whose clients change the memory without it is no verbs.Lasting")
	}
	five := verbs.Peer{Index: "test", Client: 5}
	if f.h.Direct {
		f.loud(lasting.Quiet(five), "5")
		c.kill()
		f.eventually(func() bool { return lasting.Quiet(five) == nil }, "the client is dead")
	} else if ok {
		if err := lasting.Quiet(five); err != nil {
			f.Errorf("the former server is gone: %v", err)
		}
	}
	f.stays(q, "after a restart")
	if !f.h.Direct {
		f.thaw(c)
		f.says(c)
		f.stays(q, "thawed after a restart")
	}
}
