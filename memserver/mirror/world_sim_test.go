package mirror_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/env/simenv/simtest"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// world is a volume in a simulated world. Real are the journal, what mirrors it, the member and the
// operator's step. The memory is a few words that only count up, so that each value says what was
// before it. Judged are: an answer never says less than an answer before it; memories are equal at
// equal positions; the ledger too; all is in sync soon after the trouble.
type world struct {
	*simtest.Stage
	wrong mistake
	main  *simenv.Process

	pods    []*pod
	sockets []*socket
	record  volumes.View
	cuts    map[wire]int
	slow    map[wire]time.Duration
	quiet   bool
	over    bool
	losing  bool       // pods lose their memory, and stay
	losses  *rand.Rand // which
	lost    bool       // one did
	void    bool       // the volume with it
	pause   bool       // sessions do
	status  volumes.Status
	waiting string
	took    time.Duration
	known   [words]uint64 // what was answered, at most
	ledger  uint64        // the same
	counts  counts
}

// counts is what happened.
type counts struct{ answers, refused, late, breaks, resumed, joins, dropped, opened, cut, stops, wipes int }

func (c *counts) add(o counts) {
	c.answers += o.answers
	c.refused += o.refused
	c.late += o.late
	c.breaks += o.breaks
	c.resumed += o.resumed
	c.joins += o.joins
	c.dropped += o.dropped
	c.opened += o.opened
	c.cut += o.cut
	c.stops += o.stops
	c.wipes += o.wipes
}

const (
	words    = 20  // some are rarely used: nothing hides there that a change got lost
	apart    = 200 // bytes between words: some share a block
	size     = 4096
	troubled = 6 * time.Second
	settled  = 10 * time.Second
)

// mistake is a fault put in on purpose.
type mistake string

const (
	noMistake mistake = ""
	noSettle  mistake = "a copy is walked before lists are over that record nothing"
	oldMode   mistake = "a list goes by the mode of before its check"
	aside     mistake = "a piece is read before it has its place among the changes"
	noNeed    mistake = "an answer does not wait for what it READ"
	noPermit  mistake = "an answer does not wait for permission"
	half      mistake = "half of the memory is walked"
	lateStore mistake = "the ledger is stored after it is stored that the content is here"
	noLedger  mistake = "the ledger is not walked"
)

type run struct {
	seed  uint64
	wrong mistake
}

type outcome struct {
	err    error
	void   bool
	took   time.Duration
	counts counts
}

func (r run) do() outcome {
	inner := simenv.New(simenv.Options{Seed: r.seed, Preempt: 16, MaxEvents: 4_000_000})
	w := &world{
		Stage: &simtest.Stage{World: inner, Random: rand.New(rand.NewPCG(r.seed, 47)), Drift: 60_000}, wrong: r.wrong,
		cuts: map[wire]int{}, slow: map[wire]time.Duration{}, losses: rand.New(rand.NewPCG(r.seed, 101)),
	}
	w.losing = w.losses.IntN(2) == 0 && r.wrong == noMistake
	err := inner.Run(func(p *simenv.Process) {
		w.main = p
		for range 3 {
			w.newPod()
		}
		w.operator()
		w.trouble()
		w.heal()
		w.settle()
		w.over = true
	})
	if w.Problem != nil {
		err = fmt.Errorf("seed %d: %w", r.seed, w.Problem)
	}
	return outcome{err, w.void, w.took, w.counts}
}

func (w *world) pod(name string) *pod {
	for _, d := range w.pods {
		if d.name == name {
			return d
		}
	}
	panic("no pod " + name)
}

// operator observes, asks Step, and acts.
func (w *world) operator() {
	p := w.NewDrifting("operator")
	p.Go("main", func() {
		var memory volumes.Memory
		for !w.over {
			p.Sleep(20*time.Millisecond + w.UpTo(150*time.Millisecond))
			o := volumes.Observed{Now: p.Now(), Record: w.record, Copies: 2, SuspectAfter: 700 * time.Millisecond, JoinBackoff: 20 * time.Millisecond, Memory: memory}
			for _, d := range w.pods {
				q := volumes.Pod{Name: d.name, Version: "1", Moving: d.moving}
				if d.ready() && !d.server.process.Frozen() && !w.isCut("operator", d.name) {
					r := d.server.member.Report()
					q.Report = &r
				}
				o.Pods = append(o.Pods, q)
			}
			a := volumes.Step(o)
			memory, w.status, w.waiting = a.Memory, a.Status, a.Waiting
			if a.Record != nil {
				w.record = *a.Record
				continue
			}
			for _, name := range a.Tell {
				w.ask(name, func(s *server) { s.obey(w.record) })
			}
			if a.Join != nil {
				w.ask(a.Join.Primary.Pod, func(s *server) {
					if s.member.Join(o.Record.Number, a.Join.Copy) == nil {
						w.counts.joins++
					}
				})
			}
			if a.Stop != "" {
				w.ask(a.Stop, func(s *server) {
					if s.member.Stop(o.Record.Number) == nil {
						w.counts.stops++
					}
				})
			}
		}
	})
}

// ask lets a pod's server do something.
func (w *world) ask(name string, do func(*server)) {
	if d := w.pod(name); d.ready() {
		s := d.server
		s.process.Go("asked", func() { do(s) })
	}
}

// trouble is the adversary.
func (w *world) trouble() {
	for until := w.Now() + troubled; w.Now() < until; {
		w.main.Sleep(w.UpTo(400 * time.Millisecond))
		d, other := w.pods[w.Random.IntN(len(w.pods))], w.pods[w.Random.IntN(len(w.pods))]
		if w.Random.IntN(3) > 0 && w.record.Number > 0 {
			d = w.pod(w.record.Primary.Pod)
		}
		if w.losing && w.losses.IntN(6) == 0 {
			w.wipe(d)
			continue
		}
		switch w.Random.IntN(10) {
		case 0:
			if d.server != nil && w.OneIn(3) {
				d.server.process.Kill()
			}
		case 1:
			if d.server != nil {
				p := d.server.process
				p.Freeze()
				w.After(w.UpTo(2*time.Second), nil, p.Thaw)
			}
		case 2:
			c := wire{d.name, other.name}
			w.cuts[c]++
			w.After(w.UpTo(2*time.Second), nil, func() { w.cuts[c] = max(0, w.cuts[c]-1) })
		case 3:
			c := wire{d.name, other.name}
			w.slow[c] = w.UpTo(100 * time.Millisecond)
			w.After(w.UpTo(2*time.Second), nil, func() { delete(w.slow, c) })
		case 4:
			d.moving = true
			w.After(w.UpTo(2*time.Second), nil, func() { d.moving = false })
		case 5:
			if d.ready() {
				d.server.cutOne()
			}
		default: // the next connections that are used break
			for _, c := range w.sockets {
				if !c.broken && !c.dead() && w.OneIn(2) {
					w.counts.breaks++
					w.After(w.UpTo(50*time.Millisecond), nil, c.reset)
				}
			}
		}
	}
}

// firstNumber is that of the first process of each pod.
const firstNumber = 1 << 30

// wipe ends a process with all that its pod has, which stays: its machine starts again, whose clock
// may be set back. It takes one of two that are in sync, so nothing need be lost for good.
func (w *world) wipe(d *pod) {
	if named := d.name == w.record.Primary.Pod || d.name == w.record.Backup.Pod; named && !w.inSync() {
		return
	}
	w.counts.wipes++
	w.lost = true
	number := uint64(1000 * w.counts.wipes)
	if w.losses.IntN(4) == 0 {
		number = -number
	}
	d.memory, d.ledger, d.stored = make([]byte, size), nil, volumes.State{Process: firstNumber + number}
	if d.server != nil {
		d.server.process.Kill()
	}
}

// heal ends all trouble.
func (w *world) heal() {
	w.quiet = true
	clear(w.cuts)
	clear(w.slow)
	for _, d := range w.pods {
		d.moving = false
		if d.server != nil {
			d.server.process.Thaw()
		}
	}
}

// settle waits until all is in sync, and an answer was given since. The volume may be lost only if
// a pod lost its memory.
func (w *world) settle() {
	begun, answers := w.Now(), -1
	for ; ; w.main.Sleep(20 * time.Millisecond) {
		w.took = w.Now() - begun
		sync := w.inSync()
		switch {
		case sync && answers < 0:
			answers = w.counts.answers
		case sync && w.counts.answers > answers+20:
			if w.compare() {
				return
			}
			answers = -1
		case w.status == volumes.Lost:
			if w.void = w.lost; !w.void {
				w.Report("the volume is lost, and no memory was")
			}
			return
		case w.took >= settled:
			w.Report("not in sync %v after the last trouble: record %v, %v: %s%s", settled, w.record, w.status, w.waiting, w.dump())
			return
		}
	}
}

// inSync reports whether primary and backup are what the record says.
func (w *world) inSync() bool {
	if w.status != volumes.InSync || w.record.Backup == (volumes.Proc{}) {
		return false
	}
	p, b := w.pod(w.record.Primary.Pod), w.pod(w.record.Backup.Pod)
	if !p.ready() || !b.ready() || p.server.process.Frozen() || b.server.process.Frozen() {
		return false
	}
	primary, backup := p.server.member.Report(), b.server.member.Report()
	return primary.Role == volumes.Primary && primary.View == w.record && backup.Role == volumes.Backup && backup.Proc == w.record.Backup && backup.Source == primary.Proc
}

func (w *world) dump() (s string) {
	for _, d := range w.pods {
		if s += fmt.Sprintf("\n  %s runs %v, stored %+v", d.name, d.server != nil, d.stored); d.ready() {
			s += fmt.Sprintf(" %+v, at %d, journal at %d; %v", d.server.member.Report(), d.server.sink.Applied(), d.server.journal.Last(), d.server.problem)
		}
	}
	return s
}

// compare compares primary and backup at one position. It returns false if meanwhile another view
// was recorded: a process that stood still until the trouble ended may be left out just then.
func (w *world) compare() bool {
	view, p, b := w.record, w.pod(w.record.Primary.Pod).server, w.pod(w.record.Backup.Pod).server
	w.pause = true
	defer func() { w.pause = false }()
	w.main.Sleep(volumes.AskInterval) // sessions end what they are about
	for until := w.Now() + verbs.WaitLimit; b.sink.Applied() < p.journal.Last() && w.Now() < until; {
		w.main.Sleep(volumes.AskInterval)
	}
	if w.record != view {
		return false
	}
	if !bytes.Equal(p.pod.memory, b.pod.memory) || !bytes.Equal(p.pod.ledger, b.sink.Ledger()) {
		w.Report("the backup is at %d of %d; memory is equal: %v, the ledger: %q and %q", b.sink.Applied(), p.journal.Last(), bytes.Equal(p.pod.memory, b.pod.memory), bytes.TrimSpace(p.pod.ledger), bytes.TrimSpace(b.sink.Ledger()))
	}
	return true
}

// Durable implements volumes.Host.
func (s *server) Durable() bool { return false }

// MayLack implements volumes.Host.
func (s *server) MayLack() bool { return false }

// Restore implements volumes.Host.
func (s *server) Restore() error { panic("no files are kept here") }
