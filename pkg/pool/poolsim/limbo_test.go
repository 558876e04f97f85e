package poolsim_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// inLimbo is a run with a lease, or without, in which memory is given up.
func inLimbo(t *testing.T, o poolsim.Options, body func(c *poolsim.Cluster, p *simenv.Process)) {
	t.Helper()
	w := simenv.New(simenv.Options{Seed: 1, MaxEvents: 5_000_000})
	c, err := poolsim.New(w, o)
	must(t, err)
	must(t, w.Run(func(p *simenv.Process) { body(c, p) }))
}

// comesBack reports whether what cl gave up since before comes back within a time.
func comesBack(p *simenv.Process, cl *pool.Pool, before uint64, within time.Duration) bool {
	for end := p.Now() + within; p.Now() < end && cl.Reclaimed() == before; {
		p.Sleep(within / 100)
	}
	return cl.Reclaimed() > before
}

// TestRetiredWaitsForAllServers: a client stands still in an operation and is fenced on one server.
// What another client gives up there, or elsewhere, does not come back before the first one is
// fenced on the other server, where its requests take effect until then.
func TestRetiredWaitsForAllServers(t *testing.T) {
	for _, uncached := range []bool{false, true} {
		for on := range uint16(2) {
			t.Run(fmt.Sprintf("uncached %v, fenced on %d", uncached, 1+on), func(t *testing.T) {
				inLimbo(t, poolsim.Options{Lease: lease, RenewEvery: lease / 200}, func(c *poolsim.Cluster, p *simenv.Process) {
					retiredWaitsForAll(t, c, p, 1+on, uncached)
				})
			})
		}
	}
}

func retiredWaitsForAll(t *testing.T, c *poolsim.Cluster, p *simenv.Process, on uint16, uncached bool) {
	owner, err := c.Open(p)
	must(t, err)
	proc, begun := p.World().NewProcess("half fenced"), p.NewEvent()
	proc.Go("main", func() {
		cl, err := c.Open(proc)
		must(t, err)
		s, err := cl.NewSession(64)
		must(t, err)
		s.Begin()
		begun.Set()
		proc.Sleep(time.Hour)
	})
	begun.Wait(env.Forever)
	p.Sleep(lease / 4)
	proc.Freeze()
	must(t, c.Control(p).Fence(on, []uint32{c.Newest()}, lease/10))
	give := func() {
		for server := range uint16(2) {
			a, err := owner.Allocate(256, pool.NewAddr(1+server, 64))
			must(t, err)
			if uncached {
				owner.RetireUncached(a, 256)
			} else {
				owner.Retire(a, 256)
			}
		}
	}
	before := owner.Reclaimed()
	give()
	if comesBack(p, owner, before, lease/2) {
		t.Error("memory comes back, and a client has its address that is alive on the other server")
	}
	if !comesBack(p, owner, before, 2*lease) {
		t.Error("memory does not come back when the client is fenced on both")
	}
}

// TestServerThatDoesNotAnswer: while a server has no answer for a client, nothing that the client
// gave up comes back, and who finds no memory is told which server that is. When it answers,
// everything comes back. With leases the client ends when that on the server has.
func TestServerThatDoesNotAnswer(t *testing.T) {
	const chunk, node = 16 << 10, 1024
	inLimbo(t, poolsim.Options{Chunks: 2, ChunkBytes: chunk, RenewEvery: time.Millisecond}, func(c *poolsim.Cluster, p *simenv.Process) {
		late := c.NewLate(p)
		owner, err := c.OpenWith(p, late, time.Millisecond)
		must(t, err)
		late.Server = 2
		p.Sleep(5 * time.Millisecond)
		given := 0
		for {
			a, err := owner.AllocateBlock(node, pool.Nil)
			if err != nil {
				if !errors.Is(err, pool.ErrPoolFull) || !strings.Contains(err.Error(), "memory server 2 ") {
					t.Errorf("no memory: %v", err)
				}
				break
			}
			owner.Retire(a, node)
			given++
			p.Sleep(time.Millisecond)
		}
		if n := owner.Reclaimed(); n > 0 {
			t.Errorf("%d nodes of %d come back", n, given)
		}
		late.Server = 0
		for n := 0; owner.Reclaimed() < uint64(given); n++ {
			if n == 1000 {
				t.Fatalf("%d nodes of %d come back when the server answers", owner.Reclaimed(), given)
			}
			p.Sleep(time.Millisecond)
		}
	})
	inLimbo(t, poolsim.Options{Lease: lease}, func(c *poolsim.Cluster, p *simenv.Process) {
		late := c.NewLate(p)
		owner, err := c.OpenWith(p, late, 0)
		must(t, err)
		late.Server = 2
		p.Sleep(2 * lease)
		if err := owner.Alive(); !errors.Is(err, pool.ErrFenced) || !strings.Contains(err.Error(), "memory server 2 ") {
			t.Errorf("alive: %v", err)
		}
	})
}

// TestMemberCounts: a server that joins holds up what a client gives up from when the client knows
// that it is a member. Before, its end harms nobody; afterwards the end of the lease there ends the
// client.
func TestMemberCounts(t *testing.T) {
	for _, member := range []bool{false, true} {
		t.Run(fmt.Sprint("member: ", member), func(t *testing.T) {
			inLimbo(t, poolsim.Options{Servers: 1, Lease: lease, RenewEvery: lease / 200}, func(c *poolsim.Cluster, p *simenv.Process) {
				memberCounts(t, c, p, member)
			})
		})
	}
}

func memberCounts(t *testing.T, c *poolsim.Cluster, p *simenv.Process, member bool) {
	late := c.NewLate(p)
	owner, err := c.OpenWith(p, joinLate{late, c.Control(p).(pool.Joins)}, lease/200)
	must(t, err)
	added, err := c.Start()
	must(t, err)
	note(t, c, p, added, pool.Joining)
	if member {
		note(t, c, p, added, pool.Member)
	}
	give := func() uint64 {
		t.Helper()
		a, err := owner.Allocate(256, pool.NewAddr(1, 64))
		must(t, err)
		before := owner.Reclaimed()
		owner.Retire(a, 256)
		return before
	}
	if !comesBack(p, owner, give(), lease) {
		t.Error("nothing comes back while all servers answer")
	}
	late.Server = added
	p.Sleep(lease / 50)
	if comesBack(p, owner, give(), lease/2) == member {
		t.Error("what is given up waits for a server that is not a member, or does not for one that is")
	}
	p.Sleep(2 * lease)
	if ended := owner.Alive() != nil; ended != member {
		t.Errorf("the lease on the server is over: the client has ended: %v", ended)
	}
}

// TestJoiningServerThatDies: a server dies before it is a member. Nothing lies there, so no
// allocation asks it for memory, no repair looks for work there, who waits for operations does not
// wait for it, and its end ends no client.
func TestJoiningServerThatDies(t *testing.T) {
	inLimbo(t, poolsim.Options{Servers: 1, Lease: lease, RenewEvery: lease / 200}, func(c *poolsim.Cluster, p *simenv.Process) {
		owner, err := c.Open(p)
		must(t, err)
		s, err := owner.NewSession(4096)
		must(t, err)
		s.SetLimit(lease / 100)
		table, err := s.Buffer(64)
		must(t, err)
		room, err := s.Buffer(64)
		must(t, err)
		size := 256
		work := func(when string) {
			t.Helper()
			s.Begin()
			a, err := s.Allocate(size, pool.Nil)
			size += 64 // of none a server has some without a call
			if err == nil {
				_, err = s.Acquire(pool.Word{At: a + 248, Node: a})
			}
			if err == nil {
				err = s.PostRelease(0, 0)
			}
			s.End()
			if err != nil {
				t.Errorf("%s: change a node: %v", when, err)
			}
			if err := s.RepairAll(table, room, room); err != nil {
				t.Errorf("%s: %v", when, err)
			}
			if err := s.RepairWords(); err != nil {
				t.Errorf("%s: %v", when, err)
			}
			owner.StockRewrites(size)
			if err := owner.AwaitOperations(lease, func() error { return nil }); err != nil {
				t.Errorf("%s: %v", when, err)
			}
		}
		added, err := c.Start()
		must(t, err)
		note(t, c, p, added, pool.Joining)
		work("a server is joining")
		must(t, c.Server(added).Close())
		work("it has died")
		p.Sleep(2 * lease)
		must(t, owner.Alive())
		work("the lease there is over")
		must(t, c.Note(p, added, pool.Left, lease))
		p.Sleep(lease / 100)
		work("it has left")
		must(t, owner.Alive())
	})
}

// note lets the home note how far a server is, and waits until all clients have heard it.
func note(t *testing.T, c *poolsim.Cluster, p *simenv.Process, id uint16, state pool.JoinState) {
	t.Helper()
	must(t, c.Note(p, id, state, lease))
	for n := 0; ; n++ {
		behind, err := c.Behind(p, lease)
		must(t, err)
		if behind == 0 {
			return
		}
		if n == 100 {
			t.Fatal("the clients do not reach the server")
		}
		p.Sleep(lease / 100)
	}
}

// TestFencedWhereItJoins: a client was fenced on a server before it used it, so it never hears of
// the epochs there. While the server is joining that does not matter. As a member it may have words
// with addresses of memory that the client gives up, so the client ends.
func TestFencedWhereItJoins(t *testing.T) {
	inLimbo(t, poolsim.Options{Servers: 1, Lease: lease, RenewEvery: lease / 200}, func(c *poolsim.Cluster, p *simenv.Process) {
		owner, err := c.Open(p)
		must(t, err)
		added, err := c.Start()
		must(t, err)
		must(t, c.Control(p).Fence(added, []uint32{owner.Client()}, lease))
		note(t, c, p, added, pool.Joining)
		if err := owner.Alive(); err != nil {
			t.Errorf("the server is joining: %v", err)
		}
		must(t, c.Note(p, added, pool.Member, lease))
		p.Sleep(lease / 10)
		if err := owner.Alive(); !errors.Is(err, pool.ErrFenced) || !strings.Contains(err.Error(), fmt.Sprintf("memory server %d", added)) {
			t.Errorf("the server is a member: %v", err)
		}
	})
}

// joinLate is a late control path of servers that join.
type joinLate struct {
	*poolsim.Late
	pool.Joins
}

// TestCloseGivesChunksBack: a client that frees much and is closed at once gives its chunks back:
// whoever adopts them would find nodes that seem to be in use. A server that does not answer holds
// its Close up for no longer than parting may take.
func TestCloseGivesChunksBack(t *testing.T) {
	const size, chunk, parting = 1024, 16 << 10, 2 * time.Second
	for _, silent := range []bool{false, true} {
		inLimbo(t, poolsim.Options{Servers: 1, Chunks: 16, ChunkBytes: chunk, Lease: lease}, func(c *poolsim.Cluster, p *simenv.Process) {
			owner, err := c.OpenWith(p, &noFrees{c.Control(p), p, silent}, 0)
			must(t, err)
			s, err := owner.NewSession(size)
			must(t, err)
			b, err := s.Buffer(size)
			must(t, err)
			b[0] = 1
			var nodes []pool.Addr
			for range 10 * chunk / size {
				a, err := owner.AllocateBlock(size, pool.Nil)
				must(t, err)
				s.Write(pool.Sole, a, b)
				must(t, s.Post())
				nodes = append(nodes, a)
			}
			had := len(c.Chunks())
			for _, a := range nodes {
				owner.Free(a, size)
			}
			must(t, s.Close())
			began := p.Now()
			must(t, owner.Close())
			if took := p.Now() - began; took > parting+parting/2 {
				t.Errorf("Close takes %v, where a server is silent: %v", took, silent)
			}
			if left := len(c.Chunks()); !silent && left > 2 {
				t.Errorf("%d chunks of %d are left", left, had)
			}
		})
	}
}

// noFrees is a control path on which, if silent, no FreeChunk has an answer.
type noFrees struct {
	pool.Control
	p      *simenv.Process
	silent bool
}

func (f *noFrees) FreeChunk(server uint16, client uint32, offset uint64, limit time.Duration) error {
	if f.silent {
		f.p.Sleep(limit)
		return verbs.ErrTimeout
	}
	return f.Control.FreeChunk(server, client, offset, limit)
}
