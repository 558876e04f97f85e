package pool_test

import (
	"bytes"
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestWordsExclude: sessions of two clients count a node under its lock word, and own bits count
// along.
func TestWordsExclude(t *testing.T) {
	const sessions, each = 3, 100
	onProviders(t, func(t *testing.T, o pooltest.Options) {
		c := pooltest.New(t, o)
		first := c.Open(t)
		node, err := first.Allocate(128, pool.Nil)
		must(t, err)
		w := pool.Word{At: node + 120, Node: node}
		var group sync.WaitGroup
		for _, p := range []*pool.Pool{first, c.Open(t)} {
			for range sessions {
				s := session(t, p)
				b := buffer(t, s, 120)
				group.Go(func() {
					for range each {
						s.Begin()
						own, err := s.Acquire(w, pool.Span{At: node, Local: b})
						if err != nil {
							t.Error(err)
							return
						}
						n := binary.LittleEndian.Uint64(b)
						if own != n || binary.LittleEndian.Uint64(b[112:]) != n {
							t.Errorf("own bits are %d, the node says %d and %d", own, n, binary.LittleEndian.Uint64(b[112:]))
						}
						for i := 0; i < len(b); i += 8 {
							binary.LittleEndian.PutUint64(b[i:], n+1)
						}
						if err := s.ReserveRewrite(node, len(b)); err != nil {
							t.Error(err)
							return
						}
						s.Rewrite(node, b)
						if err := s.PostRelease(1<<48-1, n+1); err != nil {
							t.Error(err)
							return
						}
						s.End()
					}
				})
			}
		}
		group.Wait()
		word := binary.NativeEndian.Uint64(c.Memory(node.Server(), verbs.RegionData)[w.At.Offset():])
		if want := uint64(2 * sessions * each); word != want<<16 {
			t.Errorf("the word is %#x, want %#x", word, want<<16)
		}
	})
}

// TestWordCosts: a lock word takes one round trip, with what is read under it, and a change of the
// node and the word another one.
func TestWordCosts(t *testing.T) {
	onProviders(t, func(t *testing.T, o pooltest.Options) {
		c := pooltest.New(t, o)
		p := c.Open(t)
		s := session(t, p)
		node, err := p.Allocate(128, pool.Nil)
		must(t, err)
		b, w := buffer(t, s, 120), pool.Word{At: node + 120, Node: node}
		work := func() (d verbs.Counters) {
			s.Begin()
			before := s.Counters()
			_, err := s.Acquire(w, pool.Span{At: node, Local: b})
			must(t, err)
			s.Write(pool.Shared, node, b[:64])
			must(t, s.PostRelease(0xff, 1))
			s.End()
			after := s.Counters()
			return after.Sub(&before)
		}
		work() // takes an intent slot
		d := work()
		want := [verbs.NumOps]uint64{verbs.Read: 1, verbs.Write: 2, verbs.MaskedCompareSwap: 2}
		if d.RoundTrips != 2 || d.Lists != 2 || d.Requests != want {
			t.Errorf("it took %+v", d)
		}
	})
}

// TestWordsAllocateNothing: neither a word that is free nor its release, with a change of the node.
func TestWordsAllocateNothing(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{})
	p := c.Open(t)
	s := session(t, p)
	node, err := p.Allocate(128, pool.Nil)
	must(t, err)
	b, w := buffer(t, s, 120), pool.Word{At: node + 120, Node: node}
	if n := testing.AllocsPerRun(100, func() {
		s.Begin()
		_, err := s.Acquire(w, pool.Span{At: node, Local: b})
		must(t, err)
		must(t, s.ReserveRewrite(node, 120))
		b[0] = 1
		s.Rewrite(node, b)
		must(t, s.PostRelease(0xff, 1))
		s.End()
	}); n != 0 && !invariants.Enabled { // checks allocate
		t.Errorf("%v allocations", n)
	}
}

// TestWordOfADeadClient: the word of a client that was fenced while it held it, with the node
// changed and not the word, is another one's, and own bits follow the node.
func TestWordOfADeadClient(t *testing.T) {
	onProviders(t, func(t *testing.T, o pooltest.Options) {
		o.Servers = 1
		c := pooltest.New(t, o)
		survivor := c.Open(t)
		survivor.SetRebuild(func(s *pool.Session, w pool.Word, own uint64, room []byte) (mask, bits uint64, err error) {
			s.Read(w.Node, room[:8])
			err = s.Post()
			return 0xff, uint64(room[0]), err
		})
		node, err := survivor.Allocate(128, pool.Nil)
		must(t, err)
		s := session(t, survivor)
		b, w := buffer(t, s, 120), pool.Word{At: node + 120, Node: node}
		_, err = s.Acquire(w)
		must(t, err)
		must(t, s.PostRelease(0xfff, 0x700))

		dead := c.Open(t)
		theirs := session(t, dead)
		_, err = theirs.Acquire(w)
		must(t, err)
		must(t, theirs.ReserveRewrite(node, 120))
		out := buffer(t, theirs, 120)
		for i := range out {
			out[i] = 9
		}
		theirs.Rewrite(node, out)
		if held := c.Memory(1, verbs.RegionData)[w.At.Offset()]; uint32(held) != dead.Client() {
			t.Fatalf("client %d holds the word", held)
		}
		// The queued requests are posted and the release is lost: a client that dies there.
		must(t, theirs.Post())
		must(t, c.Fence(dead.Client()))
		_ = dead.Close()
		if word := binary.NativeEndian.Uint64(c.Memory(1, verbs.RegionData)[w.At.Offset():]); word != pool.Repair|0x700<<16 {
			t.Fatalf("after the fence the word is %#x", word)
		}
		if _, ok, err := s.TryAcquire(w); ok || err != nil {
			t.Fatalf("a word that says Repair was tried: %v, %v", ok, err)
		}
		own, err := s.Acquire(w, pool.Span{At: node, Local: b})
		must(t, err)
		if own != 0x709 || !bytes.Equal(b, out) {
			t.Errorf("own bits are %#x, the node is %x", own, b)
		}
		must(t, s.PostRelease(0, 0))
	})
}

// TestWordsBesideEpochs: while sessions take lock words, their client passes epochs, and clears the
// slots of sessions that rest. Retired nodes come back, and the words exclude.
func TestWordsBesideEpochs(t *testing.T) {
	const sessions, each = 4, 300
	c := pooltest.New(t, pooltest.Options{RenewEvery: time.Millisecond})
	p := c.Open(t)
	var words []pool.Word
	for range 2 {
		node, err := p.Allocate(128, pool.Nil)
		must(t, err)
		words = append(words, pool.Word{At: node + 120, Node: node})
	}
	var counts [2]uint64 // under the words
	var group sync.WaitGroup
	for i := range sessions {
		s := session(t, p)
		s.End()
		group.Go(func() {
			for n := range each {
				k := (n + i) % 2
				s.Begin()
				if _, err := s.Acquire(words[k]); err != nil {
					t.Error(err)
					return
				}
				counts[k]++
				if err := s.PostRelease(0, 0); err != nil {
					t.Error(err)
					return
				}
				a, err := s.Allocate(128, pool.Nil)
				if err != nil {
					t.Error(err)
					return
				}
				p.Retire(a, 128)
				s.End()
				for until := time.Now().Add(100 * time.Microsecond); n%8 == 0 && time.Now().Before(until); {
					p.Env().Yield()
				}
			}
		})
	}
	group.Wait()
	if counts[0]+counts[1] != sessions*each {
		t.Errorf("%d counts, want %d", counts, sessions*each)
	}
	// All sessions rest, so every slot forgets its word, or the epochs would stand still.
	for end := time.Now().Add(10 * time.Second); p.Reclaimed() < sessions*each; p.Env().Yield() {
		if time.Now().After(end) {
			t.Fatalf("%d of %d nodes came back", p.Reclaimed(), sessions*each)
		}
	}
}
