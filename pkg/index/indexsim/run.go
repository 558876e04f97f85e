// Package indexsim runs designs of package index in the simulator: a few clients on a small tree
// under an adversary, with the history of what they did checked afterwards, and the structure of
// the tree. One seed is one run.
package indexsim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/register"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// Run is what one run does. It follows from the seed; a plan given by the caller takes the place of
// the seed's own.
type Run struct {
	Design index.Design
	Seed   uint64
	Plan   *sim.Plan
	Fresh  bool      // memory was not used before: what a seed stood for before it was
	Flaws  sim.Flaws // of mirrored servers, put in on purpose
}

// faults are those in which no client dies, and no connection is lost: nothing may fail. deadly are
// the others; freezing goes on for longer than a lease there.
var (
	faults = []sim.Kind{sim.Freeze, sim.Freeze, sim.Drift, sim.Jump}
	deadly = []sim.Kind{sim.Crash, sim.Crash, sim.Crash, sim.Drop, sim.Restart, sim.Freeze, sim.Jump}
)

// Limits of an operation. The long one is far above what clients are frozen for. The short one is
// far above what the fabric may take for a list, so that no session dies of it, and below what
// clients are frozen for in runs that have it: so operations wait in vain for locks.
const (
	longLimit  = 5 * time.Minute
	shortLimit = 25 * time.Millisecond
)

// Report is what became of a run.
type Report struct {
	Err               error
	Plan              *sim.Plan
	Hash              uint64
	Events            uint64
	Time              time.Duration // virtual
	Ops               int
	InVain            int    // operations that their limit ended
	Refused           int    // for want of memory
	Merged, Reclaimed uint64 // nodes
	Combined          uint64 // changes that a session carried out for another one
	Delegated         uint64 // READs that a session made for another one
	Sweeps, Swept     int    // sweeps, and nodes of clients that died
	FailOvers, Again  int    // of memory servers; before all clients had heard of the last one
	Undone            int    // changes that they lost
}

// Do does the run.
func (run Run) Do() Report {
	w := simenv.New(simenv.Options{Seed: run.Seed, Preempt: 6, MaxEvents: 20_000_000})
	random := rand.New(rand.NewPCG(run.Seed, 77))
	sh := shapeOf(random)
	sh.switches = switchesOf(run.Seed)
	sh.half = halfOf(run.Seed, &sh)
	sh.options.InlineBytes = inlineOf(run.Seed, &sh.options)
	chunkBytes, chunks := memoryOf(run.Seed, &sh)
	if run.Design.Name == "dolphin" { // its leaves have two forms
		shorten(run.Seed, &sh)
	}
	crowd(run.Seed, &sh)
	if slices.Contains(run.Design.Switches, "nodeTypes") { // SMART and Dolphin, which sweep
		sweepsOf(run.Seed, &sh)
		sh.hoards = sh.switches != nil && sh.lease > 0
	}
	if slices.Contains(run.Design.Switches, "hopscotchLeaf") {
		span(run.Seed, &sh)
	}
	sh.options.Neighbourhood = neighbourhoodOf(run.Design, run.Seed)
	if !slices.Contains(run.Design.Switches, "writeCombining") {
		// Nobody carries out what others wait for: a key that more sessions change at once has
		// histories which take too long to judge.
		sh.sessions = min(sh.sessions, 12/sh.clients)
	}
	sh.bulk = sh.preload > 0 && rand.New(rand.NewPCG(run.Seed, 79)).IntN(4) == 0
	var names []string
	for i := range sh.clients {
		names = append(names, fmt.Sprint("client-", i))
	}
	menu := sim.Menu{Kinds: faults, Processes: names, Parts: 20 * sh.ops * sh.sessions, Most: 4, Longest: 3 * time.Millisecond}
	if sh.limit == shortLimit {
		menu.Kinds, menu.Longest, menu.Most = []sim.Kind{sim.Freeze}, 5*shortLimit, 15
	}
	if sh.lease > 0 {
		menu.Kinds, menu.Longest, menu.Most = sim.OrFailOvers(run.Seed, run.Flaws, deadly...), 2*sh.lease, 5
		if !sh.full && !sh.hoards {
			// Each session opens a client of its own when a memory server fails over or restarts.
			// Those before have their chunks until their leases end.
			chunks *= 3
		}
	}
	plan := sim.NewPlan(w.Faults(), menu)
	if sh.limit == shortLimit {
		// else a list of a frozen client takes longer than its queue pair lives
		plan.HoldFrozen = false
	}
	if run.Plan != nil {
		plan = run.Plan
	}
	rep := Report{Plan: plan}
	c, err := poolsim.New(w, poolsim.Options{Servers: 1 + random.IntN(3), ChunkBytes: chunkBytes, Chunks: chunks, Locks: 64, Lease: sh.lease, RenewEvery: sh.renew, NamesAlone: run.Seed%8 == 5, Fabric: sim.Options{Plan: plan, Flaws: run.Flaws}})
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
	if rep.Err == nil && h.misled > 0 {
		rep.Err = fmt.Errorf("clients came %d times to a leaf that begins above the key: memory was used again too early", h.misled)
	}
	rep.Hash, rep.Events, rep.Time, rep.Ops, rep.InVain, rep.Refused = w.Hash(), w.Events(), w.Now(), len(h.ops)+len(h.scans), h.inVain, h.refused
	rep.Sweeps, rep.Swept = h.sweeps, h.swept
	rep.FailOvers, rep.Again, rep.Undone = c.Fabric.FailOvers()
	rep.Merged, rep.Reclaimed, rep.Combined, rep.Delegated = h.merged, h.reclaimed, h.combined, h.delegated
	return rep
}

// body is what happens in the world.
func (run Run) body(c *poolsim.Cluster, p *simenv.Process, sh *shape, h *history, random *rand.Rand) error {
	if sh.used = !run.Fresh && !sh.full; sh.used {
		if err := predecessor(c, p, usedSizes(sh.options.NodeBytes)); err != nil {
			return err
		}
	}
	first, err := run.open(c, p, sh)
	if err != nil {
		return err
	}
	g := env.NewWaitGroup(p)
	var loaded error
	if sh.bulk {
		h.loading = true
		keys := random.Perm(sh.keys)[:sh.preload]
		g.Go("bulk load", func() { loaded = bulkLoad(first, sh, h, keys) })
	} else if err := preload(first.index, sh, h, random); err != nil {
		return err
	}
	if sh.half != nil {
		p.Go("fence on one server", func() { fenceHalf(c, p, sh, first.pool.Client()) })
	}
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
	sh.half = nil
	if loaded != nil {
		return loaded
	}
	c.Fabric.EndFaults() // clients go on to reclaim memory, and what comes now may not fail
	h.count(first)
	last := first
	if sh.lease > 0 {
		p.Sleep(2 * sh.lease) // whoever died is fenced by then
		// With nothing in its cache, a new client meets every node, and repairs it.
		if last, err = run.open(c, p, sh); err != nil {
			return err
		}
	}
	if err := final(last.index, sh, h); err != nil {
		return err
	}
	for range 100 { // reclamation takes locks, too, and gives them back
		if err = locksFree(c, sh.lease > 0); err == nil {
			break
		}
		p.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		return err
	}
	swept := h.lastSweeps(c, p, sh, last)
	checker, ok := last.index.(index.Checker)
	if !ok {
		return errors.New("the design has no checker")
	}
	found, err := checker.Check()
	if err != nil {
		return fmt.Errorf("check of the structure: %w", err)
	}
	return h.account(c, checker, &found, sh.lease > 0, swept)
}

// fenceHalf fences clients, but for the first one, on a memory server, which the others learn only
// when their leases there are over, or the client gives up. Where a client takes longer to open the
// index than the next fence is away, nobody would ever get on. So it does that a limited number of
// times.
func fenceHalf(c *poolsim.Cluster, p *simenv.Process, sh *shape, first uint32) {
	r := sh.half
	for n := 0; n < halfFences && sh.half != nil; n++ {
		p.Sleep(time.Duration(1+r.IntN(400)) * sh.lease / 100)
		server, client := uint16(1+r.IntN(c.Options.Servers)), c.Newest()-uint32(r.IntN(4))
		if sh.half != nil && client > first && client <= c.Newest() {
			_ = c.Control(p).Fence(server, []uint32{client}, sh.lease)
		}
	}
}

// halfFences is how often fenceHalf fences a client.
const halfFences = 64

// locksFree reports whether nobody holds a lock when nobody works. After deaths there are locks to
// repair.
func locksFree(c *poolsim.Cluster, deaths bool) error {
	for id := range c.Options.Servers {
		locks := c.Memory(uint16(id+1), verbs.RegionLocks)
		for at := 0; at < len(locks); at += 2 {
			holder := binary.NativeEndian.Uint16(locks[at:])
			if holder != 0 && !(deaths && holder == pool.Repair) {
				return fmt.Errorf("the lock at byte %d of memory server %d says %#x when all work is done", at, id+1, holder)
			}
		}
	}
	return nil
}

// opened is an index with the pool that it is in.
type opened struct {
	index index.Index
	pool  *pool.Pool
}

func (run Run) open(c *poolsim.Cluster, p *simenv.Process, sh *shape) (opened, error) {
	cl, err := c.Open(p)
	if err != nil {
		return opened{}, err
	}
	o := sh.options
	if sh.switches != nil {
		o.Switches = map[string]bool{}
		for _, name := range run.Design.Switches {
			o.Switches[name] = sh.switches.IntN(2) == 0
		}
	}
	x, err := run.Design.Open(cl, o)
	if err != nil {
		return opened{}, errors.Join(err, cl.Close())
	}
	if sh.used {
		// an error is of a client that died, and so is the next one
		_ = UseMemory(cl, usedSizes(sh.options.NodeBytes), usedNodes)
	}
	return opened{x, cl}, nil
}

// preload inserts the first keys.
func preload(x index.Index, sh *shape, h *history, random *rand.Rand) error {
	s, err := x.Session()
	if err != nil {
		return err
	}
	s.SetLimit(longLimit)
	for _, k := range random.Perm(sh.keys)[:sh.preload] {
		if err := h.do(s, 0, register.Input{Verb: register.Upsert, Key: sh.key(k), Value: fmt.Sprint(k)}); err != nil && !sh.refused(h, err) {
			return err
		}
	}
	return s.Close()
}

// bulkLoad loads the keys. To the history it is an upsert of each.
func bulkLoad(x opened, sh *shape, h *history, keys []int) error {
	defer func() { h.loading = false }()
	sort.Slice(keys, func(i, j int) bool { return sh.key(keys[i]) < sh.key(keys[j]) })
	from := len(h.ops)
	for _, k := range keys {
		in := register.Input{Verb: register.Upsert, Key: sh.key(k), Value: fmt.Sprint(k)}
		h.ops = append(h.ops, porcupine.Operation{Input: in, Call: h.tick(), Output: register.Output{Unknown: true}, Return: register.Never})
	}
	err := x.index.BulkLoad(func(yield func(key, value []byte) bool) error {
		for i, o := range h.ops[from : from+len(keys)] {
			if sh.used && i%16 == 8 {
				Garbage(x.pool, sourceWaits)
			}
			if in := o.Input.(register.Input); !yield([]byte(in.Key), []byte(in.Value)) {
				break
			}
		}
		return nil
	}, 1+sh.sessions)
	for i := from; i < from+len(keys); i++ {
		switch {
		case err == nil:
			h.ops[i].Output, h.ops[i].Return = register.Output{}, h.tick()
		case !errors.Is(err, index.ErrUnknown):
			h.ops[i].Input = nil
		}
	}
	if err != nil && (sh.lease > 0 && isDead(err) || sh.refused(h, err)) {
		return nil
	}
	return err
}

// client is one process.
func (run Run) client(c *poolsim.Cluster, p *simenv.Process, sh *shape, h *history, number int, seed uint64) error {
	x, err := run.openAgain(c, p, sh)
	if err != nil {
		return err
	}
	stop := (&sweeping{p, x}).sweepBeside(sh, h)
	g := env.NewWaitGroup(p)
	errs := make([]error, sh.sessions)
	for i := range sh.sessions {
		w := worker{run: run, c: c, p: p, sh: sh, h: h, x: x, id: 1 + number*sh.sessions + i, rand: rand.New(rand.NewPCG(seed, uint64(i)))}
		g.Go(fmt.Sprint("session ", i), func() { errs[i] = w.work() })
	}
	g.Wait(env.Forever)
	stop()
	h.count(x)
	return errors.Join(errs...)
}

// openAgain opens the index, again and again where connections are lost meanwhile.
func (run Run) openAgain(c *poolsim.Cluster, p *simenv.Process, sh *shape) (x opened, err error) {
	for range 20 {
		if x, err = run.open(c, p, sh); err == nil || sh.lease == 0 {
			return x, err
		}
		p.Sleep(sh.lease / 4)
	}
	return x, fmt.Errorf("open the index: %w", err)
}

// inVain reports whether err is that of an operation whose limit ended it. It has changed nothing.
func (s *shape) inVain(h *history, err error) bool {
	if s.limit != shortLimit || !errors.Is(err, index.ErrTimeout) {
		return false
	}
	h.inVain++
	return true
}

// refused reports whether err is that of an operation for which there was no memory. It has changed
// nothing: the history does not have it.
func (s *shape) refused(h *history, err error) bool {
	if !s.full && !s.hoards || !errors.Is(err, index.ErrPoolFull) {
		return false
	}
	h.refused++
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
			if err := h.do(s, 0, register.Input{Verb: register.Update, Key: sh.key(k), Value: fmt.Sprint("last", k%1000)}); err != nil && !sh.refused(h, err) {
				return err
			}
		}
	}
	return errors.Join(h.scan(s, "", 1<<20, false), h.scan(s, "", 1<<20, true), s.Close())
}
