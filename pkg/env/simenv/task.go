package simenv

import (
	"fmt"
	"iter"
	"runtime/debug"
	"strings"
	"time"
)

// Task is a goroutine of the world. Providers use it to let one wait for what they simulate.
type Task struct {
	id      uint64
	name    string
	process *Process
	timer   Timer // when it goes on
	next    func() (struct{}, bool)
	yield   func(struct{}) bool
	ended   bool

	waits     string // for what; "" while it runs or is about to
	mutex     *mutex // it waits for
	event     *event // it waits for
	unwinding bool
	stopped   time.Duration // at schedule points, in the window that ends at
	window    time.Duration // of the world's time
	refused   int           // waits that returned at once, while it unwinds

	busy time.Duration // until when its processor works
	owed Owed

	before, after *Task // in the list of all
}

// killed is what a goroutine of a dead process panics with, so that its deferred functions run.
type killed struct{}

// maxRefused is how many waits a deferred function may make in a dead process before it is ended
// too.
const maxRefused = 1000

// start makes a goroutine, which begins with an event of this moment.
func (p *Process) start(name string, f func()) *Task {
	w := p.world
	w.named++
	t := &Task{id: w.named, name: name, process: p}
	t.timer = Timer{task: t, process: p, id: t.id}
	t.next, _ = iter.Pull(func(yield func(struct{}) bool) {
		t.yield = yield
		t.run(f)
	})
	w.tasks.add(t)
	w.schedule(&t.timer, w.now)
	return t
}

func (t *Task) run(f func()) {
	defer func() {
		t.ended = true
		if r := recover(); r != nil {
			if _, ok := r.(killed); !ok {
				t.process.world.Fail(fmt.Errorf("%w: %v: %v\n%s", ErrPanic, t, r, debug.Stack()))
			}
		}
	}()
	if t.process.dead {
		return
	}
	f()
}

// resume lets t run until it waits or ends.
func (w *World) resume(t *Task) {
	before := w.current
	w.current = t
	defer func() { // also if t ends by runtime.Goexit, which goes on through here
		w.current = before
		if t.ended {
			w.tasks.remove(t)
			w.Cancel(&t.timer)
		}
	}()
	t.next()
}

// Current is the goroutine that runs; nil outside of any.
func (w *World) Current() *Task { return w.current }

// Process is the one that t belongs to.
func (t *Task) Process() *Process { return t.process }

// String is process and name.
func (t *Task) String() string { return t.process.name + "/" + t.name }

// Park makes t, which must be the one that runs, wait until somebody calls Wake. what says for what
// it waits. It returns false, at once, if t unwinds.
func (t *Task) Park(what string) bool {
	if !t.mayWait() {
		return false
	}
	t.park(what)
	return true
}

// Wake lets a parked t go on at a time of the world's clock; a later call takes the place of an
// earlier one.
func (t *Task) Wake(at time.Duration) {
	if !t.ended {
		t.process.world.schedule(&t.timer, at)
	}
}

// Work gives t's processor d more to do, behind what it still does, and returns when that is done.
// No time passes.
func (t *Task) Work(d time.Duration) time.Duration {
	t.busy = max(t.busy, t.process.world.now) + d
	return t.busy
}

// Owed is processor time that a task is to spend when a provider has answered it.
type Owed struct {
	Answered time.Duration // by anything
	Fetched  time.Duration // besides, by the content of a READ, or the result of a call
}

// Owe says what t is to spend the next time, in place of what was said before. It returns what was
// never spent. A provider that models processors takes it (Pay); with others nothing happens.
func (t *Task) Owe(o Owed) (left Owed) {
	left, t.owed = t.owed, o
	return left
}

// Pay is called by a provider when t waits for an answer. It returns how long t's processor works
// once that is there. fetches: the answer has the content of a READ, or the result of a call.
func (t *Task) Pay(fetches bool) (d time.Duration) {
	d, t.owed.Answered = t.owed.Answered, 0
	if fetches {
		d, t.owed.Fetched = d+t.owed.Fetched, 0
	}
	return d
}

// mayWait reports whether a wait of t is one: not in deferred functions that run because its
// process died.
func (t *Task) mayWait() bool {
	if t.unwinding {
		if t.refused++; t.refused > maxRefused {
			panic(killed{})
		}
		return false
	}
	t.mayRun()
	return true
}

// mayRun unwinds t if its process has died.
func (t *Task) mayRun() {
	if t.process.dead && !t.unwinding {
		t.unwinding = true
		panic(killed{})
	}
}

func (t *Task) park(what string) {
	t.waits = what
	t.yield(struct{}{})
	t.waits = ""
	t.mayRun()
}

// pass lets time go by until at, and what happens meanwhile happen.
func (t *Task) pass(at time.Duration, what string) {
	w := t.process.world
	if next, ok := w.queue.next(); (!ok || at < next) && w.failure == nil && !t.process.frozen {
		w.advance(at, t.id) // the next event would be this one
		return
	}
	w.schedule(&t.timer, at)
	t.park(what)
}

// Dump says where every goroutine is.
func (w *World) Dump() string {
	var b strings.Builder
	for t := w.tasks.first; t != nil; t = t.after {
		waits := t.waits
		if waits == "" {
			waits = "runs"
		} else {
			waits = "waits for " + waits
		}
		if t.process.frozen {
			waits += ", frozen"
		}
		fmt.Fprintf(&b, "  %v %s\n", t, waits)
	}
	return b.String()
}

// taskList is the goroutines that have not ended, in the order in which they were started.
type taskList struct{ first, last *Task }

func (l *taskList) add(t *Task) {
	t.before = l.last
	if l.last == nil {
		l.first = t
	} else {
		l.last.after = t
	}
	l.last = t
}

func (l *taskList) remove(t *Task) {
	if t.before == nil {
		l.first = t.after
	} else {
		t.before.after = t.after
	}
	if t.after == nil {
		l.last = t.before
	} else {
		t.after.before = t.before
	}
	t.before, t.after = nil, nil
}
