package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/env/simenv/simtest"
	"github.com/dmindex/dmindex/pkg/keyrange"
	"github.com/dmindex/dmindex/pkg/partition"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// ownRun is one run.
type ownRun struct {
	seed  uint64
	wrong mistake
	dex   bool // the index is no toy

	groups bool // programs send groups

	sets  bool // programs use sorted sets
	fault *setMistake

	doomed int // there is no trouble but this: so many takers die in a row
}

// ownReport is what became of it.
type ownReport struct {
	err                                                                                    error
	hash                                                                                   uint64
	acks, failed, grants, orphans, replays, gives, swaps, thaws, deaths, confirmed, lapses int
	leveled, scaled, joined, blocks, doomed, logs, deferred, forgotten, crowded            int
	wide                                                                                   wideWorld
	additions                                                                              additions
	grouped                                                                                groupWorld
	sets                                                                                   setsWorld
}

func (r ownRun) do() ownReport {
	world := simenv.New(simenv.Options{Seed: r.seed, Preempt: 4 + int(r.seed%8), MaxEvents: 20_000_000})
	random := rand.New(rand.NewPCG(r.seed, 79))
	plan := sim.NewPlan(world.Faults(), sim.Menu{})
	kinds := []int{1, 2, 12, 12}[random.IntN(4)]
	if kinds == 1 {
		plan.HoldFrozen, plan.Delay, plan.Gap = true, 10_000, 20_000
	}
	w := &ownWorld{
		Stage: &simtest.Stage{World: world, Random: random, Drift: ownDrift}, fabric: sim.New(world, sim.Options{Plan: plan, Flaws: sim.Flaws{Control: r.wrong == unmirrored}}), wrong: r.wrong, calm: r.seed%8 == 7 || r.dex && r.seed%16 == 14,
		log: &history{doubts: map[int]int{}}, granted: map[uint64]bool{}, serving: map[*simenv.Process]int{}, desired: 1 + random.IntN(4), kinds: kinds,
	}
	if r.dex {
		w.dex = newDexShape(r.seed, random)
		// Where all die in a row, nobody lives long enough to adopt the chunks of the dead, and few
		// ids would be used up. Nor are they few with a mistake, which that could be taken for.
		if r.seed/2%4 == 1 && r.doomed == 0 && r.wrong == noMistake {
			w.ids = fewIDs
			if additionsOf(r).left > 0 {
				w.ids += 2 // whoever dies leaves chunks on more servers, which have to be adopted
			}
		}
	}
	w.holdings = fewHoldings(r)
	w.scarce = scarcityOf(r)
	w.calm = w.calm || w.scarce.calm(r) || calmHoldings(w.holdings)
	if w.newLoadWorld(); r.sets {
		w.newSets(r)
	}
	if w.holdings > 0 {
		w.load.held = 1
	}
	switch {
	case r.doomed > 0:
		// few requests, as many have no outcome
		w.calm, w.doom, w.load.slowly = true, doom{left: r.doomed, only: true}, true
	case r.seed/2%8 == 1, r.seed/2%8 == 6: // the latter with long values in blocks
		w.doom.left = 2 + int(r.seed/16%16)
	}
	if r.dex && !r.groups && !r.sets { // scans know all keys that there are
		w.newWide(r.seed)
	}
	for range 1 + random.IntN(3) {
		w.newMemory()
	}
	if w.additions = additionsOf(r); w.additions.left > 0 {
		w.additions.made = len(w.memory)
	}
	err := world.Run(func(p *simenv.Process) {
		w.main = p
		for _, m := range w.memory {
			w.serve(m)
		}
		for range w.desired {
			w.newPod()
		}
		for n := range 2 {
			w.operator(n)
		}
		w.settle("the beginning")
		w.begun = true
		failed := w.log.failed
		programs := 2 + random.IntN(5)
		if w.sets.is {
			w.beginSets()
			programs = 1
		}
		for n := range programs {
			if w.wide.is {
				w.wideProgram(n)
			} else {
				w.program(n)
			}
		}
		if w.wide.moving {
			w.mover()
		}
		for n := range groupPrograms {
			if r.groups {
				w.groupProgram(n)
			}
		}
		p.Go("scale", w.scale)
		if w.additions.left > 0 {
			p.Go("add", w.add)
			w.lateFences()
		}
		if w.dex == nil {
			p.Go("watch", w.watch)
		} else {
			p.Go("watch", w.watchLogs)
		}
		if !w.calm {
			p.Go("trouble", w.trouble)
		}
		w.meetDoom()
		p.Sleep(4*time.Second + w.UpTo(6*time.Second))
		if w.load.hot >= 0 && !w.sets.is {
			p.Sleep(8 * time.Second)
		}
		w.load.slowly = w.load.auto
		if !w.sets.is {
			p.Sleep(4*time.Second + w.UpTo(6*time.Second))
		}
		w.quiet = true
		w.heal()
		if w.calm && !w.doom.only && w.log.failed != failed {
			w.Report("%d requests failed though there was no trouble: %s", w.log.failed-failed, w.log.reason)
		}
		w.settle("the end of all trouble")
		w.awaitJoins()
		if w.dex != nil {
			w.checkTree()
			w.awaitLogs()
		}
		if r.groups {
			w.judgeGroups()
		}
		if w.sets.is {
			w.judgeSets()
		}
		w.over = true
		w.judge()
	})
	c := w.counts
	rep := ownReport{errors.Join(w.Problem, err), world.Hash(), w.log.acks, w.log.failed, c.grants, c.orphans, c.replays, c.gives, c.swaps, c.thaws, c.deaths, c.confirmed, c.lapses, w.load.leveled, w.load.scaled, w.load.joined, c.blocks, w.doom.done, w.doom.most, c.deferred, c.forgotten, c.crowded, w.wide, w.additions, w.groups, w.sets}
	if w.Problem != nil {
		rep.err = fmt.Errorf("seed %d: %w", r.seed, w.Problem)
	}
	return rep
}

// settleBound is within which time after all trouble each key is served by every server.
const settleBound = 60 * time.Second

// settle waits until every key can be read and written at every server.
func (w *ownWorld) settle(after string) {
	why := errors.New("no compute server")
	begun := w.Now()
	for w.Now()-begun < settleBound {
		w.main.Sleep(200 * time.Millisecond)
		all := w.living()
		if len(all) < w.desired {
			continue
		}
		why = nil
		batch := 1
		if w.wide.is {
			batch = 32
		}
		for n := 0; n < w.keys() && why == nil; n += batch {
			d := all[w.Random.IntN(len(all))]
			var reads, writes []asked
			for key := n; key < min(n+batch, w.keys()); key++ {
				reads = append(reads, asked{key: key, kind: rpcv1.Operation_LOOKUP})
				if w.OneIn(2) && (!w.wide.is || !w.begun || w.OneIn(4)) {
					writes = append(writes, asked{key: key, kind: rpcv1.Operation_UPSERT, value: uint32(w.log.clock+int64(key-n))<<8 | 0xFF})
				}
			}
			if why = w.requests(w.main, 100, d, reads, 3*ownLimit); why == nil {
				why = w.requests(w.main, 100, d, writes, 3*ownLimit)
			}
		}
		if why == nil && w.wide.is {
			why = w.scan(w.main, 100, all[w.Random.IntN(len(all))], 0, w.keys(), w.OneIn(2), false, 0)
		}
		if why == nil {
			return
		}
	}
	var b strings.Builder
	for _, d := range w.pods {
		if d.core != nil {
			fmt.Fprintf(&b, "\n  %s: generation %d, ready %v, engine: %v", d.name, d.core.View.Generation(), d.ready, d.core.Sessions.State())
			if h := d.core.manager.Load(); h != nil {
				for _, s := range h.Status() {
					fmt.Fprintf(&b, "\n    %s %s epoch %d %s", partition.Interval(s.Start, s.End), s.State, s.Epoch, s.Reason)
				}
			}
		}
	}
	if bare := w.memory[0].bare; bare != nil {
		held, _ := bare.Holdings(ownIndex)
		for _, h := range held {
			fmt.Fprintf(&b, "\n  home: %s client %d (%s, fenced %v) epoch %d, %d inherited", partition.Interval(h.Start, h.End), h.Client, h.Name, h.Fenced, h.Epoch, len(h.Inherits))
		}
		_, encoded, _ := bare.Map(ownIndex)
		if m, err := partition.Unmarshal(encoded); err == nil {
			fmt.Fprintf(&b, "\n  %s", partition.Describe(nil, m))
		}
	}
	w.Report("%v after %s not every key is served: %v%s", settleBound, after, why, b.String())
}

// watch looks at the pages: once a grant is settled, nobody writes a page of its keys under an
// earlier one.
func (w *ownWorld) watch() {
	var words, settled [toyKeys]uint64
	for !w.over {
		w.main.Sleep(w.UpTo(5 * time.Millisecond))
		var held []pool.Held
		if b := w.memory[0].bare; b != nil {
			// it may wait for what changes them: the pages are looked at behind it
			held, _ = b.Holdings(ownIndex)
		}
		for n := range toyKeys {
			m := w.memory[n%len(w.memory)]
			word := binary.LittleEndian.Uint64(m.memory[0].Bytes[ownPagesAt+8*n:])
			if word != words[n] && word>>48 < settled[n] {
				w.Report("key %d is written under epoch %d, when that of epoch %d is settled", n, word>>48, settled[n])
			}
			words[n] = word
		}
		clear(settled[:])
		for _, h := range held {
			for n := range toyKeys {
				if _, _, ok := keyrange.Intersect(h.Start, h.End, toyKey(n), append(toyKey(n), 0)); ok && len(h.Inherits) == 0 {
					settled[n] = h.Epoch
				}
			}
		}
	}
}
