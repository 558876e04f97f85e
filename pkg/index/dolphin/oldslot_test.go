package dolphin

import (
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// TestOldSlotOfAHalf: a client has a copy of a slot from before the leaf there was merged. The
// memory of that leaf is used again, for the right half of a split whose client stops when it has
// written the forward word. The slot in the copy does not prove that the right half has one: the
// client that does the rest links it.
func TestOldSlotOfAHalf(t *testing.T) {
	w := simenv.New(simenv.Options{Seed: 1, MaxEvents: 10_000_000})
	c, err := poolsim.New(w, poolsim.Options{Servers: 1, RenewEvery: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	f := family{T: t}
	f.must(w.Run(func(p *simenv.Process) {
		client := func() *Session {
			of, err := c.Open(p)
			f.must(err)
			x, err := open(of, index.Options{MaxKeyBytes: 8, MaxValueBytes: 8, NodeBytes: 256})
			f.must(err)
			s, err := x.newSession()
			f.must(err)
			return s
		}
		s, old := client(), client()
		f.insert(s, "a0", "mm", "mz")
		divide := func(place string, half pool.Addr) pool.Addr {
			m, _ := f.forwardHalvesAt(s, "a0", place, half)
			s.End()
			return m.at[1]
		}
		divide("mz", pool.Nil)
		f.must(s.Update([]byte("a0"), []byte("a0")))
		half := divide("mm", pool.Nil)
		f.must(s.Update([]byte("a0"), []byte("a0")))
		if at := f.leafOf(old, "mm"); at != half {
			t.Fatalf("the copies lead to %v, not to %v", at, half)
		}
		reclaimed := s.t.Pool.Reclaimed()
		f.must(s.Delete([]byte("a0")))
		if f.leafOf(s, "mm") == half {
			t.Fatal("the leaves are not merged")
		}
		for n := 0; s.t.Pool.Reclaimed() < reclaimed+3; n++ {
			if n == 1000 {
				t.Fatal("no memory comes back")
			}
			p.Sleep(time.Millisecond)
		}
		f.insert(s, "a0")
		divide("mm", half)
		f.must(old.Update([]byte("a0"), []byte("a0")))
		if found, err := s.t.Check(); err != nil || found.Unlinked > 0 || found.Pairs != 3 {
			t.Errorf("%+v, %v", found, err)
		}
	}))
}
