package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// flight is a list under way in the hands of the adversary. A queue pair uses its last one again
// for the next list where nothing else can refer to it.
type flight struct {
	enemy   *adversary
	qp      *qp
	parts   []part
	left    int // requests that are not through
	known   bool
	stopped bool
	budget  int          // how many parts may still be served; negative = all
	answer  simenv.Timer // tells the owner that all is through
	mirrored
}

// part is a request of a flight: its words are served at one moment or several.
type part struct {
	flight  *flight
	r       verbs.Request
	data    []byte // of a WRITE, as it was posted
	at      []uint8
	moments int
	next    int // moment
	state   state
	timer   simenv.Timer

	old    uint64 // of an atomic that has read its word and not yet written it
	behind []*part

	kept map[int]bool // blocks of a WRITE that the server's copy has
}

// mirrored are positions of changes on a server that has a copy: see Mirror.
type mirrored struct {
	need    int // which the answer waits for
	made    int // the last one of its own
	swapped int // the last one of its own by an atomic
	saw     int // the last one of another list whose words it READ or compared
}

type state uint8

const (
	waiting state = iota
	begun
	through
)

// launch starts a list.
func (e *adversary) launch(q *qp, list []verbs.Request) *flight {
	f := q.flight
	if !f.over() {
		f = &flight{enemy: e, qp: q, parts: make([]part, len(list))}
		f.answer.Do = f.tell
	}
	f.left, f.budget, f.known = len(list), -1, false
	if cap(f.parts) < len(list) {
		f.parts = make([]part, len(list))
	}
	f.parts = f.parts[:len(list)]
	for i := range list {
		p := &f.parts[i]
		if p.flight == nil {
			p.flight, p.timer.Do = f, p.serve
		}
		p.r, p.data, p.next, p.state = list[i], p.data[:0], 0, waiting
		n := 1
		switch p.r.Op {
		case verbs.Write:
			p.data = append(p.data, p.r.Local...)
			n = e.units(&p.r)
		case verbs.Read:
			n = e.units(&p.r)
			scribble(p.r.Local)
		case verbs.Call:
			p.data = append(p.data, p.r.Local[:p.r.Args]...)
			scribble(p.r.Local)
		}
		p.at = slices.Grow(p.at[:0], n)[:n]
		p.moments = e.tear(n, p.r.Op == verbs.Write && e.plan.Capabilities.OrderedWrite, p.at)
	}
	f.begin()
	return f
}

// over reports whether nothing of f is under way, and nobody remembers its parts: a server that has
// a copy does.
func (f *flight) over() bool {
	return f != nil && f.known && f.left == 0 && !f.stopped && f.qp.conn.server.journal == nil
}

// scribble spoils the buffer of a READ, which is the fabric's until the wait has ended.
func scribble(b []byte) {
	for len(b) > 0 {
		b = b[copy(b, scribbled):]
	}
}

var scribbled = bytes.Repeat([]byte{0xA5}, 4096)

// begin schedules the requests that may begin.
func (f *flight) begin() {
	for i := range f.parts {
		p := &f.parts[i]
		if p.state == waiting && f.mayBegin(i) {
			p.state = begun
			p.in(f.enemy.fabric.model.BaseRTT/2 + f.enemy.delay())
		}
	}
}

// in schedules the next moment of p.
func (p *part) in(d time.Duration) {
	f := p.flight
	var owner *simenv.Process
	if f.enemy.plan.HoldFrozen {
		owner = f.qp.conn.device.process
	}
	w := f.enemy.fabric.world
	w.Schedule(&p.timer, w.Now()+d, owner)
}

// mayBegin reports whether G1 lets request i take effect now. Without Reorder everything waits for
// all before it.
func (f *flight) mayBegin(i int) bool {
	r := &f.parts[i].r
	for j := range i {
		before := &f.parts[j]
		if before.state == through {
			continue
		}
		b := &before.r
		switch {
		case !f.enemy.plan.Reorder,
			b.Op == verbs.Write,                  // before anything after it
			r.Fence,                              // and the READs and atomics before it
			b.Op.Atomic() && r.Op != verbs.Write, // before a later READ or atomic
			b.Op == verbs.Read && r.Op == verbs.Read && // only by capability
				f.enemy.plan.Capabilities.OrderedReads:
			return false
		}
	}
	return true
}

// serve is one moment of p.
func (p *part) serve() {
	f := p.flight
	w := f.enemy.fabric.world
	w.Note(p.r.Remote<<8 | uint64(p.next))
	if p.r.Op == verbs.Call {
		p.call()
		return
	}
	if p.r.Op.Atomic() {
		if !p.atomic() {
			return
		}
	} else {
		p.checkReach()
		for from, to := p.run(0); from < to; from, to = p.run(to) {
			p.move(from, to)
		}
		p.next++
		if p.next == p.moments {
			p.end()
		} else {
			p.in(f.enemy.gap())
		}
	}
	f.count()
}

// count counts a part that was served.
func (f *flight) count() {
	if f.budget > 0 {
		f.budget--
	}
	if f.budget == 0 {
		f.stop()
	}
	f.enemy.served(f.qp)
}

// checkReach panics where a server that checks requests would refuse p: nobody here means to reach
// what is not granted.
func (p *part) checkReach() {
	if c := p.flight.qp.conn; !c.reach.Allows(p.r.Region, p.r.Remote, len(p.r.Local)) {
		panic(fmt.Sprintf("sim: client %d of index %s: %v of %d bytes at %d:%#x, which is not granted to it",
			c.peer.Client, c.peer.Index, p.r.Op, len(p.r.Local), p.r.Region, p.r.Remote))
	}
}

// run is the first run of units, from one on, that are served at this moment; none is empty.
func (p *part) run(first int) (from, to int) {
	i := bytes.IndexByte(p.at[first:], uint8(p.next))
	if i < 0 {
		return len(p.at), len(p.at)
	}
	from = first + i
	for to = from + 1; to < len(p.at) && int(p.at[to]) == p.next; to++ {
	}
	return from, to
}

// move moves the units from one up to another one. A server that has a copy records each.
func (p *part) move(first, end int) {
	e, s := p.flight.enemy, p.flight.qp.conn.server
	region := s.regions[p.r.Region][p.r.Remote:]
	for size := 1; first < end; first += size {
		j := s.journal
		if j == nil {
			size = end - first
		}
		from, to := e.bounds(&p.r, first, size)
		if p.r.Op == verbs.Write {
			p.changes(from, to)
			copy(region[from:to], p.data[from:to])
			continue
		}
		copy(p.r.Local[from:to], region[from:to])
		if j != nil {
			p.saw(j.seen(word{p.r.Region, p.r.Remote + uint64(from)}, to-from), j.flaws.Reads)
		}
	}
}

// changes is told which bytes of a WRITE are about to take effect.
func (p *part) changes(from, to int) {
	j, e := p.flight.qp.conn.server.journal, p.flight.enemy
	if j == nil {
		return
	}
	var whole *part
	if e.plan.Capabilities.WholeAlways {
		whole = p
	}
	at := word{p.r.Region, p.r.Remote + uint64(from)}
	position := j.record(p, at, p.flight.qp.conn.server.regions[at.region][at.remote:][:to-from], whole, from/e.plan.Capabilities.WholeWrite, p.data[from:to])
	p.flight.made = max(p.flight.made, position)
	if !j.flaws.Writes {
		p.needs(position)
	}
}

// saw is told of the last change of words that p READ or compared. flawed: nobody waits for it.
func (p *part) saw(position int, flawed bool) {
	f := p.flight
	if f.qp.conn.server.journal.maker(position) != f {
		f.mirrored.saw = max(f.mirrored.saw, position)
	}
	if !flawed {
		p.needs(position)
	}
}

// needs is told of a position that the answer waits for.
func (p *part) needs(position int) { p.flight.need = max(p.flight.need, position) }

// atomic executes p, or one half of it; false if it has to wait for another atomic on its word, or
// for its own second half.
//
// Atomics of a server exclude each other, so between the halves no other one on the word runs. A
// WRITE may, and is lost: unless the provider says that it is safe (ReleaseByWrite).
func (p *part) atomic() bool {
	f := p.flight
	s := f.qp.conn.server
	at := word{p.r.Region, p.r.Remote}
	p.checkReach()
	mem := s.regions[at.region][at.remote:]
	if first := s.busy[at]; first != nil && first != p {
		first.behind = append(first.behind, p)
		return false
	}
	if p.next == 0 {
		p.old = binary.NativeEndian.Uint64(mem)
		if j := s.journal; j != nil {
			p.saw(j.seen(at, 8), j.flaws.Found)
		}
		if changes := p.r.Outcome(p.old) != p.old; changes && f.enemy.plan.SplitAtomics && !f.enemy.plan.Capabilities.ReleaseByWrite {
			p.next = 1
			s.busy[at] = p
			p.in(f.enemy.gap())
			return false
		}
	}
	p.store()
	p.end()
	return true
}

// store is the second half of an atomic; who waited behind it goes on.
func (p *part) store() {
	s := p.flight.qp.conn.server
	mem := s.regions[p.r.Region][p.r.Remote:]
	if p.r.Outcome(p.old) != p.old {
		f := p.flight
		position := s.journal.record(p, word{p.r.Region, p.r.Remote}, mem[:8], nil, 0, nil)
		f.made, f.swapped = max(f.made, position), max(f.swapped, position)
		if position > 0 && !s.journal.flaws.Swaps {
			p.needs(position)
		}
	}
	binary.NativeEndian.PutUint64(mem, p.r.Outcome(p.old))
	binary.NativeEndian.PutUint64(p.r.Local, p.old)
	p.leave()
}

// leave lets the next atomic on the word go on.
func (p *part) leave() {
	s, at := p.flight.qp.conn.server, word{p.r.Region, p.r.Remote}
	if s.busy[at] == p {
		delete(s.busy, at)
	}
	for _, next := range p.behind {
		if !next.flight.stopped {
			next.in(0)
		}
	}
	p.behind = nil
}

// end is when p is through.
func (p *part) end() {
	f := p.flight
	p.state = through
	f.left--
	if f.left > 0 {
		f.begin()
		return
	}
	e := f.enemy
	if f.made > 0 {
		e.moment(Through, f.qp)
	}
	e.fabric.world.Schedule(&f.answer, e.fabric.world.Now()+e.fabric.model.BaseRTT/2+e.delay(), nil)
}

// tell lets the owner know that all took effect.
func (f *flight) tell() {
	f.known = true
	if j := f.qp.conn.server.journal; j != nil && f.qp.err == nil {
		if max(j.base, f.made) < f.mirrored.saw {
			f.enemy.moment(Seen, f.qp)
		}
		if j.base < f.made {
			f.enemy.moment(Answered, f.qp)
		}
		if j.base < f.swapped {
			f.enemy.moment(Swapped, f.qp)
		}
		j.confirm(f.need)
	}
	if t := f.qp.waiter; t != nil {
		t.Wake(f.enemy.fabric.world.Now())
	}
}
