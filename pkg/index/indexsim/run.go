// Package indexsim runs designs of package index in the simulator: a few clients on a small tree under an adversary, with the history of
// what they did checked afterwards, and the structure of the tree. One seed is one run.
package indexsim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/register"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// Run is what one run does. It follows from the seed; a plan given by the caller takes the place of the seed's own.
type Run struct {
	Design index.Design
	Seed   uint64
	Plan   *sim.Plan
}

// shape is the part of a run that is not the adversary's.
type shape struct {
	options  index.Options
	clients  int // processes
	sessions int // of each
	ops      int // of each session
	keys     int
	preload  int
	scans    int  // one of how many operations
	window   int  // of keys, in which all clients work for a while, so that they meet where leaves split; 0 = all keys
	growing  bool // more is written than deleted
	limit    time.Duration
}

// faults are those that every design survives without repair: no client dies, and no connection is lost.
var faults = []sim.Kind{sim.Freeze, sim.Freeze, sim.Drift, sim.Jump}

// Limits of an operation. The long one is far above what clients are frozen for. The short one is far above what the fabric may take for a
// list, so that no session dies of it, and below what clients are frozen for in runs that have it: so operations wait in vain for locks.
const (
	longLimit  = 5 * time.Minute
	shortLimit = 25 * time.Millisecond
)

// shapeOf draws a shape. Trees are small and nodes as small as they may be, so that splits and conflicts are frequent.
func shapeOf(r *rand.Rand) shape {
	s := shape{
		clients: 1 + r.IntN(3), sessions: 1 + r.IntN(3), ops: 20 + r.IntN(60),
		keys: []int{2, 8, 40, 150, 600}[r.IntN(5)], scans: []int{1 << 30, 4, 12}[r.IntN(3)],
		growing: r.IntN(2) == 0, limit: longLimit,
	}
	if r.IntN(4) == 0 {
		s.limit = shortLimit
	}
	if s.keys >= 40 && r.IntN(2) == 0 {
		s.window = 8 + r.IntN(32)
	}
	s.preload = r.IntN(1 + s.keys>>r.IntN(6))
	if r.IntN(2) == 0 {
		s.options = index.Options{Uint64: true, MaxValueBytes: 8 + r.IntN(24), NodeBytes: 256 << r.IntN(2)}
	} else {
		s.options = index.Options{MaxKeyBytes: 40, MaxValueBytes: 8 + r.IntN(40), NodeBytes: []int{0, 512, 640}[r.IntN(3)]}
	}
	if r.IntN(3) == 0 {
		s.options.CacheBytes = 2048 // next to nothing
	}
	return s
}

// pick draws a key. Windows change with the time of the history, so all clients go from one to the next together.
func (s *shape) pick(r *rand.Rand, h *history) string {
	if s.window == 0 {
		return s.key(r.IntN(s.keys))
	}
	start := uint64(h.clock) / uint64(8*s.window) * 0x9E3779B97F4A7C15 >> 33
	return s.key((int(start) + r.IntN(s.window)) % s.keys)
}

// draw draws what to do.
func (s *shape) draw(r *rand.Rand) register.Verb {
	if s.growing && r.IntN(2) == 0 {
		return []register.Verb{register.Lookup, register.Insert, register.Upsert}[r.IntN(3)]
	}
	return register.Verb(r.IntN(int(register.NumVerbs)))
}

func (s *shape) key(n int) string {
	if s.options.Uint64 {
		var b [8]byte
		b[7], b[6], b[0] = byte(n), byte(n>>8), byte(n%3)
		return string(b[:])
	}
	return fmt.Sprintf("%03d%*s", n, n%30, "")
}

// Report is what became of a run.
type Report struct {
	Err    error
	Plan   *sim.Plan
	Hash   uint64
	Events uint64
	Time   time.Duration // virtual
	Ops    int
	InVain int // operations that their limit ended
}

// Do does the run.
func (run Run) Do() Report {
	w := simenv.New(simenv.Options{Seed: run.Seed, Preempt: 6, MaxEvents: 20_000_000})
	random := rand.New(rand.NewPCG(run.Seed, 77))
	sh := shapeOf(random)
	var names []string
	for i := range sh.clients {
		names = append(names, fmt.Sprint("client-", i))
	}
	menu := sim.Menu{Kinds: faults, Processes: names, Parts: 20 * sh.ops * sh.sessions, Most: 4, Longest: 3 * time.Millisecond}
	if sh.limit == shortLimit {
		menu.Kinds, menu.Longest, menu.Most = []sim.Kind{sim.Freeze}, 5*shortLimit, 15
	}
	plan := sim.NewPlan(w.Faults(), menu)
	if sh.limit == shortLimit {
		plan.HoldFrozen = false // else a list of a frozen client takes longer than its queue pair lives
	}
	if run.Plan != nil {
		plan = run.Plan
	}
	rep := Report{Plan: plan}
	c, err := poolsim.New(w, poolsim.Options{Servers: 1 + random.IntN(3), ChunkBytes: 256 << 10, Locks: 64, Fabric: sim.Options{Plan: plan}})
	if err != nil {
		rep.Err = err
		return rep
	}
	h := &history{}
	rep.Err = w.Run(func(p *simenv.Process) {
		if err := run.body(c, p, &sh, h, random); err != nil {
			w.Fail(err)
		}
	})
	if rep.Err == nil {
		rep.Err = h.check()
	}
	rep.Hash, rep.Events, rep.Time, rep.Ops, rep.InVain = w.Hash(), w.Events(), w.Now(), len(h.ops)+len(h.scans), h.inVain
	return rep
}

// body is what happens in the world.
func (run Run) body(c *poolsim.Cluster, p *simenv.Process, sh *shape, h *history, random *rand.Rand) error {
	first, err := run.open(c, p, sh)
	if err != nil {
		return err
	}
	if err := preload(first, sh, h, random); err != nil {
		return err
	}
	g := env.NewWaitGroup(p)
	for i := range sh.clients {
		proc := p.World().NewProcess(fmt.Sprint("client-", i))
		done, seed := p.NewEvent(), random.Uint64()
		proc.Go("main", func() {
			defer done.Set()
			if err := run.client(c, proc, sh, h, i, seed); err != nil {
				p.World().Fail(fmt.Errorf("client %d: %w", i, err))
			}
		})
		g.Go(fmt.Sprint("wait for client ", i), func() { done.Wait(env.Forever) })
	}
	g.Wait(env.Forever)
	if err := locksFree(c); err != nil {
		return err
	}
	checker, ok := first.(index.Checker)
	if !ok {
		return errors.New("the design has no checker")
	}
	if _, err := checker.Check(); err != nil {
		return fmt.Errorf("check of the structure: %w", err)
	}
	return final(first, sh, h)
}

// locksFree says whether nobody holds a lock when nobody works.
func locksFree(c *poolsim.Cluster) error {
	for id := range c.Options.Servers {
		for i, b := range c.Memory(uint16(id+1), verbs.RegionLocks) {
			if b != 0 {
				return fmt.Errorf("byte %d of the locks of memory server %d is %#x when all work is done", i, id+1, b)
			}
		}
	}
	return nil
}

func (run Run) open(c *poolsim.Cluster, p *simenv.Process, sh *shape) (index.Index, error) {
	cl, err := c.Open(p)
	if err != nil {
		return nil, err
	}
	return run.Design.Open(cl, sh.options)
}

// preload inserts the first keys.
func preload(x index.Index, sh *shape, h *history, random *rand.Rand) error {
	s, err := x.Session()
	if err != nil {
		return err
	}
	s.SetLimit(longLimit)
	for _, k := range random.Perm(sh.keys)[:sh.preload] {
		if err := h.do(s, 0, register.Input{Verb: register.Upsert, Key: sh.key(k), Value: fmt.Sprint(k)}); err != nil {
			return err
		}
	}
	return s.Close()
}

// client is one process.
func (run Run) client(c *poolsim.Cluster, p *simenv.Process, sh *shape, h *history, number int, seed uint64) error {
	x, err := run.open(c, p, sh)
	if err != nil {
		return err
	}
	g := env.NewWaitGroup(p)
	errs := make([]error, sh.sessions)
	for i := range sh.sessions {
		g.Go(fmt.Sprint("session ", i), func() {
			errs[i] = work(x, sh, h, 1+number*sh.sessions+i, rand.New(rand.NewPCG(seed, uint64(i))))
		})
	}
	g.Wait(env.Forever)
	return errors.Join(errors.Join(errs...), x.Close())
}

// work is one session.
func work(x index.Index, sh *shape, h *history, id int, r *rand.Rand) error {
	s, err := x.Session()
	if err != nil {
		return err
	}
	s.SetLimit(sh.limit)
	for n := range sh.ops {
		if r.IntN(sh.scans) == 0 {
			start := sh.pick(r, h)
			if r.IntN(3) == 0 {
				start = ""
			}
			if err := h.scan(s, start, 1+r.IntN(sh.keys+10), r.IntN(2) == 0); err != nil && !sh.inVain(h, err) {
				return err
			}
			continue
		}
		in := register.Input{Verb: sh.draw(r), Key: sh.pick(r, h)}
		if in.Verb.Changes() {
			in.Value = fmt.Sprintf("%d.%d", id, n)
			in.Value += fmt.Sprintf("%*s", r.IntN(sh.options.MaxValueBytes-len(in.Value)+1), "")
		}
		if err := h.do(s, id, in); err != nil && !sh.inVain(h, err) {
			return err
		}
	}
	return s.Close()
}

// inVain says whether err is that of an operation whose limit ended it. It has changed nothing, so it is not in the history: if it did
// change something, somebody reads what nobody wrote.
func (s *shape) inVain(h *history, err error) bool {
	if s.limit != shortLimit || !errors.Is(err, index.ErrTimeout) {
		return false
	}
	h.inVain++
	return true
}

// final changes and reads everything, by point and by scan.
func final(x index.Index, sh *shape, h *history) error {
	s, err := x.Session()
	if err != nil {
		return err
	}
	s.SetLimit(longLimit)
	for k := range sh.keys {
		if err := h.do(s, 0, register.Input{Verb: register.Lookup, Key: sh.key(k)}); err != nil {
			return err
		}
		if k%5 == 0 {
			if err := h.do(s, 0, register.Input{Verb: register.Update, Key: sh.key(k), Value: fmt.Sprint("last", k%1000)}); err != nil {
				return err
			}
		}
	}
	return errors.Join(h.scan(s, "", 1<<20, false), h.scan(s, "", 1<<20, true), s.Close())
}
