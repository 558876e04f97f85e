package pool_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// onProviders runs a test on every provider.
func onProviders(t *testing.T, test func(t *testing.T, o pooltest.Options)) {
	for _, p := range []string{"shm", "tcp"} {
		t.Run(p, func(t *testing.T) { test(t, pooltest.Options{Provider: p}) })
	}
}

func session(t testing.TB, p *pool.Pool) *pool.Session {
	t.Helper()
	s, err := p.NewSession(64 << 10)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	s.Begin()
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func buffer(t testing.TB, s *pool.Session, n int) []byte {
	t.Helper()
	b, err := s.Buffer(n)
	must(t, err)
	return b
}

func TestReadBackWhatWasWritten(t *testing.T) {
	onProviders(t, func(t *testing.T, o pooltest.Options) {
		c := pooltest.New(t, o)
		p := c.Open(t)
		s := session(t, p)
		var addrs []pool.Addr
		for range 8 {
			a, err := p.Allocate(1000, pool.Nil)
			must(t, err)
			addrs = append(addrs, a)
		}
		out, in := buffer(t, s, 8*1000), buffer(t, s, 8*1000)
		for i := range out {
			out[i] = byte(i * 7)
		}
		for i, a := range addrs {
			s.Write(pool.Sole, a, out[i*1000:(i+1)*1000])
		}
		before := s.Counters()
		must(t, s.Post())
		if d := s.Counters().Sub(&before); d.RoundTrips != 1 || d.Lists != 2 || d.Requests[verbs.Write] != 8 {
			t.Errorf("8 WRITEs on 2 servers counted as %+v", d)
		}
		other := session(t, c.Open(t))
		theirs := buffer(t, other, 8*1000)
		for i, a := range addrs {
			s.Read(a, in[i*1000:(i+1)*1000])
			other.Read(a, theirs[i*1000:(i+1)*1000])
		}
		must(t, s.Post())
		must(t, other.Post())
		if !bytes.Equal(in, out) || !bytes.Equal(theirs, out) {
			t.Error("what was read is not what was written")
		}
	})
}

func TestServersTakeTurns(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{Servers: 3})
	p := c.Open(t)
	count := map[uint16]int{}
	for range 300 {
		a, err := p.Allocate(64, pool.Nil)
		must(t, err)
		count[a.Server()]++
	}
	for id, n := range count {
		if n != 100 {
			t.Errorf("server %d gave %d nodes of 300", id, n)
		}
	}
	if c.UsedChunks() != 3 {
		t.Errorf("300 nodes took %d chunks", c.UsedChunks())
	}
	near, err := p.Allocate(64, pool.NewAddr(2, 0))
	must(t, err)
	if near.Server() != 2 {
		t.Errorf("near server 2 is %v", near)
	}
}

func TestNodesDoNotOverlapUntilThePoolIsFull(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{Chunks: 2, ChunkBytes: 1 << 20})
	clients := []*pool.Pool{c.Open(t), c.Open(t)}
	type span struct {
		a pool.Addr
		n int
	}
	seen := map[pool.Addr]span{} // by every cache line that it covers
	sizes := []int{1024, 8192, 100}
	full := 0
	for i := 0; full < 2*len(sizes); i++ {
		size := sizes[i%len(sizes)]
		a, err := clients[i%2].Allocate(size, pool.Nil)
		if errors.Is(err, pool.ErrPoolFull) {
			full++
			continue
		}
		must(t, err)
		full = 0
		for off := 0; off < size; off += 64 {
			if other, ok := seen[a+pool.Addr(off)]; ok {
				t.Fatalf("node %v of %d bytes overlaps node %v of %d", a, size, other.a, other.n)
			}
			seen[a+pool.Addr(off)] = span{a, size}
		}
	}
	if c.UsedChunks() != 4 {
		t.Errorf("the pool is full with %d chunks of 4", c.UsedChunks())
	}
}

func TestFreedNodeIsUsedAgain(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{})
	p := c.Open(t)
	a, err := p.Allocate(1024, pool.Nil)
	must(t, err)
	p.Free(a, 1024)
	if b, err := p.Allocate(512, pool.Nil); err != nil || b == a {
		t.Errorf("a node of another size is %v, %v", b, err)
	}
	if b, err := p.Allocate(1024, pool.Nil); err != nil || b != a {
		t.Errorf("allocated %v, %v; want the freed %v", b, err, a)
	}
}

func TestLockExcludesAcrossClients(t *testing.T) {
	onProviders(t, func(t *testing.T, o pooltest.Options) {
		c := pooltest.New(t, o)
		first := c.Open(t)
		node, err := first.Allocate(64, pool.Nil)
		must(t, err)
		const each = 300
		var wg sync.WaitGroup
		for _, p := range []*pool.Pool{first, c.Open(t)} {
			for range 3 {
				s := session(t, p)
				buf := buffer(t, s, 64)
				wg.Go(func() {
					for i := range each {
						s.Begin()
						if err := s.Lock(node, buf); err != nil {
							t.Error(err)
							return
						}
						binary.LittleEndian.PutUint64(buf, binary.LittleEndian.Uint64(buf)+1)
						s.Write(pool.Shared, node, buf[:8])
						if i%3 != 0 {
							s.HandOn(node, buf)
						}
						if err := s.PostUnlock(); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
		}
		wg.Wait()
		s := session(t, first)
		buf := buffer(t, s, 8)
		s.Read(node, buf)
		must(t, s.Post())
		if got := binary.LittleEndian.Uint64(buf); got != 6*each {
			t.Errorf("the counter is %d, want %d", got, 6*each)
		}
		for i, b := range c.Memory(node.Server(), verbs.RegionLocks) {
			if b != 0 {
				t.Fatalf("lock table is not free at byte %d", i)
			}
		}
	})
}

func TestUncontendedLockCostsTwoRoundTrips(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{})
	p := c.Open(t)
	s := session(t, p)
	node, err := p.Allocate(1024, pool.Nil)
	must(t, err)
	buf := buffer(t, s, 1024)
	before := s.Counters()
	must(t, s.Lock(node, buf))
	s.Write(pool.Shared, node, buf[:16])
	must(t, s.PostUnlock())
	d := s.Counters().Sub(&before)
	if d.RoundTrips != 2 || d.Atomics() != 2 || d.Requests[verbs.Read] != 1 || d.Requests[verbs.Write] != 1 {
		t.Errorf("lock, read, write, unlock counted as %+v", d)
	}
}

func TestUnlockWaitsForOtherServers(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{})
	p := c.Open(t)
	s := session(t, p)
	here, err := p.Allocate(64, pool.NewAddr(1, 0))
	must(t, err)
	there, err := p.Allocate(64, pool.NewAddr(2, 0))
	must(t, err)
	buf := buffer(t, s, 64)
	must(t, s.Lock(here, buf))
	before := s.Counters()
	s.Write(pool.Shared, there, buf)
	s.Write(pool.Shared, here, buf)
	must(t, s.PostUnlock())
	if d := s.Counters().Sub(&before); d.RoundTrips != 2 || d.Lists != 2 {
		t.Errorf("writes on two servers and a release counted as %+v", d)
	}
	if s.Holds() {
		t.Error("the session still holds the lock")
	}
}

// TestLockHeldTooLongNamesTheHolder is on shared memory, where no request takes longer than its
// limit, whatever the machine does meanwhile: one that does ends its session. On a fabric with such
// limits, package poolsim has this test.
func TestLockHeldTooLongNamesTheHolder(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{Provider: "shm"})
	holder, other := c.Open(t), c.Open(t)
	node, err := holder.Allocate(64, pool.Nil)
	must(t, err)
	h := session(t, holder)
	must(t, h.Lock(node, buffer(t, h, 64)))
	for _, p := range []*pool.Pool{holder, other} {
		s := session(t, p)
		s.SetLimit(50 * time.Millisecond)
		s.Begin()
		err := s.Lock(node, buffer(t, s, 64))
		if !errors.Is(err, pool.ErrTimeout) || s.Err() != nil {
			t.Errorf("client %d: %v, session %v", p.Client(), err, s.Err())
		}
		if want := fmt.Sprintf("client %d holds", holder.Client()); p == other && !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	must(t, h.PostUnlock())
	s := session(t, other)
	must(t, s.Lock(node, buffer(t, s, 64)))
	must(t, s.PostUnlock())
}

func TestLostServerKillsTheSession(t *testing.T) {
	onProviders(t, func(t *testing.T, o pooltest.Options) {
		c := pooltest.New(t, o)
		p := c.Open(t)
		s := session(t, p)
		node, err := p.Allocate(64, pool.NewAddr(2, 0))
		must(t, err)
		buf := buffer(t, s, 64)
		c.Cut(2)
		s.Read(node, buf)
		err = s.Post()
		if !errors.Is(err, verbs.ErrDisconnected) {
			t.Errorf("read from a server that cut us: %v", err)
		}
		s.Read(pool.NewAddr(1, 4096), buf)
		if again := s.Post(); again == nil {
			t.Error("the session lives on")
		}
	})
}

func TestAddressOfNoServer(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{})
	s := session(t, c.Open(t))
	s.Read(pool.NewAddr(77, 0), buffer(t, s, 64))
	if err := s.Post(); err == nil || !strings.Contains(err.Error(), "no memory server") {
		t.Errorf("read from server 77: %v", err)
	}
}

func TestSuperblockIsMadeOnce(t *testing.T) {
	onProviders(t, func(t *testing.T, o pooltest.Options) {
		c := pooltest.New(t, o)
		p := c.Open(t)
		sb, root, err := session(t, p).ReadSuperblock()
		if sb != nil || root != pool.Nil || err != nil {
			t.Fatalf("a new index has superblock %v, root %v, %v", sb, root, err)
		}
		var wg sync.WaitGroup
		roots := make([]pool.Addr, 6)
		for i := range roots {
			s := session(t, c.Open(t))
			wg.Go(func() {
				var err error
				roots[i], err = s.CreateSuperblock("toy", []byte(`{"n":3}`), pool.NewAddr(1, uint64(64+i)<<10))
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		sb, root, err = session(t, p).ReadSuperblock()
		must(t, err)
		if sb.Design != "toy" || string(sb.Options) != `{"n":3}` || sb.Identity != pooltest.Identity {
			t.Errorf("superblock is %+v", sb)
		}
		again, _, err := session(t, c.Open(t)).ReadSuperblock()
		must(t, err)
		if sb.Secret != again.Secret || sb.Secret[0] == 0 || sb.Secret[1] == 0 {
			t.Errorf("two clients read the secrets %x and %x", sb.Secret, again.Secret)
		}
		for i, r := range roots {
			if r != root {
				t.Errorf("creator %d was told root %v, it is %v", i, r, root)
			}
		}
		s := session(t, p)
		if secret, err := s.DecideSecret(); err != nil || secret != sb.Secret {
			t.Errorf("the secret %x is decided again: %x, %v", sb.Secret, secret, err)
		}
		if won, old, err := s.SwapRoot(pool.NewAddr(1, 0), pool.NewAddr(1, 64)); won || old != root || err != nil {
			t.Errorf("swap from a wrong root: won %v, old %v, %v", won, old, err)
		}
		if won, _, err := s.SwapRoot(root, pool.NewAddr(1, 64)); !won || err != nil {
			t.Errorf("swap from the root: won %v, %v", won, err)
		}
	})
}

// TestSuperblockNeedsOneBuffer: who makes an index reads the superblock, makes it, and reads it
// again. The room of a session for that does not grow with each.
func TestSuperblockNeedsOneBuffer(t *testing.T) {
	s := session(t, pooltest.New(t, pooltest.Options{}).Open(t))
	for range 20 {
		_, _, err := s.ReadSuperblock()
		must(t, err)
		_, err = s.CreateSuperblock("toy", []byte("{}"), pool.NewAddr(1, 1<<16))
		must(t, err)
	}
}

func TestOperationsDoNotAllocate(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{})
	p := c.Open(t)
	s := session(t, p)
	node, err := p.Allocate(1024, pool.Nil)
	must(t, err)
	buf := buffer(t, s, 1024)
	n := testing.AllocsPerRun(5000, func() { // the keeper, which renews now and then, may allocate
		s.Begin()
		if err := s.Lock(node, buf); err != nil {
			t.Fatal(err)
		}
		s.Write(pool.Shared, node, buf[:24])
		if err := s.PostUnlock(); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("lock, write and unlock allocate %v times", n)
	}
}
