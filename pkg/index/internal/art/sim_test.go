package art

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// simSeeds is how many runs a test makes.
const simSeeds = 40

// crowdedPlaces are few places that share nodes as much as places can.
func crowdedPlaces(r *rand.Rand) []string {
	all := map[string]bool{"": true}
	for len(all) < 60 {
		p := bytes.Repeat([]byte{'a'}, []int{0, 0, 1, MostPrefix, 2*MostPrefix + 2}[r.IntN(5)])
		for range r.IntN(4) {
			p = append(p, "\x00abcde\xff"[r.IntN(7)])
		}
		all[string(p)] = true
	}
	places := make([]string, 0, len(all))
	for p := range all {
		places = append(places, p)
	}
	slices.Sort(places)
	return places
}

// linked is what the clients of a run know of places together.
type linked struct {
	places []string
	// of each place: odd while its leaf has a slot for sure, and another number after each change
	turn []int
}

// between returns a place above low, with none = of all, and not above key that has had a leaf
// since before, and has it.
func (l *linked) between(before []int, low []byte, none bool, key []byte) (string, bool) {
	for i, p := range l.places {
		if (none || p > string(low)) && p <= string(key) && before[i] == l.turn[i] && before[i]%2 == 1 {
			return p, true
		}
	}
	return "", false
}

// TestSeedsOfBounds: beside changes by others, of the same client and of others, no fresh
// descent passes a place that has a leaf all the time.
func TestSeedsOfBounds(t *testing.T) {
	const clients, ops = 3, 30
	passed := 0 // by copies
	for seed := range uint64(simSeeds) {
		w := simenv.New(simenv.Options{Seed: seed, MaxEvents: 5_000_000, Preempt: 6})
		plan := sim.NewPlan(w.Faults(), sim.Menu{
			Kinds: []sim.Kind{sim.Freeze, sim.Drift, sim.Jump}, Processes: []string{"client-0", "client-1"}, Parts: 800, Most: 4, Longest: 10 * time.Millisecond,
		})
		c, err := poolsim.New(w, poolsim.Options{Servers: 2, Locks: 64, Fabric: sim.Options{Plan: plan}})
		if err != nil {
			t.Fatal(err)
		}
		with := Techniques{LockFreeInternal: seed%4 != 1, PathCompression: true, NodeTypes: seed%4 != 2}
		lay := alikeLayout
		if seed%2 == 0 {
			lay = loneLayout
		}
		err = w.Run(func(p *simenv.Process) {
			all := &linked{places: crowdedPlaces(rand.New(rand.NewPCG(seed, 1)))}
			all.turn = make([]int, len(all.places))
			root := pool.Nil
			g := env.NewWaitGroup(p)
			for n := range clients {
				proc := w.NewProcess(fmt.Sprintf("client-%d", n))
				made := p.NewEvent()
				proc.Go("open", func() {
					defer made.Set()
					s := openToy(func() *pool.Pool { return mustOpen(c, proc) }, panics, lay, with, root)
					root = s.Session.t.First
					if seed%3 == 0 {
						s.Session.t.OpenCache(300 << (seed % 4)) // for a few copies
					}
					for i, s := range []*toy{s, s.beside()} {
						over := p.NewEvent()
						g.Go("wait", func() { over.Wait(env.Forever) })
						proc.Go("work", func() {
							defer over.Set()
							r := rand.New(rand.NewPCG(seed, uint64(2+2*n+i)))
							for range ops {
								passed += s.step(r, all, 2*n+i, 2*clients)
							}
						})
					}
				})
				made.Wait(env.Forever)
			}
			g.Wait(env.Forever)
			proc, over := w.NewProcess("checker"), p.NewEvent()
			proc.Go("check", func() {
				defer over.Set()
				there := map[string]bool{}
				for i, n := range all.turn {
					if n%2 == 1 {
						there[all.places[i]] = true
					}
				}
				openToy(func() *pool.Pool { return mustOpen(c, proc) }, panics, lay, with, root).check(there)
			})
			over.Wait(env.Forever)
		})
		if err != nil {
			t.Fatalf("seed %d: %v\nplan %v", seed, err, plan)
		}
	}
	if passed == 0 {
		t.Error("no descent by copies passed a place that it should have met")
	}
}

func panics(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func mustOpen(c *poolsim.Cluster, p *simenv.Process) *pool.Pool {
	cl, err := c.Open(p)
	if err != nil {
		panic(err)
	}
	return cl
}

// step is an operation of session n of so many. It returns 1 if a descent by copies passed a place.
func (s *toy) step(r *rand.Rand, all *linked, n, sessions int) (passed int) {
	i := r.IntN(len(all.places))
	if r.IntN(2) == 0 && i%sessions == n { // it is this session's
		if all.turn[i]%2 == 0 {
			s.add([]byte(all.places[i]), pool.Nil)
			all.turn[i]++
		} else {
			all.turn[i]++
			s.remove([]byte(all.places[i]))
		}
		return 0
	}
	key := []byte(all.places[i])
	switch r.IntN(3) {
	case 0:
		key = append(key, '\xff', '\xff')
	case 1:
		key = append(key, 0)
	}
	fresh := r.IntN(2) == 0
	s.Begin()
	defer s.End()
	before := slices.Clone(all.turn)
	found, err := s.SeekBound(key, fresh)
	s.must(err)
	for found {
		place, ok := s.peek(s.Last().Word)
		if !ok {
			return 0 // it was taken out meanwhile
		}
		if bytes.Compare(place, key) <= 0 {
			if p, is := all.between(before, place, false, key); is && fresh {
				s.fatal("key %x leads to %x by READs, and %x has a leaf", key, place, p)
			} else if is {
				return 1
			}
			return 0
		}
		found, err = s.SeekBefore(key, fresh)
		s.must(err)
	}
	if p, is := all.between(before, nil, true, key); is && fresh {
		s.fatal("key %x leads to no leaf, and %x has one", key, p)
	} else if is {
		return 1
	}
	return 0
}
