package poolsim_test

import (
	"bytes"
	"encoding/binary"
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

// TestWordMemoryIsUsedAgain: memory of a lock word is not used again while a client's slot names
// the word, of whatever class it is, and whatever nodes the slot's session entered meanwhile. So
// the fence of that client changes nothing of what is there then, even if it looks like a word that
// the client holds.
func TestWordMemoryIsUsedAgain(t *testing.T) {
	cached := func(p *pool.Pool, a pool.Addr) { p.Retire(a, 256) }
	t.Run("cached", func(t *testing.T) { wordMemoryIsUsedAgain(t, cached, false) })
	t.Run("uncached", func(t *testing.T) {
		wordMemoryIsUsedAgain(t, func(p *pool.Pool, a pool.Addr) { p.RetireUncached(a, 256) }, false)
	})
	t.Run("another node entered", func(t *testing.T) { wordMemoryIsUsedAgain(t, cached, true) })
}

func wordMemoryIsUsedAgain(t *testing.T, retire func(*pool.Pool, pool.Addr), enters bool) {
	calm(t, func(c *poolsim.Cluster, p *simenv.Process) {
		owner, err := c.Open(p)
		must(t, err)
		s, err := owner.NewSession(4096)
		must(t, err)
		fill, err := s.Buffer(256)
		must(t, err)
		node, err := owner.Allocate(256, pool.Nil)
		must(t, err)
		other, err := owner.Allocate(256, node)
		must(t, err)
		holder, used := p.World().NewProcess("holder"), p.NewEvent()
		var id uint32
		holder.Go("main", func() {
			cl, err := c.Open(holder)
			must(t, err)
			id = cl.Client()
			s, err := cl.NewSession(4096)
			must(t, err)
			s.Begin()
			_, err = s.Acquire(pool.Word{At: node + 248, Node: node})
			must(t, err)
			must(t, s.PostRelease(0, 0))
			s.End()
			if enters {
				s.Begin()
				must(t, errors.Join(s.Enter(other), s.Post(), s.PostLeave()))
				s.End()
			}
			used.Set()
			holder.Sleep(time.Hour)
		})
		used.Wait(env.Forever)
		retire(owner, node)
		for i := 0; owner.Reclaimed() == 0; i++ {
			if i == 100 {
				t.Fatal("the node is never free")
			}
			p.Sleep(lease / 10)
		}
		for i := 0; i < 256; i += 2 {
			binary.NativeEndian.PutUint16(fill[i:], uint16(id))
		}
		s.Write(pool.Sole, node, fill)
		must(t, s.Post())
		holder.Kill()
		p.Sleep(3 * lease)
		if got := c.Memory(node.Server(), verbs.RegionData)[node.Offset():][:256]; !bytes.Equal(got, fill) {
			t.Errorf("the fence changed memory that is used for something else: %x", got)
		}
		if n := c.UsedIntents(node.Server()); n != 0 {
			t.Errorf("%d intent slots are not free", n)
		}
	})
}

// TestWordsOfAnotherIndex: a fence looks at nothing outside the memory of the index, whatever a
// client says in its slots.
func TestWordsOfAnotherIndex(t *testing.T) {
	calm(t, func(c *poolsim.Cluster, p *simenv.Process) {
		proc, used := p.World().NewProcess("liar"), p.NewEvent()
		outside := pool.NewAddr(1, 4096+2048) // behind what the superblock says
		proc.Go("main", func() {
			cl, err := c.Open(proc)
			must(t, err)
			s, err := cl.NewSession(4096)
			must(t, err)
			s.Begin()
			_, err = s.Acquire(pool.Word{At: outside, Node: outside})
			must(t, err)
			used.Set()
			proc.Sleep(time.Hour)
		})
		used.Wait(env.Forever)
		proc.Kill()
		p.Sleep(3 * lease)
		if got := c.Memory(1, verbs.RegionData)[outside.Offset()]; got != 1 {
			t.Errorf("a fence changed a word outside the chunks to %#x", got)
		}
	})
}

// TestWordHeldTooLong: who waits for a lock word in vain is told who holds it, and goes on.
func TestWordHeldTooLong(t *testing.T) {
	calm(t, func(c *poolsim.Cluster, p *simenv.Process) {
		const limit = 50 * time.Millisecond
		holder, err := c.Open(p)
		must(t, err)
		node, err := holder.Allocate(256, pool.Nil)
		must(t, err)
		w := pool.Word{At: node, Node: node}
		open := func(cl *pool.Pool) *pool.Session {
			s, err := cl.NewSession(4096)
			must(t, err)
			s.SetLimit(limit)
			s.Begin()
			return s
		}
		held := open(holder)
		_, err = held.Acquire(w)
		must(t, err)
		other, err := c.Open(p)
		must(t, err)
		for _, waits := range []struct {
			s    *pool.Session
			says string
		}{{open(holder), "another session of this client"}, {open(other), fmt.Sprintf("client %d holds", holder.Client())}} {
			s, says := waits.s, waits.says
			if _, ok, err := s.TryAcquire(w); ok || err != nil {
				t.Errorf("a word that is held was tried: %v, %v", ok, err)
			}
			s.Begin()
			at := p.Now()
			_, err := s.Acquire(w)
			if !errors.Is(err, pool.ErrTimeout) || !strings.Contains(err.Error(), says) || s.Err() != nil {
				t.Errorf("%v, want %v that says %q; the session: %v", err, pool.ErrTimeout, says, s.Err())
			}
			if waited := p.Now() - at; waited < limit || waited > limit+2*time.Millisecond {
				t.Errorf("the limit of %v was over after %v", limit, waited)
			}
			must(t, s.Close())
		}
		must(t, held.PostRelease(7, 5))
		s := open(other)
		own, err := s.Acquire(w)
		must(t, err)
		if own != 5 {
			t.Errorf("own bits are %d, want 5", own)
		}
		must(t, s.PostRelease(1, 0))
		held.Begin() // the operation before is over its limit
		if own, ok, err := held.TryAcquire(w); own != 4 || !ok || err != nil {
			t.Errorf("own bits are %d, want 4; %v, %v", own, ok, err)
		}
		must(t, held.PostRelease(0, 0))
	})
}

// TestWordsAreFair: sessions of one client get a word in the order in which they came.
func TestWordsAreFair(t *testing.T) {
	calm(t, func(c *poolsim.Cluster, p *simenv.Process) {
		cl, err := c.Open(p)
		must(t, err)
		node, err := cl.Allocate(256, pool.Nil)
		must(t, err)
		w := pool.Word{At: node, Node: node}
		first, err := cl.NewSession(4096)
		must(t, err)
		first.Begin()
		_, err = first.Acquire(w)
		must(t, err)
		var order []int
		g := env.NewWaitGroup(p)
		for i := range 5 {
			g.Go(fmt.Sprint("session ", i), func() {
				p.Sleep(time.Duration(i+1) * time.Millisecond)
				s, err := cl.NewSession(4096)
				must(t, err)
				s.Begin()
				_, err = s.Acquire(w)
				must(t, err)
				order = append(order, i)
				must(t, s.PostRelease(0, 0))
			})
		}
		p.Sleep(10 * time.Millisecond)
		must(t, first.PostRelease(0, 0))
		g.Wait(env.Forever)
		if fmt.Sprint(order) != "[0 1 2 3 4]" {
			t.Errorf("the word went to %v", order)
		}
	})
}

// TestIntentsRunOut: a client that has its share of slots is told so, also where others have them
// all; slots of closed sessions, and of clients that ended, are used again.
func TestIntentsRunOut(t *testing.T) {
	w := simenv.New(simenv.Options{Seed: 1})
	c, err := poolsim.New(w, poolsim.Options{Servers: 1, Locks: 4, Lease: lease, Intents: 9})
	must(t, err)
	must(t, w.Run(func(p *simenv.Process) {
		take := func(cl *pool.Pool) (*pool.Session, error) {
			s, err := cl.NewSession(4096)
			must(t, err)
			node, err := cl.Allocate(256, pool.Nil)
			must(t, err)
			s.Begin()
			if _, err = s.Acquire(pool.Word{At: node, Node: node}); err == nil {
				must(t, s.PostRelease(0, 0))
			}
			s.End()
			return s, err
		}
		fill := func(n int) (*pool.Pool, []*pool.Session) {
			cl, err := c.Open(p)
			must(t, err)
			var all []*pool.Session
			for range n {
				s, err := take(cl)
				must(t, err)
				all = append(all, s)
			}
			return cl, all
		}
		first, sessions := fill(4)
		if _, err := take(first); !errors.Is(err, pool.ErrNoIntent) || !strings.Contains(err.Error(), "of 4 a client may have") {
			t.Errorf("a client took more than its share: %v", err)
		}
		must(t, sessions[0].Close())
		_, err := take(first)
		must(t, err)
		fill(4)
		last, _ := fill(1)
		if _, err := take(last); !errors.Is(err, pool.ErrNoIntent) || !strings.Contains(err.Error(), "all 9 of the index are taken") {
			t.Errorf("there were more slots than there are: %v", err)
		}
		must(t, first.Close())
		_, err = take(last)
		must(t, err)
	}))
}
