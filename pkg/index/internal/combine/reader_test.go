package combine_test

import (
	"encoding/binary"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index/internal/combine"
)

const at = 0x1000

// reader is a session that READs a memory of one byte.
type reader struct {
	combine.Reader
	buf []byte
}

// inWorld runs body in a simulated world, with a table of n readers.
func inWorld(t *testing.T, n, size int, body func(p *simenv.Process, x *combine.Reads, r []*reader)) {
	t.Helper()
	w := simenv.New(simenv.Options{Seed: 1})
	if err := w.Run(func(p *simenv.Process) {
		x := combine.NewReads(p)
		x.Meet()
		r := make([]*reader, n)
		for i := range r {
			r[i] = &reader{buf: make([]byte, size)}
			r[i].Open(x)
		}
		body(p, x, r)
	}); err != nil {
		t.Fatal(err)
	}
}

// join lets r ask, and says if it does not get the role that it should.
func (r *reader) join(t *testing.T, want combine.Role) {
	t.Helper()
	if got := r.Join(at, r.buf); got != want {
		t.Errorf("a reader gets role %d, want %d", got, want)
	}
}

// await lets r wait and says likewise.
func (r *reader) await(t *testing.T, limit time.Duration, want combine.Role) {
	t.Helper()
	if got := r.Await(limit); got != want {
		t.Errorf("a reader that waited gets role %d, want %d", got, want)
	}
}

// done ends the READ of r, which found value.
func (r *reader) done(value byte, ok bool) {
	for i := range r.buf {
		r.buf[i] = value
	}
	r.Done(ok)
}

// TestWindowEndsWithThePost: a READ that was posted is joined by nobody. Who comes later waits for
// the next one, and gets what that one finds.
func TestWindowEndsWithThePost(t *testing.T) {
	inWorld(t, 6, 8, func(_ *simenv.Process, x *combine.Reads, r []*reader) {
		r[0].join(t, combine.Lead) // posts value 1
		r[1].join(t, combine.Wait) // the window opens
		r[2].join(t, combine.Wait)
		r[3].join(t, combine.Wait)
		r[0].done(1, true)
		r[4].join(t, combine.Wait)             // it is open until its leader posts
		r[1].await(t, time.Hour, combine.Lead) // posts value 2
		r[5].join(t, combine.Wait)             // a change was made before; it must see it
		r[1].done(2, true)                     // READ value 2
		r[2].await(t, time.Hour, combine.Got)  // was there before the post
		r[3].await(t, time.Hour, combine.Got)  // likewise
		r[4].await(t, time.Hour, combine.Got)  // likewise
		r[5].await(t, time.Hour, combine.Lead) // was not
		r[5].done(3, true)
		for i, want := range []byte{1, 2, 2, 2, 2, 3} {
			if got := r[i].buf[0]; got != want {
				t.Errorf("reader %d has %d, want %d", i, got, want)
			}
		}
		if n := x.Delegated(); n != 3 {
			t.Errorf("%d READs were spared, want 3", n)
		}
		r[0].join(t, combine.Lead) // the slot is free again
		r[0].Done(true)
	})
}

// TestLeadersFailureIsItsOwn: followers of a leader that has no bytes READ themselves.
func TestLeadersFailureIsItsOwn(t *testing.T) {
	inWorld(t, 3, 8, func(_ *simenv.Process, x *combine.Reads, r []*reader) {
		r[0].join(t, combine.Lead)
		r[1].join(t, combine.Wait)
		r[2].join(t, combine.Wait)
		r[0].Done(false) // the next leader goes on
		r[1].await(t, time.Hour, combine.Lead)
		r[1].done(9, false)
		r[2].await(t, time.Hour, combine.Alone)
		if r[2].buf[0] != 0 || x.Delegated() != 0 {
			t.Error("a follower has bytes of a READ that failed")
		}
	})
}

// TestFollowerLeavesAtItsLimit: nobody touches the buffer of a follower that has waited for as long
// as it may.
func TestFollowerLeavesAtItsLimit(t *testing.T) {
	inWorld(t, 4, 8, func(p *simenv.Process, _ *combine.Reads, r []*reader) {
		r[0].join(t, combine.Lead)
		r[1].join(t, combine.Wait)
		r[2].join(t, combine.Wait)
		r[3].join(t, combine.Wait)
		r[0].Done(true)
		r[1].await(t, time.Hour, combine.Lead)
		before := p.Now()
		r[2].await(t, 20*time.Microsecond, combine.Alone)
		if took := p.Now() - before; took > 30*time.Microsecond {
			t.Errorf("it waited for %v", took)
		}
		r[2].buf[0] = 77
		r[1].done(5, true)
		r[3].await(t, time.Hour, combine.Got)
		if r[2].buf[0] != 77 || r[3].buf[0] != 5 {
			t.Errorf("the one that left has %d, the other one %d", r[2].buf[0], r[3].buf[0])
		}
	})
}

// TestPatience: a leader whose READ takes for ever holds up nobody for longer than the patience.
// When it ends at last, it does not take the slot from its successor.
func TestPatience(t *testing.T) {
	inWorld(t, 4, 8, func(p *simenv.Process, _ *combine.Reads, r []*reader) {
		r[0].join(t, combine.Lead)
		r[1].join(t, combine.Wait)
		r[2].join(t, combine.Wait)
		before := p.Now()
		r[1].await(t, time.Hour, combine.Lead)
		if took := p.Now() - before; took < combine.Patience || took > 2*combine.Patience {
			t.Errorf("the next leader waited for %v", took)
		}
		r[2].await(t, time.Hour, combine.Alone) // nor does that one end
		if took := p.Now() - before; took > 4*combine.Patience {
			t.Errorf("a follower waited for %v", took)
		}
		r[0].done(1, true)
		r[3].join(t, combine.Wait) // for the second one
		r[1].done(2, true)
		before = p.Now()
		r[3].await(t, time.Hour, combine.Lead)
		if took := p.Now() - before; took > combine.Patience/2 {
			t.Errorf("the end of the READ before it has woken nobody: %v", took)
		}
		r[3].Done(true)
	})
}

// TestOneIsLimited: a READ serves no more than it should, and no longer buffers than its own.
func TestOneIsLimited(t *testing.T) {
	inWorld(t, combine.MaxFollowers+3, 8, func(_ *simenv.Process, _ *combine.Reads, r []*reader) {
		r[0].join(t, combine.Lead)
		r[1].join(t, combine.Wait)
		if got := r[2].Join(at, make([]byte, 9)); got != combine.Alone {
			t.Errorf("a reader of more bytes gets role %d", got)
		}
		if got := r[2].Join(at, r[2].buf[:4]); got != combine.Wait {
			t.Errorf("a reader of fewer bytes gets role %d", got)
		}
		for i := range combine.MaxFollowers - 1 {
			r[3+i].join(t, combine.Wait)
		}
		r[2+combine.MaxFollowers].join(t, combine.Alone)
		r[0].Done(true)
		r[1].await(t, time.Hour, combine.Lead)
		r[1].done(6, true)
		r[2].await(t, time.Hour, combine.Got)
		if r[2].buf[3] != 6 || r[2].buf[4] != 0 {
			t.Errorf("a reader of four bytes has %x", r[2].buf)
		}
	})
	inWorld(t, 4, combine.MaxCopied/2, func(_ *simenv.Process, _ *combine.Reads, r []*reader) {
		r[0].join(t, combine.Lead)
		r[1].join(t, combine.Wait)
		r[2].join(t, combine.Wait)
		r[3].join(t, combine.Wait)
		if got := new(combine.Reader).Join(at, nil); got != combine.Alone {
			t.Errorf("a reader without a table gets role %d", got)
		}
	})
}

// TestReadersAreLimited: numbers are used again, and who gets none READs alone.
func TestReadersAreLimited(t *testing.T) {
	x := combine.NewReads(env.Real())
	x.Meet()
	var all []*combine.Reader
	b := make([]byte, 8)
	for range combine.MaxReaders - 1 {
		r := new(combine.Reader)
		r.Open(x)
		all = append(all, r)
	}
	more := new(combine.Reader)
	if more.Open(x); more.Join(at, b) != combine.Alone {
		t.Error("a reader without a number does not READ alone")
	}
	all[5].Close()
	all[5].Close() // changes nothing
	if more.Open(x); more.Join(at, b) != combine.Lead {
		t.Error("the number of a closed reader is not used again")
	}
	more.Done(true)
}

// TestOnThreads: the memory is a number that only grows. Whoever READs it finds no less than it was
// before it asked.
func TestOnThreads(t *testing.T) {
	const readers, each = 8, 20000
	x := combine.NewReads(env.Real())
	x.Meet()
	var memory [3]atomic.Uint64
	g := env.NewWaitGroup(env.Real())
	for range readers {
		r := new(combine.Reader)
		r.Open(x)
		g.Go("reader", func() {
			defer r.Close()
			b, random := make([]byte, 8), rand.New(rand.NewPCG(rand.Uint64(), 1))
			for n := range each {
				of := random.IntN(len(memory))
				least := memory[of].Load()
				role := r.Join(uint64(64*(1+of)), b)
				if role == combine.Wait {
					role = r.Await(time.Minute)
				}
				ok := random.IntN(50) != 0
				if role != combine.Got {
					binary.NativeEndian.PutUint64(b, memory[of].Load())
					if n%4 == 0 {
						env.Real().Yield()
					}
				}
				if role == combine.Lead {
					r.Done(ok)
				}
				if got := binary.NativeEndian.Uint64(b); got < least {
					t.Errorf("a reader of role %d has %d, and %d was there before it asked", role, got, least)
					return
				}
				memory[of].Add(1)
				clear(b) // the buffer is used again at once
			}
		})
	}
	g.Wait(env.Forever)
	if x.Delegated() == 0 {
		t.Error("no READ was spared")
	}
	t.Logf("%d of %d READs were spared", x.Delegated(), readers*each)
}

// BenchmarkJoin: what a READ costs more, of an address of its own (apart), of one of 1024 (spread),
// and where nobody meets because READs do not stand in line (idle).
func BenchmarkJoin(b *testing.B) {
	for _, c := range []struct {
		name   string
		meet   bool
		addrs  int
		shared bool
	}{{"idle", false, 1, false}, {"apart", true, 1, false}, {"spread", true, 1024, true}} {
		for _, readers := range []int{1, 4, 8} {
			b.Run(c.name+"/"+string(rune('0'+readers)), func(b *testing.B) {
				x := combine.NewReads(env.Real())
				if c.meet {
					x.Meet()
				}
				b.ReportAllocs()
				g := env.NewWaitGroup(env.Real())
				for i := range readers {
					r := new(combine.Reader)
					r.Open(x)
					g.Go("reader", func() {
						buf, random := make([]byte, 64), rand.New(rand.NewPCG(uint64(i), 1))
						for range b.N / readers {
							a := uint64(i)
							if c.shared {
								a = random.Uint64N(uint64(c.addrs))
							}
							role := r.Join(64*(1+a), buf)
							if role == combine.Wait {
								role = r.Await(time.Minute)
							}
							if !c.meet {
								began := r.Start(env.Real())
								r.Took(env.Real(), began, len(buf))
							}
							if role == combine.Lead {
								r.Done(true)
							}
						}
						r.Close()
					})
				}
				g.Wait(env.Forever)
			})
		}
	}
}
