package sim

import (
	"github.com/dmindex/dmindex/pkg/verbs"
)

// abandon is what happens when the owner dies or its connection is lost: what is under way goes on,
// all of it or for a while, or stops at once; what a process on shm has under way stops with it.
func (f *flight) abandon() {
	if f.stopped || f.left == 0 {
		return
	}
	for i := range f.parts { // the buffers are the owner's again
		if p := &f.parts[i]; p.r.Op != verbs.Write {
			p.r.Local = make([]byte, len(p.r.Local))
		}
	}
	r := f.enemy.rand
	switch {
	case f.enemy.plan.HoldFrozen && f.qp.conn.device.process.Dead(), r.IntN(3) == 0:
		f.stop()
	case r.IntN(2) == 0:
		f.budget = 1 + r.IntN(8)
	}
}

// stop lets nothing of the flight take effect after this call. Blocks of WholeWrite bytes of a
// WRITE, counted from its start, are there whole or not at all, so those that are begun are ended.
func (f *flight) stop() {
	w := f.enemy.fabric.world
	if f.stopped {
		return
	}
	f.stopped = true
	w.Cancel(&f.answer)
	for i := range f.parts {
		p := &f.parts[i]
		w.Cancel(&p.timer)
		switch {
		case p.state != begun:
		case p.r.Op.Atomic():
			if p.next == 1 && f.enemy.rand.IntN(2) == 0 {
				p.store()
			} else {
				p.leave()
			}
		case p.r.Op == verbs.Write && p.next > 0:
			p.completeBlocks()
		}
	}
}

// completeBlocks serves what is missing of blocks of which something was served. A server that dies
// ends words only, unless its WRITEs are whole always.
func (p *part) completeBlocks() {
	e := p.flight.enemy
	whole := e.plan.Capabilities.WholeWrite
	if p.flight.qp.conn.server.dying && !e.plan.Capabilities.WholeAlways {
		whole = 8
	}
	block := func(i int) int {
		from, _ := e.bounds(&p.r, i, 1)
		return from / whole
	}
	begun := map[int]bool{}
	for i := range p.at {
		if int(p.at[i]) < p.next {
			begun[block(i)] = true
		}
	}
	p.checkReach()
	for i := range p.at {
		if int(p.at[i]) >= p.next && begun[block(i)] {
			p.move(i, i+1)
		}
	}
}
