package poolsim_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// addition is a change that sessions offer here: the first word of the node grows by 1. sum is the
// answer: what it is then.
type addition struct{ sum uint64 }

// add adds to the locked node at a, and does what others offer, but for what refuse says.
func (s *seat) add(a pool.Addr, refuse func(i int) bool) (sum uint64, err error) {
	at := s.node[:8]
	sum = binary.LittleEndian.Uint64(at) + 1
	all, back := sum, uint32(0)
	for i := range s.s.Take(a) {
		if refuse != nil && refuse(i) {
			back |= 1 << i
			continue
		}
		all++
		s.s.TakenChange(i).(*addition).sum = all
	}
	s.s.PutBack(back)
	binary.LittleEndian.PutUint64(at, all)
	s.s.Write(pool.Shared, a, at)
	s.s.HandOn(a, s.node)
	return sum, s.s.PostUnlock()
}

// offer adds by itself, or lets the holder do it.
func (s *seat) offer(a pool.Addr) (sum uint64, answered bool, err error) {
	var c addition
	answered, err = s.s.LockOr(a, s.node, &c)
	if answered || err != nil {
		return c.sum, answered, err
	}
	sum, err = s.add(a, nil)
	return sum, false, err
}

// TestHolderCarriesOutWhatOthersOffer: the holder answers all that want its node when its list has
// ended. Who wants another node under the same lock, or offers nothing, gets the lock.
func TestHolderCarriesOutWhatOthersOffer(t *testing.T) {
	oneLock(t, func(c *poolsim.Cluster, p *simenv.Process, cl *pool.Pool, a [2]pool.Addr) {
		s, g := seats(t, cl, 6), env.NewWaitGroup(p)
		must(t, s[0].s.Lock(a[0], s[0].node))
		for i := range 5 {
			w, node := &s[1+i], a[0]
			if i == 3 {
				node = a[1]
			}
			before := w.s.Counters()
			queued(p, g, func() {
				if i == 1 { // it offers nothing
					must(t, w.s.Lock(node, w.node))
					must(t, w.change(node, true))
					return
				}
				sum, answered, err := w.offer(node)
				must(t, err)
				if want := map[int]uint64{0: 2, 2: 3, 3: 1, 4: 4}[i]; answered != (i != 3) || sum != want {
					t.Errorf("waiter %d: answered %v, %d, want %d", i, answered, sum, want)
				}
				d := w.s.Counters()
				if d = d.Sub(&before); answered && d.RoundTrips != 0 {
					t.Errorf("waiter %d was answered, and has posted %d lists", i, d.RoundTrips)
				}
				if m := c.Memory(1, verbs.RegionData)[node.Offset():]; binary.LittleEndian.Uint64(m) < sum {
					t.Errorf("waiter %d was told of %d, and the memory has %d", i, sum, binary.LittleEndian.Uint64(m))
				}
			})
		}
		if sum, err := s[0].add(a[0], nil); sum != 1 || err != nil {
			t.Errorf("the holder: %d, %v", sum, err)
		}
		g.Wait(env.Forever)
		if n := cl.Combined(); n != 3 {
			t.Errorf("%d changes were carried out for others", n)
		}
		if m := c.Memory(1, verbs.RegionData); binary.LittleEndian.Uint64(m[a[0].Offset():]) != 5 {
			t.Errorf("the node has %d after 5 changes", binary.LittleEndian.Uint64(m[a[0].Offset():]))
		}
	})
}

// TestOneListIsLimited: a holder takes at most MaxTaken changes; the next one, which comes from
// those that are left, takes the others.
func TestOneListIsLimited(t *testing.T) {
	oneLock(t, func(_ *poolsim.Cluster, p *simenv.Process, cl *pool.Pool, a [2]pool.Addr) {
		const left = 3
		s, g := seats(t, cl, 1+pool.MaxTaken+left), env.NewWaitGroup(p)
		must(t, s[0].s.Lock(a[0], s[0].node))
		got := 0 // the lock
		for i := range s[1:] {
			queued(p, g, func() {
				sum, answered, err := s[1+i].offer(a[0])
				must(t, err)
				if !answered {
					got++
				}
				if want := uint64(2 + i); sum != want {
					t.Errorf("waiter %d was told of %d, want %d", i, sum, want)
				}
			})
		}
		_, err := s[0].add(a[0], nil)
		must(t, err)
		g.Wait(env.Forever)
		if n := cl.Combined(); n != pool.MaxTaken+left-1 || got != 1 {
			t.Errorf("%d changes were carried out for others, %d waiters got the lock", n, got)
		}
	})
}

// TestTakenOrWithdrawn: who gives up before the holder takes its change has changed nothing; who
// was taken waits for the answer, however late, and who is put back waits no longer than its limit.
func TestTakenOrWithdrawn(t *testing.T) {
	const limit, long = 300 * time.Microsecond, 5 * time.Millisecond
	f := func(what string, takeAfter time.Duration, refuse bool, answeredWant bool, errWant error) {
		t.Helper()
		oneLock(t, func(c *poolsim.Cluster, p *simenv.Process, cl *pool.Pool, a [2]pool.Addr) {
			s, g := seats(t, cl, 2), env.NewWaitGroup(p)
			must(t, s[0].s.Lock(a[0], s[0].node))
			s[1].s.SetLimit(limit)
			s[1].s.Begin()
			ended := false
			queued(p, g, func() {
				_, answered, err := s[1].offer(a[0])
				ended = true
				if answered != answeredWant || !errors.Is(err, errWant) {
					t.Errorf("%s: answered %v, %v", what, answered, err)
				}
			})
			p.Sleep(takeAfter)
			h := &s[0]
			n := h.s.Take(a[0])
			if took := n == 1; took != (takeAfter < limit/2) {
				t.Errorf("%s: the holder took %d", what, n)
			}
			p.Sleep(long)
			if n == 1 && ended {
				t.Errorf("%s: the operation has ended while its change was taken", what)
			}
			if refuse {
				h.s.PutBack(1)
				p.Sleep(long)
				if !ended {
					t.Errorf("%s: the operation waits on after its limit", what)
				}
			}
			binary.LittleEndian.PutUint64(h.node, uint64(1+n))
			h.s.Write(pool.Shared, a[0], h.node[:8])
			must(t, h.s.PostUnlock())
			g.Wait(env.Forever)
		})
	}
	f("taken in time", 10*time.Microsecond, false, true, nil)
	f("withdrawn", long, false, false, pool.ErrTimeout)
	f("put back too late", 10*time.Microsecond, true, false, pool.ErrTimeout)
}

// TestTakenOnceBeyondItsLimit: whose limit went by while its change was taken, and who is put back
// then, is taken by nobody else.
func TestTakenOnceBeyondItsLimit(t *testing.T) {
	oneLock(t, func(_ *poolsim.Cluster, p *simenv.Process, cl *pool.Pool, a [2]pool.Addr) {
		const limit = 300 * time.Microsecond
		s, g := seats(t, cl, 3), env.NewWaitGroup(p)
		must(t, s[0].s.Lock(a[0], s[0].node))
		s[1].s.SetLimit(limit)
		for _, w := range s[1:] {
			w.s.Begin()
			queued(p, g, func() {
				_, answered, err := w.offer(a[0])
				if late := w.s.Limit() == limit; late && !errors.Is(err, pool.ErrTimeout) || !late && (err != nil || !answered) {
					t.Errorf("an operation of at most %v: answered %v, %v", w.s.Limit(), answered, err)
				}
			})
		}
		for i, want := range []int{2, 1} {
			if n := s[0].s.Take(a[0]); n != want {
				t.Errorf("the holder took %d changes in step %d, want %d", n, i, want)
			}
			if i == 0 {
				p.Sleep(2 * limit)
				s[0].s.PutBack(3)
			}
		}
		must(t, s[0].change(a[0], true))
		g.Wait(env.Forever)
	})
}

// TestClosedHolderAnswers: a session that is closed while it has taken changes leaves nobody
// waiting for an answer.
func TestClosedHolderAnswers(t *testing.T) {
	oneLock(t, func(_ *poolsim.Cluster, p *simenv.Process, cl *pool.Pool, a [2]pool.Addr) {
		s, g := seats(t, cl, 2), env.NewWaitGroup(p)
		must(t, s[0].s.Lock(a[0], s[0].node))
		ended := false
		queued(p, g, func() {
			if _, answered, err := s[1].offer(a[0]); !answered || err == nil {
				t.Errorf("answered %v, %v", answered, err)
			}
			ended = true
		})
		if n := s[0].s.Take(a[0]); n != 1 {
			t.Errorf("%d changes are offered", n)
		}
		must(t, s[0].s.Close())
		if g.Wait(time.Minute); !ended {
			t.Error("the operation waits for a session that is closed")
		}
	})
}

// TestPutBackIsFirst: who is put back gets the lock before those that came later, with the image.
func TestPutBackIsFirst(t *testing.T) {
	oneLock(t, func(_ *poolsim.Cluster, p *simenv.Process, cl *pool.Pool, a [2]pool.Addr) {
		s, g := seats(t, cl, 5), env.NewWaitGroup(p)
		must(t, s[0].s.Lock(a[0], s[0].node))
		var sums [5]uint64
		for i := 1; i < 5; i++ {
			queued(p, g, func() {
				var err error
				sums[i], _, err = s[i].offer(a[0])
				must(t, err)
			})
		}
		sum, err := s[0].add(a[0], func(i int) bool { return i == 0 || i == 2 })
		must(t, err)
		sums[0] = sum
		g.Wait(env.Forever)
		if want := [5]uint64{1, 4, 2, 5, 3}; sums != want {
			t.Errorf("the changes were made as %v, want %v", sums, want)
		}
	})
}

// TestFailedListIsUnknownToAll: when the holder's list fails, those whose changes it had get its
// error, and no lock. Those that it did not take learn that the client is given up.
func TestFailedListIsUnknownToAll(t *testing.T) {
	oneLock(t, func(c *poolsim.Cluster, p *simenv.Process, cl *pool.Pool, a [2]pool.Addr) {
		s, g := seats(t, cl, 4), env.NewWaitGroup(p)
		must(t, s[0].s.Lock(a[0], s[0].node))
		for i := 1; i < 4; i++ {
			queued(p, g, func() {
				_, answered, err := s[i].offer(a[0])
				if err == nil || answered != (i != 2) {
					t.Errorf("waiter %d: answered %v, %v", i, answered, err)
				}
			})
		}
		must(t, c.Control(p).Fence(1, []uint32{cl.Client()}, lease))
		if _, err := s[0].add(a[0], func(i int) bool { return i == 1 }); err == nil {
			t.Error("a fenced client has changed a node")
		}
		g.Wait(env.Forever)
	})
}

// TestAnswersAreProved: a holder that has READ the node, and then writes nothing, answers what it
// took only if the lock was still its client's after that.
func TestAnswersAreProved(t *testing.T) {
	for _, fenced := range []bool{false, true} {
		oneLock(t, func(c *poolsim.Cluster, p *simenv.Process, cl *pool.Pool, a [2]pool.Addr) {
			s, g := seats(t, cl, 3), env.NewWaitGroup(p)
			must(t, s[0].s.Lock(a[0], s[0].node))
			if fenced {
				must(t, c.Control(p).Fence(1, []uint32{cl.Client()}, lease))
			}
			queued(p, g, func() {
				var what addition
				answered, err := s[1].s.LockOr(a[0], s[1].node, &what)
				if !answered || fenced != (err != nil) {
					t.Errorf("fenced %v: a change that was carried out: answered %v, %v", fenced, answered, err)
				}
			})
			queued(p, g, func() { // the lock might be handed over to it
				err := s[2].s.Lock(a[0], s[2].node)
				if err == nil {
					err = s[2].s.PostUnlock()
				}
				if fenced != (err != nil) {
					t.Errorf("fenced %v: the next session: %v", fenced, err)
				}
			})
			if n := s[0].s.Take(a[0]); n != 1 {
				t.Errorf("%d changes are offered", n)
			}
			if err := s[0].s.PostUnlock(); fenced != (err != nil) {
				t.Errorf("fenced %v: the holder: %v", fenced, err)
			}
			g.Wait(env.Forever)
		})
	}
}

// TestCombinedCounters: sessions of several clients count under the adversary, for themselves and
// for others. Nothing is lost, and each sum is told once.
func TestCombinedCounters(t *testing.T) {
	const each = 15
	combined := uint64(0)
	for seed := range seeds {
		simulate(t, seed, poolsim.Options{Servers: 1, Locks: 2}, func(c *poolsim.Cluster, p *simenv.Process) {
			mine, err := c.Open(p)
			must(t, err)
			var nodes [3]pool.Addr
			for i := range nodes {
				nodes[i], err = mine.Allocate(256, pool.Nil)
				must(t, err)
			}
			told := map[[2]uint64]bool{}
			g := env.NewWaitGroup(p)
			for n := 1; n <= 2; n++ {
				client(t, c, p, g, n, func(cl *pool.Pool) error {
					inner := env.NewWaitGroup(cl.Env())
					var errs []error
					for i, s := range seats(t, cl, 5) {
						r := rand.New(rand.NewPCG(seed, uint64(8*n+i)))
						inner.Go(fmt.Sprint("session ", i), func() {
							for range each {
								node := r.IntN(len(nodes))
								s.s.Begin()
								sum, _, err := s.offer(nodes[node])
								if told[[2]uint64{uint64(node), sum}] {
									err = errors.Join(err, fmt.Errorf("sum %d of node %d is told twice", sum, node))
								}
								told[[2]uint64{uint64(node), sum}] = true
								if err != nil {
									errs = append(errs, err)
									return
								}
							}
							errs = append(errs, s.s.Close())
						})
					}
					inner.Wait(env.Forever)
					combined += cl.Combined()
					return errors.Join(errs...)
				})
			}
			g.Wait(env.Forever)
			memory, total := c.Memory(1, verbs.RegionData), uint64(0)
			for _, a := range nodes {
				total += binary.LittleEndian.Uint64(memory[a.Offset():])
			}
			if !t.Failed() && total != 2*5*each {
				t.Errorf("seed %d: the counters are %d after %d changes", seed, total, 2*5*each)
			}
		})
	}
	if combined == 0 {
		t.Error("no session has carried out the change of another one")
	}
}
