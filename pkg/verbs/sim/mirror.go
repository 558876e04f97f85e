package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// A mirrored server keeps a copy of its memory in another process. It sends each change there, in
// order, and lets no answer out before the copy has what the answer depends on. When the server
// dies the copy takes its place. So the memory goes back to what it was behind some prefix of its
// changes, and no answer that was given contradicts that prefix:
//
//   - A change has a position. A word has the position of its last change.
//   - An answer needs the changes of its own list, and the last change of each word that the list
//     READ or compared. A call needs those of the words that it READ. A control call needs the last
//     change of the ledger, which is recorded among those of the memory (Server.Record).
//   - The copy has whatever an answer needed that was given (journal.confirm).
//   - At a fail-over the adversary chooses the prefix: the shortest one, all, or any between them.
//     What lies behind it is undone (journal.cut).
//
// A WRITE is recorded word by word, and may be cut anywhere, unless WRITEs are whole always.
//
// What the server does not record stays as it is, and its owner says what becomes of it
// (Mirror.Opened). Clients may hear of the fail-over late (Fault.For): the old server is theirs
// meanwhile, and answers nothing.
type Mirror struct {
	// Recorded reports whether changes of a word are sent to the copy; nil = of all. The atomics
	// and WRITEs of the others wait for nobody.
	Recorded func(region verbs.RegionID, remote uint64) bool
	// Opened is called when the memory is the copy's, before anybody reaches it. Nil = nothing is
	// to be done.
	Opened func()
}

// Flaws are faults of a mirrored server that are put in on purpose.
type Flaws struct {
	Writes  bool // the answer to a WRITE does not wait for it
	Reads   bool // the answer to a READ does not wait for what it READ
	Swaps   bool // the answer to an atomic does not wait for its own change
	Found   bool // nor, where it changed nothing, for what it found
	Control bool // the answer to a control call does not wait for the ledger
	Cut     bool // a WRITE that is whole always is cut
	Locks   Lock // what becomes of locks, for who opens the memory (Mirror.Opened)
	// presence words stay as they were, for who opens the memory
	Presence bool
	Sound    bool // nothing is wrong, and the plan is the one that a fault gets (OrFailOvers)
}

// Lock is what becomes of locks at a fail-over where they do not turn to REPAIR.
type Lock uint8

// Faults of locks.
const (
	Kept  Lock = iota + 1 // they stay as they were
	Freed                 // as a copy that never heard of them has them
)

// journal has the changes of a mirrored server that its copy may lack.
type journal struct {
	mirror  Mirror
	flaws   Flaws
	rand    *rand.Rand
	base    int // changes that the copy has for certain
	changes []change
	last    map[word]int // position of the last change
	ledger  int          // position of the ledger's last change
}

// change is one change of the memory, or of the ledger.
type change struct {
	by   *part // nil = the server
	at   word
	old  []byte
	undo func() // of the ledger; nil = it is of the memory

	of    *part // of a WRITE that is whole always
	block int   // the block of it
	now   []byte
}

// Mirrored reports whether the server has a copy: where its plan has a fail-over, or by Keep.
func (s *Server) Mirrored() bool { return s.journal != nil }

// Keep makes the server a mirrored one, before anybody reaches it. A server whose plan has a
// fail-over is mirrored without it, and records everything.
func (s *Server) Keep(m Mirror) {
	if s.fabric.enemy == nil {
		panic("sim: a server without an adversary has no copy")
	}
	s.journal = &journal{mirror: m, flaws: s.fabric.flaws, rand: s.fabric.enemy.copies, last: map[word]int{}}
}

func (j *journal) end() int { return j.base + len(j.changes) }

// record is told of a change of b by a request, at a place, before it happens; of is the WRITE
// whose block it is a part of if that is whole always. It returns the position, 0 if the change is
// not recorded.
func (j *journal) record(by *part, at word, b []byte, of *part, block int, now []byte) int {
	if j == nil || j.mirror.Recorded != nil && !j.mirror.Recorded(at.region, at.remote) {
		return 0
	}
	c := change{by: by, at: at, old: append([]byte(nil), b...)}
	if of != nil && !j.flaws.Cut {
		c.of, c.block, c.now = of, block, append([]byte(nil), now...)
	}
	j.changes = append(j.changes, c)
	for w := at.remote &^ 7; w < at.remote+uint64(len(b)); w += 8 {
		j.last[word{at.region, w}] = j.end()
	}
	return j.end()
}

// seen is the position of the last change of n bytes.
func (j *journal) seen(at word, n int) (position int) {
	if j == nil {
		return 0
	}
	for w := at.remote &^ 7; w < at.remote+uint64(n); w += 8 {
		position = max(position, j.last[word{at.region, w}])
	}
	return position
}

// maker is the list that made the change of a position. Nil = the copy has the change for certain,
// or the server made it.
func (j *journal) maker(position int) *flight {
	if position <= j.base {
		return nil
	}
	if by := j.changes[position-j.base-1].by; by != nil {
		return by.flight
	}
	return nil
}

// confirm is told that an answer goes out that needs what lies up to a position.
func (j *journal) confirm(position int) {
	if j == nil || position <= j.base {
		return
	}
	gone := j.changes[:position-j.base]
	for i := range gone {
		if c := &gone[i]; c.of != nil {
			c.of.keep(c.block)
		}
	}
	j.changes = j.changes[len(gone):]
	j.base = position
}

// keep notes that the copy has a block of p.
func (p *part) keep(block int) {
	if p.kept == nil {
		p.kept = map[int]bool{}
	}
	p.kept[block] = true
}

// cut makes the memory of s what it was behind a prefix of its changes.
func (j *journal) cut(s *Server) {
	keep, n := 0, len(j.changes)
	switch j.rand.IntN(8) {
	case 0, 1, 2:
	case 3, 4:
		keep = j.between()
	case 5:
		keep = j.rand.IntN(n + 1)
	default:
		keep = n
	}
	s.fabric.enemy.undone += n - keep
	for i := n - 1; i >= keep; i-- {
		if c := &j.changes[i]; c.undo != nil {
			c.undo()
		} else {
			copy(s.regions[c.at.region][c.at.remote:], c.old)
		}
	}
	for i := range j.changes {
		switch c := &j.changes[i]; {
		case c.of == nil:
		case i < keep:
			c.of.keep(c.block)
		case c.of.kept[c.block]:
			copy(s.regions[c.at.region][c.at.remote:], c.now)
		}
	}
	j.base, j.changes = j.end(), nil
}

// between chooses a prefix of the changes that ends with a request, or with a change of another one
// in between. Most requests are short and a few are long, so a prefix of any length seldom does.
func (j *journal) between() int {
	var ends []int
	for i := 1; i < len(j.changes); i++ {
		if j.changes[i].by != j.changes[i-1].by {
			ends = append(ends, i)
		}
	}
	if len(ends) == 0 {
		return 0
	}
	return ends[j.rand.IntN(len(ends))]
}

// Record notes a change of what the server stores besides its memory: undo takes it back, where the
// copy that takes the server's place does not have it. Without a copy nothing is noted.
func (s *Server) Record(undo func()) {
	if j := s.journal; j != nil {
		j.changes = append(j.changes, change{undo: undo})
		j.ledger = j.end()
	}
}

// Confirm says that the copy has all that the server has.
func (s *Server) Confirm() {
	if j := s.journal; j != nil {
		j.confirm(j.end())
	}
}

// FailOver is what happens when the server's process dies and its copy takes its place. Half of its
// clients hear of that at once, the others at any time until late. A server that a process runs
// dies with it, and who started the process starts the copy.
func (s *Server) FailOver(late time.Duration) {
	if s.journal == nil {
		panic("sim: server " + s.address + " has no copy")
	}
	s.restarts++
	s.fabric.enemy.failOvers++
	if slices.ContainsFunc(s.fabric.stranded, func(c *conn) bool { return c.server == s }) {
		s.fabric.enemy.again++
	}
	s.late = &late
	if s.door != nil {
		s.door.process.Kill()
	} else {
		s.dies()
	}
	if open := s.journal.mirror.Opened; open != nil {
		open()
	}
	s.late = nil
}

// dies ends all connections of a server whose process dies, and of one that fails over what its
// copy lacks.
func (s *Server) dies() {
	s.dying = true
	for _, c := range append([]*conn(nil), s.conns...) {
		if s.late == nil || !c.strand(*s.late) {
			c.cut()
		}
	}
	s.dying = false
	if s.late != nil {
		s.journal.cut(s)
	}
}

// strand leaves the connection to a server that answers nothing any more, for a while that the
// adversary chooses; false = its client hears of the fail-over at once.
func (c *conn) strand(late time.Duration) bool {
	f := c.server.fabric
	r := f.enemy.copies
	if late <= 0 || c.err != nil || r.IntN(2) == 0 {
		return false
	}
	for _, q := range c.qps {
		switch f := q.flight; {
		case f == nil:
		case f.left == 0 && !f.known && r.IntN(2) == 0: // the answer is on its way
			c.server.journal.confirm(f.need)
		default:
			f.stop()
		}
	}
	c.quiet()
	remove(&c.server.conns, c)
	f.stranded = append(f.stranded, c)
	hears := time.Duration(r.Int64N(int64(late) + 1))
	c.stranded, c.hears = true, f.world.Now()+hears
	f.world.After(hears, nil, c.hear)
	return true
}

// hear tells the client of a stranded connection.
func (c *conn) hear() {
	remove(&c.server.fabric.stranded, c)
	c.stranded = false
	c.cut()
}

// unanswered waits in the place of a process that asks the server at an address, where it has not
// heard that this failed over. nil = it has.
func (f *Fabric) unanswered(p *simenv.Process, address string, limit time.Duration) error {
	for _, c := range f.stranded {
		if c.server.address != address || c.device.process != p {
			continue
		}
		p.Sleep(min(limit, c.hears-f.world.Now()))
		if slices.Contains(f.stranded, c) {
			return verbs.ErrTimeout
		}
		return verbs.ErrDisconnected
	}
	return nil
}

// FailOvers is how often servers failed over, how often of these before all clients had heard of
// the server's last time, and how many changes were undone.
func (f *Fabric) FailOvers() (times, again, undone int) {
	if f.enemy == nil {
		return 0, 0, 0
	}
	return f.enemy.failOvers, f.enemy.again, f.enemy.undone
}
