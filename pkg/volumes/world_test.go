package volumes

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/env/simenv/simtest"
)

// world is a volume in a simulated world: pods with memory servers that hold copies of a few words,
// two operators, a record that changes by compare-and-swap, clients, and trouble. Real are Member
// and Step. Kubernetes is a list of pods, the stream of changes is a toy (copy_test.go).
type world struct {
	*simtest.Stage
	wrong mistake
	main  *simenv.Process

	pods     []*pod
	copies   int
	suspect  time.Duration
	losing   bool          // pods may be lost
	files    bool          // memory is lost with each process, and kept in files
	soon     bool          // which are on disk some time after answers went out
	calm     bool          // one thing goes wrong
	moves    bool          // copies move most of the time, and primaries die
	deafTo   *pod          // which the operators do not hear
	busy     time.Duration // until when clients ask without a pause
	lost     bool          // one was, or its memory
	wiped    uint64        // how many memories were
	born     int           // how often a volume began
	losses   *rand.Rand    // of what is lost how
	refusals *rand.Rand    // of whose address refuses the operators; nil = nobody's does
	parts    *rand.Rand    // of processes that go on beside later ones; nil = none does
	forgets  *rand.Rand    // of how a copy that took over is lost; nil = none is, on purpose
	void     bool          // with all that it held, which nobody has otherwise
	quiet    bool          // trouble is over
	over     bool

	operators [2]*simenv.Process
	moments   int64
	healed    int64
	took      time.Duration
	apiDown   int
	record    View
	records   []View // that there were
	cuts      map[wire]int
	slow      map[wire]time.Duration
	changes   int  // of clients so far
	answered  bits // changes that somebody knows of
	log       []entry
	counts    counts
	status    Status // that an operator saw last
	why       string
}

// counts is what happened.
type counts struct {
	answers, unknown, opened, switched, views, joins, again, stops, restored, losses, kills, freezes int
	deletes, aside, waited, wipes, powers, found, read, ghosts, forgotten, lack, former, stale, shut int
}

func (c *counts) add(o counts) {
	c.answers += o.answers
	c.unknown += o.unknown
	c.opened += o.opened
	c.switched += o.switched
	c.views += o.views
	c.joins += o.joins
	c.again += o.again
	c.stops += o.stops
	c.restored += o.restored
	c.losses += o.losses
	c.kills += o.kills
	c.freezes += o.freezes
	c.deletes += o.deletes
	c.aside += o.aside
	c.waited += o.waited
	c.wipes += o.wipes
	c.powers += o.powers
	c.found += o.found
	c.read += o.read
	c.ghosts += o.ghosts
	c.forgotten += o.forgotten
	c.lack += o.lack
	c.former += o.former
	c.stale += o.stale
	c.shut += o.shut
}

// mistake is a fault put in on purpose.
type mistake string

const (
	noMistake     mistake = ""
	volatile      mistake = "the promise to wait for a joining copy is not stored"
	podsForProcs  mistake = "a backup that restarted still counts"
	inSyncEarly   mistake = "a joining copy is in sync before it has what was answered"
	markEarly     mistake = "the mark is recorded before answers wait for the copy"
	noPermission  mistake = "the permission is not looked at"
	cachedLook    mistake = "the permission is looked at every 300 ms"
	notWaitedOut  mistake = "a backup opens without waiting its permission out"
	storedEarly   mistake = "the content is stored before the permission is waited out"
	goesOnAlone   mistake = "a primary goes on alone when its backup is silent"
	notStored     mistake = "a primary goes on alone in a view that is not stored"
	toldEarly     mistake = "servers are told before the record is written"
	lowerViews    mistake = "lower views are obeyed"
	oldStream     mistake = "a copy that was promoted takes the changes of the old primary"
	otherStream   mistake = "a copy takes the changes of another process behind those it has"
	notEmpty      mistake = "a copy joins with memory that is not empty"
	fenceEarly    mistake = "a fence is answered before its last change is applied"
	joinNotWaited mistake = "answers do not wait for a joining copy"
	oneWaited     mistake = "answers wait for the backup only, while another copy joins"
	allTold       mistake = "the old primary is told before the new one serves"
	lateReturn    mistake = "a permission is returned while the primary still answers"
	pieceAside    mistake = "a piece of the memory is read before it has its place among the changes"
	unrecorded    mistake = "a sweep is not in the stream"
	blindDelete   mistake = "pods are deleted whatever happened since they were observed"
	forgotten     mistake = "a memory that was lost shows that it was never served"
	anewLed       mistake = "a process that began the volume anew stands for one that is named"

	notFiled    mistake = "answers do not wait for the files"
	notFollowed mistake = "a backup says that it has applied what its files do not have"
	readEarly   mistake = "files of a backup are read without waiting its permission out"
	leftOut     mistake = "files of a backup are read that a view has left out"
	asideFiled  mistake = "a process whose disk is attached elsewhere answers changes"
	lackingRead mistake = "files that may lack something are read"
	lackingLed  mistake = "a primary whose files may lack something is named though its backup's lack nothing"
)

// run is one run.
type run struct {
	seed  uint64
	wrong mistake
	files bool
}

// outcome is what became of it.
type outcome struct {
	err    error
	hash   uint64
	void   bool
	counts counts
	took   time.Duration // from the last trouble until all was in sync
}

const (
	cached     = 300 * time.Millisecond // for the mistake cachedLook
	worldDrift = 60_000
	troubled   = 10 * time.Second // of trouble
	settled    = 10 * time.Second // until then all is in sync again
)

func (r run) do() outcome {
	world0 := simenv.New(simenv.Options{Seed: r.seed, Preempt: 16, MaxEvents: 2_000_000})
	random := rand.New(rand.NewPCG(r.seed, 83))
	w := &world{
		Stage: &simtest.Stage{World: world0, Random: random, Drift: worldDrift}, wrong: r.wrong, cuts: map[wire]int{}, slow: map[wire]time.Duration{},
		losses: rand.New(rand.NewPCG(r.seed, 101)), copies: 1, losing: random.IntN(2) == 0, moves: random.IntN(4) == 0,
		suspect: []time.Duration{0, 300 * time.Millisecond, 2 * time.Second}[random.IntN(3)],
	}
	if random.IntN(4) > 0 {
		w.copies = 2
	}
	if refusals := rand.New(rand.NewPCG(r.seed, 107)); refusals.IntN(2) == 0 {
		w.refusals = refusals
	}
	if forgets := rand.New(rand.NewPCG(r.seed, 109)); w.losing && !r.files && forgets.IntN(16) == 0 {
		w.forgets = forgets
	}
	if parts := rand.New(rand.NewPCG(r.seed, 127)); r.files && parts.IntN(3) == 0 {
		w.parts = parts
	}
	w.files, w.soon = r.files, r.files && rand.New(rand.NewPCG(r.seed, 113)).IntN(3) == 0
	err := world0.Run(func(p *simenv.Process) {
		w.main = p
		w.start()
		w.trouble()
		if w.forgets != nil {
			w.forget()
		}
		w.heal()
		w.settle()
		w.over = true
		p.Sleep(2 * time.Second) // what is under way ends
	})
	if err == nil {
		w.judge()
	}
	if w.Problem != nil {
		err = fmt.Errorf("seed %d: %w", r.seed, w.Problem)
	}
	return outcome{err, world0.Hash(), w.void, w.counts, w.took}
}

func (w *world) start() {
	for range w.copies {
		w.newPod()
	}
	for n := range 2 {
		w.operator(n)
	}
	for n := range 3 {
		w.client(n)
	}
}

// process makes one whose clock is as wrong as may be, in half of the cases.
func (w *world) process(name string) *simenv.Process {
	p := w.NewDrifting(name)
	switch w.Random.IntN(4) {
	case 0:
		p.SetDrift(worldDrift)
	case 1:
		p.SetDrift(-worldDrift)
	}
	return p
}

func (w *world) find(name string) *pod {
	for _, d := range w.pods {
		if d.name == name {
			return d
		}
	}
	panic("no pod " + name)
}

// wire is one direction between two processes, for one kind of messages; kind "" = for all.
type wire struct{ from, to, kind string }

func (w *world) isCut(from, to, kind string) bool {
	return w.cuts[wire{from, to, kind}] > 0 || w.cuts[wire{from, to, ""}] > 0
}

// send lets a message arrive at a process, some time later, unless it is lost.
func (w *world) send(from, to, kind string, p *simenv.Process, arrives func()) {
	delay := 50*time.Microsecond + w.UpTo(200*time.Microsecond)
	if late := w.slow[wire{from, to, kind}]; late > 0 {
		delay += w.UpTo(late)
	}
	if w.OneIn(40) {
		delay += w.UpTo(5 * time.Millisecond)
	}
	w.After(delay, p, func() {
		if !w.isCut(from, to, kind) {
			arrives()
		}
	})
}

// call has a server do something, and returns what it answered; false if no answer came in time. It
// may have been done nevertheless.
func call[T any](w *world, p *simenv.Process, to *pod, kind string, limit time.Duration, do func(*server) T) (answer T, ok bool) {
	s := to.server
	if s == nil {
		p.Sleep(time.Millisecond)
		return answer, false
	}
	from, answered := p.Name(), p.NewEvent()
	w.send(from, to.name, kind, s.process, func() {
		s.process.Go(kind, func() {
			if s.m == nil {
				return
			}
			a := do(s)
			w.send(to.name, from, kind, p, func() {
				answer, ok = a, true
				answered.Set()
			})
		})
	})
	answered.Wait(limit)
	return answer, ok
}

// point is where a process may stand still, or die.
func (w *world) point(p *simenv.Process) {
	if w.quiet || !w.OneIn(60) {
		return
	}
	if w.OneIn(4) {
		w.counts.kills++
		p.Kill()
	}
	w.freeze(p, w.UpTo(3*time.Second))
	p.Yield()
}

func (w *world) freeze(p *simenv.Process, d time.Duration) {
	w.counts.freezes++
	p.Freeze()
	w.After(d, nil, p.Thaw)
}

// bits is a set of changes.
type bits []uint64

func (b *bits) add(n int) {
	for len(*b) <= n/64 {
		*b = append(*b, 0)
	}
	(*b)[n/64] |= 1 << (n % 64)
}

// lacks returns a change that o has and b does not; 0 = none.
func (b bits) lacks(o bits) int {
	for i, x := range o {
		if i < len(b) {
			x &^= b[i]
		}
		for n := range 64 {
			if x>>n&1 != 0 {
				return 64*i + n
			}
		}
	}
	return 0
}

func (b bits) clone() bits { return slices.Clone(b) }
