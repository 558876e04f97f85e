package memserver

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/dmindex/dmindex/memserver/internal/region"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestFenceOfWords: a fence turns the lock words that a client holds in memory of its index to
// Repair and leaves their own bits, and the words of another index with a client of the same
// number.
func TestFenceOfWords(t *testing.T) {
	for _, provider := range []string{"tcp", "shm"} {
		t.Run(provider, func(t *testing.T) {
			s, _ := start(t, dirConfig(t.TempDir()))
			data := s.region.Bytes()
			type side struct {
				pool *pool.Pool
				s    *pool.Session
				w    pool.Word
			}
			word := func(a pool.Addr) uint64 { return binary.NativeEndian.Uint64(data[a.Offset():]) }
			join := func(index string) *pool.Pool {
				c := client(t, s.Addresses().Control, index, provider, nil)
				must(c.Admit(2, 1024, limit))
				return must(pool.Open(pool.Config{Env: env.Real(), Control: c, Devices: []verbs.Device{deviceOf(provider)}, Identity: index}))
			}
			hold := func(index string) (x side) {
				x.pool = join(index)
				x.s = must(x.pool.NewSession(1 << 12))
				node := must(x.pool.Allocate(128, pool.Nil))
				x.w = pool.Word{At: node + 120, Node: node}
				x.s.Begin()
				must(x.s.Acquire(x.w))
				if err := x.s.PostRelease(0xff, 0xab); err != nil {
					t.Fatal(err)
				}
				must(x.s.Acquire(x.w))
				return x
			}
			a, b := hold("a"), hold("b")
			if a.pool.Client() != b.pool.Client() || word(a.w.At) != uint64(a.pool.Client())|0xab<<16 {
				t.Fatalf("clients %d and %d, word %#x", a.pool.Client(), b.pool.Client(), word(a.w.At))
			}
			// The slot of b's client says that it names a word of a's. Over tcp a client of b
			// writes its slot and does not get as far as the word, so another one of b tries.
			binary.NativeEndian.PutUint64(data[a.w.Node.Offset():], uint64(b.pool.Client()))
			liar := side{pool: b.pool, w: pool.Word{At: a.w.Node + 8, Node: a.w.Node}}
			want := uint64(b.pool.Client())
			if provider == "tcp" {
				liar.pool, want = join("b"), 0
				defer liar.pool.Close()
			}
			liar.s = must(liar.pool.NewSession(1 << 12))
			liar.s.Begin()
			if _, err := liar.s.Acquire(liar.w); (err == nil) != (provider == "shm") || err != nil && !errors.Is(err, verbs.ErrOutOfRange) {
				t.Fatalf("a client of b takes a word of a's: %v", err)
			}

			_ = b.s.Close()
			_ = b.pool.Close()
			if got := word(b.w.At); got != pool.Repair|0xab<<16 {
				t.Errorf("the fenced client's word is %#x", got)
			}
			if got := word(a.w.At); got != uint64(a.pool.Client())|0xab<<16 {
				t.Errorf("the other index's word is %#x", got)
			}
			if got := word(liar.w.At); got != want {
				t.Errorf("a fence changed memory of another index to %#x", got)
			}
			if err := a.s.PostRelease(0, 0); err != nil {
				t.Error(err)
			}
			if err := a.pool.Alive(); err != nil {
				t.Error(err)
			}
			_ = a.s.Close()
			_ = a.pool.Close()
		})
	}
}

// TestZeroPlaceZeroesIntents: of the superblock slot that is given back, and of no other one.
func TestZeroPlaceZeroesIntents(t *testing.T) {
	s, _ := start(t, dirConfig(t.TempDir()))
	r := s.region
	from, end := region.IntentOffset(r.LockBytes, 0), region.IntentOffset(r.LockBytes, 3)
	for at := from; at < end; at++ {
		r.Bytes()[at] = 1
	}
	if err := r.ZeroPlace(1, 0, 4); err != nil {
		t.Fatal(err)
	}
	for at := from; at < end; at++ {
		want := byte(1)
		if at >= region.IntentOffset(r.LockBytes, 1) && at < region.IntentOffset(r.LockBytes, 2) {
			want = 0
		}
		if r.Bytes()[at] != want {
			t.Fatalf("the byte at %#x is %d, slots begin at %#x", at, r.Bytes()[at], from)
		}
	}
}

// TestPresenceWords: the word that says where a session is lies in its own index's array, and it is
// cleared when the session has left.
func TestPresenceWords(t *testing.T) {
	for _, provider := range []string{"tcp", "shm"} {
		t.Run(provider, func(t *testing.T) {
			s, _ := start(t, dirConfig(t.TempDir()))
			h, data := &s.region.Header, s.region.Bytes()
			words := func(slot int) (n int) {
				at, each := region.PresenceOffset(h.ChunkBytes, h.LockBytes, slot), region.IntentSlots(h.LockBytes)*pool.PresenceBytes
				for _, b := range data[at:][:each] {
					n += min(1, int(b))
				}
				return n
			}
			for slot, index := range []string{"a", "b"} {
				c := client(t, s.Addresses().Control, index, provider, nil)
				must(c.Admit(2, 1024, limit))
				p := must(pool.Open(pool.Config{Env: env.Real(), Control: c, Devices: []verbs.Device{deviceOf(provider)}, Identity: index}))
				session := must(p.NewSession(1 << 12))
				node := must(p.Allocate(128, pool.Nil))
				session.Begin()
				if err := errors.Join(session.Enter(node), session.Post()); err != nil {
					t.Fatal(err)
				}
				if words(slot) == 0 || words(1-slot) != 0 {
					t.Errorf("in node %v: %d bytes of index %s say so, %d of the other one's", node, words(slot), index, words(1-slot))
				}
				if err := session.PostLeave(); err != nil || words(slot) != 0 {
					t.Errorf("it has left: %v, %d bytes", err, words(slot))
				}
				session.End()
				if err := errors.Join(session.Close(), p.Close()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
