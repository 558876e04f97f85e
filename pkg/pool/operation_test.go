package pool_test

import (
	"bytes"
	"testing"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestNothingIsQueuedAfterAnOperation: an operation ends between queueing READs, one of them with a
// fence, and Post. The next operation uses their buffers, and posts what is its own.
func TestNothingIsQueuedAfterAnOperation(t *testing.T) {
	onProviders(t, func(t *testing.T, o pooltest.Options) {
		p := pooltest.New(t, o).Open(t)
		s := session(t, p)
		b, other := buffer(t, s, 64), buffer(t, s, 64)
		var nodes []pool.Addr
		for range 4 { // on both servers
			a, err := p.Allocate(64, pool.Nil)
			must(t, err)
			nodes = append(nodes, a)
		}
		for _, again := range []func(){s.Begin, s.Resume, func() { s.BeginIn(s) }} {
			for _, a := range nodes {
				s.Read(a, b)
			}
			s.Fence(nodes[0])
			s.End()
			again()
			for i := range b {
				b[i] = 0xAB
			}
			before := s.Counters()
			s.Write(pool.Sole, nodes[0], other)
			must(t, s.Post())
			if d := s.Counters().Sub(&before); d.Requests[verbs.Read] != 0 || d.Requests[verbs.Write] != 1 {
				t.Errorf("the next operation posts %+v", d)
			}
			if !bytes.Equal(b, bytes.Repeat([]byte{0xAB}, len(b))) {
				t.Errorf("the buffer of the next operation was written: %x", b)
			}
		}
	})
}

// TestOperationsThatLeaveSomething: in builds with invariants an operation does not begin behind
// one that left a change queued, or a lock held, or with requests queued.
func TestOperationsThatLeaveSomething(t *testing.T) {
	p := pooltest.New(t, pooltest.Options{Servers: 1}).Open(t)
	a, err := p.Allocate(64, pool.Nil)
	must(t, err)
	for what, leave := range map[string]func(s *pool.Session, b []byte){
		"a change": func(s *pool.Session, b []byte) { s.Write(pool.Sole, a, b); s.End() },
		"a READ":   func(s *pool.Session, b []byte) { s.Read(a, b) },
		"a lock":   func(s *pool.Session, b []byte) { must(t, s.Lock(a, b)); s.End() },
	} {
		s := session(t, p)
		leave(s, buffer(t, s, 64))
		if found := panics(s.Begin); found != invariants.Enabled {
			t.Errorf("an operation begins behind one that left %s: found %v", what, found)
		}
		if s.Holds() {
			must(t, s.PostUnlock())
		}
	}
}

// TestGivenBackAsAnotherSize: in builds with invariants nobody gives a node back as one of another
// size than it has, which would lose it.
func TestGivenBackAsAnotherSize(t *testing.T) {
	p := pooltest.New(t, pooltest.Options{Servers: 1}).Open(t)
	for what, give := range map[string]func(a pool.Addr, size int){"freed": p.Free, "retired": p.Retire, "retired, uncached": p.RetireUncached} {
		a, err := p.Allocate(1000, pool.Nil)
		must(t, err)
		if found := panics(func() { give(a, 512) }); found != invariants.Enabled {
			t.Errorf("a node is %s as one of another size: found %v", what, found)
		}
		if panics(func() { give(a, 1000) }) {
			t.Errorf("a node is not %s as what it is", what)
		}
	}
}

// panics reports whether do panics.
func panics(do func()) (found bool) {
	defer func() { found = recover() != nil }()
	do()
	return false
}
