package pool_test

import (
	"encoding/binary"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// TestServerJoins: an index that is full goes on when a server joins it. Its clients use the new
// server without being opened again, also a session that was opened before; and one that opens
// later does, too.
func TestServerJoins(t *testing.T) {
	onProviders(t, func(t *testing.T, o pooltest.Options) {
		o.Chunks, o.RenewEvery = 1, time.Millisecond
		c := pooltest.New(t, o)
		p, other := c.Open(t), c.Open(t)
		s, reader := session(t, p), session(t, other)
		const size = 16 << 10
		var all []pool.Addr
		for {
			a, err := p.Allocate(size, pool.Nil)
			if errors.Is(err, pool.ErrPoolFull) {
				break
			}
			must(t, err)
			all = append(all, a)
		}
		full := len(all)
		id := c.Join(t)
		for range full / 4 {
			a, err := p.Allocate(size, pool.Nil)
			must(t, err)
			if a.Server() != id {
				t.Fatalf("a full index has node %v, and server %d has room", a, id)
			}
			all = append(all, a)
		}
		b, got := buffer(t, s, 64), buffer(t, reader, 64)
		for n, a := range all {
			must(t, s.Lock(a, b))
			binary.LittleEndian.PutUint64(b, uint64(n))
			s.Write(pool.Shared, a, b)
			must(t, s.PostUnlock())
		}
		latest := session(t, c.Open(t))
		third := buffer(t, latest, 64)
		for n, a := range all {
			reader.Read(a, got)
			must(t, reader.Post())
			latest.Read(a, third)
			must(t, latest.Post())
			if v, w := binary.LittleEndian.Uint64(got), binary.LittleEndian.Uint64(third); v != uint64(n) || w != uint64(n) {
				t.Fatalf("node %v reads %d and %d, want %d", a, v, w, n)
			}
		}
		if servers := p.Servers(); len(servers) != 3 || servers[2] != id {
			t.Errorf("servers are %v", servers)
		}
	})
}

// TestSlabsOpenBesideJoin: slabs are opened, without the allocator's lock, while servers join, for
// which the allocator makes room. The race detector looks at it.
func TestSlabsOpenBesideJoin(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{Chunks: 64, RenewEvery: time.Millisecond})
	p := c.Open(t)
	var over atomic.Bool
	failed := make(chan error)
	go func() {
		var err error
		for err == nil && !over.Load() {
			_, err = p.Allocate(8<<10, pool.Nil)
		}
		failed <- err
	}()
	for range 3 {
		c.Join(t)
	}
	over.Store(true)
	if err := <-failed; err != nil && !errors.Is(err, pool.ErrPoolFull) {
		t.Error(err)
	}
}

// TestJoiningHoldsNothingUp: as long as a server joins, it gives no memory, it is none at which
// somebody has to be fenced, and a client that opens does without it.
func TestJoiningHoldsNothingUp(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{Chunks: 1, RenewEvery: time.Millisecond})
	p := c.Open(t)
	id := uint16(77) // nobody is there
	c.Note(id, pool.Joining)
	others := func(want int) {
		t.Helper()
		ids, err := p.Others()
		must(t, err)
		if len(ids) != want {
			t.Errorf("a client is to be fenced at %v", ids)
		}
	}
	others(1)
	if late := c.Open(t); late.Alive() != nil || len(late.Servers()) != 2 {
		t.Errorf("servers are %v: %v", late.Servers(), late.Alive())
	}
	if behind := c.Behind(); len(behind) != 2 {
		t.Errorf("clients %v do not reach a server that is away, want 2", behind)
	}
	c.Note(id, pool.Left)
	for end := time.Now().Add(time.Minute); len(c.Behind()) > 0; <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("clients %v still want to reach a server that left", c.Behind())
		}
	}
	others(1)
	c.Join(t)
	others(2)
}

// TestFencedClientDoesNotJoin: a client that is fenced at the home learns of no server any more.
func TestFencedClientDoesNotJoin(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{RenewEvery: time.Hour})
	p := c.Open(t)
	must(t, c.Control().Fence(p.Servers()[0], []uint32{p.Client()}, time.Minute))
	if _, err := p.Others(); !errors.Is(err, pool.ErrFenced) {
		t.Errorf("the list: %v", err)
	}
}
