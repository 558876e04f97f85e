package verbstest

import (
	"errors"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// The tests of who is let in.
var admissionTests = []test{
	{"WithoutToken", withoutToken},
	{"UsedToken", usedToken},
	{"WrongIncarnation", wrongIncarnation},
	{"AnotherServer", anotherServer},
	{"NobodyListens", nobodyListens},
	{"WhatTheConnectionSays", connectionSays},
	{"TooManyConnections", tooManyConnections},
	{"TooManyQueuePairs", tooManyQPs},
}

// notConnected checks that a connection is refused with want, and soon.
func (f *fixture) notConnected(t verbs.Target, want error) {
	f.Helper()
	start := f.env.Now()
	c, err := f.device.Connect(t, soon)
	if err == nil {
		c.Close()
	}
	if !errors.Is(err, want) {
		f.Errorf("connect: %v, want %v", err, want)
	}
	if took := f.env.Now() - start; took > soon {
		f.Errorf("connect failed after %v, its limit was %v", took, soon)
	}
}

func withoutToken(f *fixture) {
	t := f.target(1)
	t.Token = verbs.Token{}
	f.notConnected(t, verbs.ErrRefused)
	t.Token[7] = 1
	f.notConnected(t, verbs.ErrRefused)
	f.client(1) // the server goes on
}

func usedToken(f *fixture) {
	t := f.target(1)
	c, err := f.device.Connect(t, soon)
	if err != nil {
		f.Fatal(err)
	}
	f.notConnected(t, verbs.ErrRefused)
	if err := c.Close(); err != nil {
		f.Fatal(err)
	}
	f.notConnected(t, verbs.ErrRefused)
}

func wrongIncarnation(f *fixture) {
	t := f.target(1)
	t.Incarnation = incarnation + 1
	f.notConnected(t, verbs.ErrLostMemory)
	t = f.target(1)
	t.Incarnation = 0
	c, err := f.device.Connect(t, soon)
	if err != nil {
		f.Fatalf("connect to whichever incarnation is there: %v", err)
	}
	if c.Incarnation() != incarnation {
		f.Errorf("incarnation %#x, want %#x", c.Incarnation(), incarnation)
	}
	if err := c.Close(); err != nil {
		f.Error(err)
	}
}

// anotherServer: a second server has the same content at another address, as the copy of a memory
// server that takes its place. What the first one handed out admits nobody there, and connections
// to the first one, those that broke included, are neither ended nor continued by it.
func anotherServer(f *fixture) {
	first, unused, before := f.server, f.target(1), f.connect(1)
	old, broken := f.qp(before), f.client(1)
	f.post(old, fetchAdd(8, f.scratch, 1))
	tokens, address := f.tokens, f.address
	f.tokens = new(Tokens)
	f.serve(verbs.ServerOptions{})
	unused.Address = f.address
	f.notConnected(unused, verbs.ErrRefused)
	next := f.client(1)
	if got := f.word(next, verbs.RegionLocks, 8); got != 0 {
		f.Errorf("the second server has %d, and nothing was changed there", got)
	}
	f.post(old, fetchAdd(8, f.scratch, 1))
	if got := f.word(next, verbs.RegionLocks, 8); got != 0 {
		f.Errorf("the second server has %d after a change at the first one", got)
	}
	first.Disconnect(func(verbs.Peer) bool { return true })
	if verbs.Post(broken, []verbs.Request{read(0, f.scratch)}) == nil {
		f.Error("a connection that was ended goes on")
	}
	// to the second one, which has never had the broken sessions
	f.post(f.client(1), fetchAdd(8, f.scratch, 1))
	f.post(next, fetchAdd(8, f.scratch, 1)) // and ends none of its own
	f.tokens, f.address = tokens, address
	if got := f.word(f.client(1), verbs.RegionLocks, 8); got != 2 {
		f.Errorf("the first server has %d of 2 changes", got)
	}
}

func nobodyListens(f *fixture) {
	t := f.target(1)
	if err := f.server.Close(); err != nil {
		f.Fatal(err)
	}
	f.notConnected(t, verbs.ErrDisconnected)
}

func connectionSays(f *fixture) {
	c := f.connect(1)
	if c.Capabilities().WholeWrite < 8 {
		f.Errorf("WholeWrite is %d, at least 8 are guaranteed", c.Capabilities().WholeWrite)
	}
	want := map[verbs.RegionID]uint64{verbs.RegionData: dataSize, verbs.RegionLocks: locksSize}
	for _, r := range c.Regions() {
		if want[r.ID] != r.Size {
			f.Errorf("region %d of %d bytes, want %d", r.ID, r.Size, want[r.ID])
		}
		delete(want, r.ID)
	}
	if len(want) != 0 {
		f.Errorf("regions %v are missing", want)
	}
}

func tooManyConnections(f *fixture) {
	if err := f.server.Close(); err != nil {
		f.Fatal(err)
	}
	f.serve(verbs.ServerOptions{MaxConns: 2})
	first := f.connect(1)
	f.connect(2)
	f.notConnected(f.target(3), verbs.ErrTooMany)
	if err := first.Close(); err != nil {
		f.Fatal(err)
	}
	f.eventually(func() bool {
		c, err := f.device.Connect(f.target(3), soon)
		if err != nil && !errors.Is(err, verbs.ErrTooMany) {
			f.Fatal(err)
		}
		if err == nil {
			err = c.Close()
		}
		return err == nil
	}, "a connection after another was closed")
}

func tooManyQPs(f *fixture) {
	c := f.connect(1)
	const plenty = 1 << 16
	var qps []verbs.QP
	var err error
	for len(qps) < plenty && err == nil {
		var q verbs.QP
		if q, err = c.NewQP(f.arena); err == nil {
			qps = append(qps, q)
		}
	}
	if !errors.Is(err, verbs.ErrTooMany) || len(qps) < 64 {
		f.Fatalf("after %d queue pairs: %v, want at least 64, then %v", len(qps), err, verbs.ErrTooMany)
	}
	f.post(qps[0], read(0, f.scratch))
	f.post(qps[len(qps)-1], read(0, f.scratch))
	if err := qps[0].Close(); err != nil {
		f.Fatal(err)
	}
	f.post(f.qp(c), read(0, f.scratch)) // in its place
	q := qps[1]
	q.SetLimit(time.Minute)
	f.post(q, read(0, f.scratch))
}
