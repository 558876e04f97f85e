// Package simenv is the simulated [env.Env]: virtual time, one goroutine at a time, and every
// choice taken from a seed, so that a run replays exactly.
//
// A [World] is a queue of events in the order of virtual time: a goroutine goes on, or a provider's
// function is called. Nothing else makes time pass, so a wait of an hour costs as much as one of a
// nanosecond. A goroutine is a coroutine (iter.Pull) that runs until it waits through its env; then
// the next event is taken. Events of one moment come in an order that the seed chooses.
//
// A [Process] is a group of goroutines with a clock of its own. It implements env.Env for the code
// that runs in it, and it can be frozen, thawed and killed at any event.
//
// All of it belongs to the goroutine that calls [World.Run], so nothing here is safe for concurrent
// use, and nothing needs to be.
package simenv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dmindex/dmindex/pkg/env/schedule"
)

// Options of a world. Zero fields have the defaults given.
type Options struct {
	Seed uint64

	// Ordered makes events of one moment happen in the order in which they were asked for, instead
	// of one chosen by the seed: faster, for measuring.
	Ordered bool

	// Preempt is one of how many uses of a mutex or event lets others run, though it need not. 0 =
	// none.
	Preempt int

	// Tick is what a Yield takes. 0 = 100 ns. It is more than nothing, so that who polls lets time
	// pass.
	Tick time.Duration

	// LongestStop is how long a goroutine stands still at a schedule point at most, in a build that
	// has them (package schedule). 0 = 3 ms.
	LongestStop time.Duration

	// Sites are the schedule points, where they are not those of the build.
	Sites []schedule.Site

	MaxEvents uint64        // after so many the run fails; 0 = 200 million
	MaxTime   time.Duration // of the world's clock; 0 = an hour
}

// Errors of Run.
var (
	// ErrDeadlock is returned when main has not ended, and nothing will ever happen any more.
	ErrDeadlock = errors.New("all goroutines wait for ever")
	// ErrLimit is returned when a run went over MaxEvents or MaxTime.
	ErrLimit = errors.New("run went over its limit")
	// ErrPanic is returned when a goroutine panicked.
	ErrPanic = errors.New("goroutine panicked")
)

// World is one simulated run.
type World struct {
	o       Options
	now     time.Duration
	queue   queue
	choices *rand.Rand // of the scheduler
	events  uint64
	hash    uint64

	current *Task // who runs; nil while an event's function does
	tasks   taskList
	named   uint64 // tasks ever made
	failure error
	ended   bool
	random  *rand.Rand // for Process.Uint64
	points  *points    // nil = the program has none
}

// streams of random numbers: one more number drawn by one does not change what another draws.
const (
	streamChoices = iota + 1
	streamRandom
	streamFaults
	streamPoints
)

// New makes a world.
func New(o Options) *World {
	if o.Tick == 0 {
		o.Tick = 100 * time.Nanosecond
	}
	if o.LongestStop == 0 {
		o.LongestStop = 3 * time.Millisecond
	}
	if o.MaxEvents == 0 {
		o.MaxEvents = 200_000_000
	}
	if o.MaxTime == 0 {
		o.MaxTime = time.Hour
	}
	showProgress(o.Seed)
	return &World{
		o:       o,
		hash:    0xcbf29ce484222325,
		choices: rand.New(rand.NewPCG(o.Seed, streamChoices)),
		random:  rand.New(rand.NewPCG(o.Seed, streamRandom)),
	}
}

// Seed of the world.
func (w *World) Seed() uint64 { return w.o.Seed }

// Faults is a new source of random numbers for who plans faults: the same one for each call.
func (w *World) Faults() *rand.Rand { return rand.New(rand.NewPCG(w.o.Seed, streamFaults)) }

// Now is the world's own time, which no process's clock need agree with.
func (w *World) Now() time.Duration { return w.now }

// Events is how many there were.
func (w *World) Events() uint64 { return w.events }

// Hash is a digest of all that happened, in order: two runs with the same hash were the same.
func (w *World) Hash() uint64 { return w.hash }

// Stops says how often goroutines were stopped at schedule points; "" in a program that has none.
func (w *World) Stops() string { return w.points.String() }

// Note adds x to the hash.
func (w *World) Note(x uint64) {
	w.hash = (w.hash ^ x) * 0x9E3779B97F4A7C15
	w.hash ^= w.hash >> 29
}

// Run runs main as the first goroutine of a process named "main" and returns when it has ended;
// goroutines that are left are then unwound. The error says if the run came to another end, and
// names the seed. If main ends by runtime.Goexit, as t.FailNow does, so does the goroutine that
// called Run.
func (w *World) Run(main func(p *Process)) error {
	if w.ended {
		panic("simenv: a world runs once")
	}
	w.points = newPoints(w)
	w.points.begin()
	defer w.points.end()
	p := w.NewProcess("main")
	first := p.start("main", func() { main(p) })
	defer w.end()
	for !first.ended && w.failure == nil {
		if !w.step() {
			w.failure = fmt.Errorf("%w:\n%s", ErrDeadlock, w.Dump())
		}
	}
	if w.failure != nil {
		return fmt.Errorf("simulation of seed %d, at %v after %d events%s: %w", w.o.Seed, w.now, w.events, w.Stops(), w.failure)
	}
	return nil
}

// Fail ends the run with err.
func (w *World) Fail(err error) {
	if w.failure == nil {
		w.failure = err
	}
}

// step takes the next event; false if there is none.
func (w *World) step() bool {
	e := w.queue.pop()
	if e == nil {
		return false
	}
	w.advance(e.at, e.id)
	switch p := e.process; {
	case p != nil && p.frozen:
		p.held = append(p.held, e)
	case e.task != nil:
		w.resume(e.task)
	case p != nil && p.dead:
		// Its functions die with it.
	default:
		e.Do()
	}
	return true
}

// advance takes note of an event at a time.
func (w *World) advance(at time.Duration, id uint64) {
	w.now = max(w.now, at)
	w.events++
	w.Note(uint64(w.now) + id<<48)
	if w.events > w.o.MaxEvents || w.now > w.o.MaxTime {
		w.Fail(fmt.Errorf("%w of %d events and %v:\n%s", ErrLimit, w.o.MaxEvents, w.o.MaxTime, w.Dump()))
	}
}

// end unwinds what is left.
func (w *World) end() {
	w.ended = true
	for t := w.tasks.first; t != nil; t = w.tasks.first {
		t.process.dead = true
		t.leaveQueues()
		w.resume(t)
		if !t.ended {
			panic("simenv: goroutine " + t.String() + " goes on after its process died")
		}
	}
}
