package poolsim_test

import (
	"fmt"
	"testing"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// reserving is an owner with one node that was used before, and that still says that it is dead.
type reserving struct {
	*testing.T
	p     *simenv.Process
	owner *pool.Pool
	used  pool.Addr
}

func newReserving(t *testing.T, c *poolsim.Cluster, p *simenv.Process) *reserving {
	owner, err := c.Open(p)
	must(t, err)
	owner.SetMarks(isMarked)
	r := &reserving{T: t, p: p, owner: owner}
	s, b := r.session()
	r.used, err = owner.Allocate(256, pool.Nil)
	must(t, err)
	s.Write(pool.Sole, r.used, append(b[:0], deadMark...))
	must(t, s.Post())
	owner.Free(r.used, 256)
	return r
}

func (r *reserving) session() (*pool.Session, []byte) {
	r.Helper()
	s, err := r.owner.NewSession(512)
	must(r.T, err)
	b, err := s.Buffer(256)
	must(r.T, err)
	return s, b
}

// sweeps gives something up, again and again, so that sweeps are made.
func (r *reserving) sweeps() {
	r.Helper()
	for range 5 {
		a, err := r.owner.Allocate(256, pool.Nil)
		must(r.T, err)
		before := r.owner.Reclaimed()
		r.owner.Retire(a, 256)
		for n := 0; r.owner.Reclaimed() == before; n++ {
			if n == 100 {
				r.Fatal("nothing comes back")
			}
			r.p.Sleep(lease / 10)
		}
	}
}

// inUse fails unless the node is in use, or is not, while something is so.
func (r *reserving) inUse(want bool, while string) {
	r.Helper()
	if is := r.owner.NodeState(r.used, 256) == pool.NodeInUse; is != want {
		r.Errorf("%s: the node is in use: %v", while, is)
	}
}

// TestReservedIsNotSwept: a reserved node looks dead, and no sweep takes it, though no operation is
// under way. When it is written, and marked by somebody who took it out, a sweep does.
func TestReservedIsNotSwept(t *testing.T) {
	calm(t, func(c *poolsim.Cluster, p *simenv.Process) {
		r := newReserving(t, c, p)
		reserved := r.owner.Reserve()
		a, err := reserved.Allocate(256, pool.Nil)
		must(t, err)
		if a != r.used {
			t.Fatalf("the next node is %v, want %v", a, r.used)
		}
		r.sweeps()
		r.inUse(true, "it is reserved")
		s, b := r.session()
		s.Write(pool.Sole, a, append(b[:0], "alive"...))
		must(t, s.Post())
		reserved.Written([]pool.Addr{a})
		r.sweeps()
		r.inUse(true, "it is written")
		s.Write(pool.Sole, a, append(b[:0], deadMark...))
		must(t, s.Post())
		r.sweeps()
		r.inUse(false, "it is dead")
	})
}

// TestFreeEndsReservation: a reserved node that is freed is an ordinary one for whoever gets it
// next.
func TestFreeEndsReservation(t *testing.T) {
	calm(t, func(c *poolsim.Cluster, p *simenv.Process) {
		r := newReserving(t, c, p)
		a, err := r.owner.Reserve().AllocateBlock(256, pool.Nil)
		must(t, err)
		r.owner.Free(a, 256)
		_, err = r.owner.Allocate(256, pool.Nil)
		must(t, err)
		r.sweeps()
		r.inUse(false, "it looks dead, and no operation has it")
	})
}

// TestHandedOutBesideSweep: a sweep has begun, and waits for an operation. What is handed out then,
// or was reserved and is written then, may look dead in what the sweep READs. The sweep leaves it
// alone.
func TestHandedOutBesideSweep(t *testing.T) {
	for _, written := range []bool{false, true} {
		inLimbo(t, poolsim.Options{Servers: 1, Lease: lease}, func(c *poolsim.Cluster, p *simenv.Process) {
			r := newReserving(t, c, p)
			before, _ := r.session()
			during, _ := r.session()
			reserved := r.owner.Reserve()
			take := func(from func(size int, near pool.Addr) (pool.Addr, error)) {
				t.Helper()
				a, err := from(256, pool.Nil)
				must(t, err)
				if a != r.used {
					t.Fatalf("the next node is %v, want %v", a, r.used)
				}
			}
			if written {
				take(reserved.Allocate)
			}
			before.Begin()
			garbage, err := r.owner.Allocate(512, pool.Nil)
			must(t, err)
			r.owner.Retire(garbage, 512)
			p.Sleep(2 * lease) // the sweep that this brings waits for an operation
			during.Begin()     // later ones wait for this one
			if written {
				reserved.Written([]pool.Addr{r.used})
			} else {
				take(r.owner.Allocate)
			}
			before.End()
			p.Sleep(2 * lease)
			r.inUse(true, fmt.Sprintf("written %v, as the sweep ended", written))
			during.End()
			p.Sleep(2 * lease)
			r.inUse(false, fmt.Sprintf("written %v, it looks dead, and no operation has it", written))
		})
	}
}

// TestWriteWithoutAnswer: the WRITE of a session that died may come late. So no sweep takes its
// node, which looks dead until then, and hands it out to somebody else.
func TestWriteWithoutAnswer(t *testing.T) {
	calm(t, func(c *poolsim.Cluster, p *simenv.Process) {
		r := newReserving(t, c, p)
		a := r.unanswered("alive")
		s, b := r.session()
		s.Write(pool.Sole, a, append(b[:0], deadMark...)) // as if the other had not come yet
		must(t, s.Post())
		r.sweeps()
		r.inUse(true, "a WRITE of it has no answer")
	})
}

// TestMarkWithoutAnswer: the dead mark of a node has no answer. Once it is there the WRITE is over,
// and a sweep takes the node, as any that is marked.
func TestMarkWithoutAnswer(t *testing.T) {
	calm(t, func(c *poolsim.Cluster, p *simenv.Process) {
		r := newReserving(t, c, p)
		r.unanswered(string(deadMark))
		r.sweeps()
		r.inUse(false, "its mark came")
	})
}

// unanswered takes the node, and posts a WRITE of it that has no answer.
func (r *reserving) unanswered(text string) pool.Addr {
	r.Helper()
	s, b := r.session()
	s.Begin()
	a, err := r.owner.Allocate(256, pool.Nil)
	must(r.T, err)
	s.Write(pool.Sole, a, append(b[:0], text...))
	s.Read(a+1<<40, b[128:136]) // refused, and with it the list
	if s.Post() == nil {
		r.Fatal("the WRITE has an answer")
	}
	s.End()
	must(r.T, s.Close())
	r.p.Sleep(lease)
	return a
}
